// SPDX-License-Identifier: Apache-2.0
#include "server/observe/tracing.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#ifdef ATTNBIAS_TRACING
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "core/base/errors.h"
#include "core/file/regular_file.h"
#include "grpcpp/grpcpp.h"
#include "opentelemetry/baggage/baggage.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"
#include "opentelemetry/sdk/common/global_log_handler.h"
#include "opentelemetry/sdk/resource/resource_detector.h"
#include "opentelemetry/sdk/trace/batch_span_processor_factory.h"
#include "opentelemetry/sdk/trace/batch_span_processor_options.h"
#include "opentelemetry/sdk/trace/exporter.h"
#include "opentelemetry/sdk/trace/samplers/parent.h"
#include "opentelemetry/sdk/trace/samplers/trace_id_ratio.h"
#include "opentelemetry/sdk/trace/span_data.h"
#include "opentelemetry/sdk/trace/tracer_provider.h"
#include "opentelemetry/trace/context.h"
#include "opentelemetry/trace/propagation/http_trace_context.h"
#endif

namespace attnbias {
namespace {

// Set before the first call.
bool is_tracing = false;
std::atomic<int64_t> spans_dropped = 0;

// Returns `otherwise` if the variable is unset or empty.
std::string Variable(const std::string& name, const char* otherwise = "") {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr || *value == '\0' ? otherwise : value;
}

// Returns the name of the variable that sets `name` for traces or, if that one is unset, the name
// of the variable that sets it for all signals.
std::string Otlp(const std::string& name) {
  const std::string own = "OTEL_EXPORTER_OTLP_TRACES_" + name;
  return Variable(own).empty() ? "OTEL_EXPORTER_OTLP_" + name : own;
}

bool IsTrue(const std::string& variable) {
  return absl::EqualsIgnoreCase(Variable(variable), "true");
}

bool IsEnabled() {
  const std::string exporter = Variable("OTEL_TRACES_EXPORTER");
  if (IsTrue("OTEL_SDK_DISABLED") || exporter == "none") return false;
  return !exporter.empty() || !Variable(Otlp("ENDPOINT")).empty();
}

#ifdef ATTNBIAS_TRACING

namespace nostd = opentelemetry::nostd;
namespace otel = opentelemetry::trace;
namespace otlp = opentelemetry::proto;
namespace sdk = opentelemetry::sdk;
using opentelemetry::common::SystemTimestamp;
using otlp::collector::trace::v1::TraceService;

nostd::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Logs at most one line per minute.
void Dropped(int64_t spans, std::string_view why) {
  static std::atomic<int64_t> next_line = 0;
  spans_dropped += spans;
  const int64_t now = absl::ToUnixSeconds(absl::Now());
  int64_t due = next_line;
  if (now < due || !next_line.compare_exchange_strong(due, now + 60)) return;
  LogWarning(
      absl::StrCat("dropping spans, ", spans_dropped.load(), " so far: ", Shortened(why, 512)));
}

// Counts the spans that the SDK drops because its queue is full. The SDK logs one line for each
// such span; its other lines concern the values of environment variables.
class SdkLog final : public sdk::common::internal_log::LogHandler {
  void Handle(sdk::common::internal_log::LogLevel, const char*, int, const char* message,
              const sdk::common::AttributeMap&) noexcept override {
    if (!absl::StrContains(message, "dropping span")) return LogWarning(message);
    Dropped(1, message);
  }
};

void Copy(const std::unordered_map<std::string, sdk::common::OwnedAttributeValue>& from,
          google::protobuf::RepeatedPtrField<otlp::common::v1::KeyValue>* to) {
  for (const auto& [key, value] : from) {
    otlp::common::v1::KeyValue& copy = *to->Add();
    copy.set_key(key);
    if (const auto* text = nostd::get_if<std::string>(&value)) {
      copy.mutable_value()->set_string_value(*text);
    } else if (const auto* number = nostd::get_if<int64_t>(&value)) {
      copy.mutable_value()->set_int_value(*number);
    } else if (const auto* real = nostd::get_if<double>(&value)) {
      copy.mutable_value()->set_double_value(*real);
    }
  }
}

void Copy(const sdk::trace::SpanData& from, otlp::trace::v1::Span* to) {
  const auto bytes = [](const auto& id) {
    return std::string(reinterpret_cast<const char*>(id.Id().data()), id.Id().size());
  };
  const int64_t start = from.GetStartTime().time_since_epoch().count();
  to->set_trace_id(bytes(from.GetTraceId()));
  to->set_span_id(bytes(from.GetSpanId()));
  if (from.GetParentSpanId().IsValid()) {
    to->set_parent_span_id(bytes(from.GetParentSpanId()));
  }
  to->set_trace_state(from.GetSpanContext().trace_state()->ToHeader());
  to->set_flags(from.GetFlags().flags());
  to->set_name(std::string(from.GetName()));
  to->set_kind(otlp::trace::v1::Span::SPAN_KIND_SERVER);
  to->set_start_time_unix_nano(start);
  to->set_end_time_unix_nano(start + from.GetDuration().count());
  to->mutable_status()->set_code(
      static_cast<otlp::trace::v1::Status::StatusCode>(from.GetStatus()));
  to->mutable_status()->set_message(std::string(from.GetDescription()));
  Copy(from.GetAttributes(), to->mutable_attributes());
  for (const sdk::trace::SpanDataEvent& event : from.GetEvents()) {
    auto& copy = *to->add_events();
    copy.set_name(event.GetName());
    copy.set_time_unix_nano(event.GetTimestamp().time_since_epoch().count());
  }
}

// Replaces the library's exporter, which Debian links against an older gRPC.
class Exporter final : public sdk::trace::SpanExporter {
 public:
  std::shared_ptr<grpc::Channel> channel;
  std::map<std::string, std::string> headers;
  std::chrono::milliseconds timeout;

 private:
  std::unique_ptr<sdk::trace::Recordable> MakeRecordable() noexcept override {
    return std::make_unique<sdk::trace::SpanData>();
  }
  sdk::common::ExportResult Export(
      const nostd::span<std::unique_ptr<sdk::trace::Recordable>>& spans) noexcept override {
    otlp::collector::trace::v1::ExportTraceServiceRequest request;
    auto& all = *request.add_resource_spans();
    auto& scope = *all.add_scope_spans();
    scope.mutable_scope()->set_name("attnbias");
    for (const auto& span : spans) {
      const auto& data = static_cast<const sdk::trace::SpanData&>(*span);
      if (scope.spans().empty()) {
        Copy(data.GetResource().GetAttributes(), all.mutable_resource()->mutable_attributes());
      }
      Copy(data, scope.add_spans());
    }
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    for (const auto& [key, value] : headers) context.AddMetadata(key, value);
    otlp::collector::trace::v1::ExportTraceServiceResponse response;
    const grpc::Status status =
        TraceService::NewStub(channel)->Export(&context, request, &response);
    const auto& part = response.partial_success();
    if (!status.ok()) {
      Dropped(scope.spans_size(), status.error_message());
    } else if (part.rejected_spans() > 0) {
      Dropped(part.rejected_spans(), part.error_message());
    }
    return status.ok() ? sdk::common::ExportResult::kSuccess : sdk::common::ExportResult::kFailure;
  }
  bool ForceFlush(std::chrono::microseconds) noexcept override { return true; }
  bool Shutdown(std::chrono::microseconds) noexcept override { return true; }
};

absl::Status Unusable(const std::string& variable, std::string_view want) {
  return Invalid(variable, ": got ", Shortened(Variable(variable)), ", want ", want);
}

absl::StatusOr<std::string> ReadPem(const std::string& name) {
  const std::string path = Variable(Otlp(name));
  if (path.empty()) return "";
  absl::StatusOr<std::string> text = ReadRegularFile(path, int64_t{1} << 20);
  if (!text.ok()) {
    return Invalid(Otlp(name), ": got ", text.status().message(), ", want PEM");
  }
  return text;
}

// Decodes the HEADERS variable as W3C baggage. Errors do not repeat the values, which are secret.
absl::StatusOr<std::map<std::string, std::string>> ReadHeaders() {
  const std::string text = Variable(Otlp("HEADERS"));
  std::map<std::string, std::string> headers;
  opentelemetry::baggage::Baggage::FromHeader(text)->GetAllEntries(
      [&headers](nostd::string_view key, nostd::string_view value) {
        if (!key.empty() && absl::c_all_of(key, [](char c) {
              return absl::ascii_isalnum(c) || absl::StrContains("-_.", c);
            })) {
          headers.emplace(absl::AsciiStrToLower(std::string(key)), value);
        }
        return true;
      });
  const std::vector<std::string> given = absl::StrSplit(text, ',', absl::SkipWhitespace());
  if (headers.size() == given.size()) return headers;
  return Invalid(Otlp("HEADERS"), ": got ", given.size(), " headers, ", headers.size(),
                 " of them valid, want KEY=VALUE,…");
}

absl::StatusOr<std::unique_ptr<Exporter>> MakeExporter() {
  if (Variable(Otlp("PROTOCOL"), "grpc") != "grpc") {
    return Unusable(Otlp("PROTOCOL"), "grpc");
  }
  int32_t milliseconds = 0;
  if (!absl::SimpleAtoi(Variable(Otlp("TIMEOUT"), "10000"), &milliseconds) || milliseconds <= 0) {
    return Unusable(Otlp("TIMEOUT"), "milliseconds");
  }
  auto exporter = std::make_unique<Exporter>();
  exporter->timeout = std::chrono::milliseconds(milliseconds);
  ATTNBIAS_ASSIGN_OR_RETURN(exporter->headers, ReadHeaders());
  grpc::SslCredentialsOptions tls;
  ATTNBIAS_ASSIGN_OR_RETURN(tls.pem_root_certs, ReadPem("CERTIFICATE"));
  ATTNBIAS_ASSIGN_OR_RETURN(tls.pem_private_key, ReadPem("CLIENT_KEY"));
  ATTNBIAS_ASSIGN_OR_RETURN(tls.pem_cert_chain, ReadPem("CLIENT_CERTIFICATE"));
  const std::string endpoint = Variable(Otlp("ENDPOINT"), "http://localhost:4317");
  std::string_view target = endpoint;
  const bool http = absl::ConsumePrefix(&target, "http://");
  const bool https = absl::ConsumePrefix(&target, "https://");
  if (http || https) target = target.substr(0, target.find('/'));
  const bool plaintext = http || (!https && IsTrue(Otlp("INSECURE")));
  grpc::ChannelArguments arguments;
  // Retries as OTLP requires, since a collector may be unavailable for some time.
  arguments.SetServiceConfigJSON(R"({"methodConfig": [{"name": [{}],
      "retryPolicy": {"maxAttempts": 5, "initialBackoff": "1s",
          "maxBackoff": "5s", "backoffMultiplier": 1.5,
          "retryableStatusCodes": ["UNAVAILABLE"]}}]})");
  exporter->channel = grpc::CreateCustomChannel(
      std::string(target),
      plaintext ? grpc::InsecureChannelCredentials() : grpc::SslCredentials(tls), arguments);
  return exporter;
}

absl::StatusOr<std::unique_ptr<sdk::trace::Sampler>> MakeSampler() {
  const std::string name = Variable("OTEL_TRACES_SAMPLER", "parentbased_always_on");
  std::string_view root = name;
  const bool by_parent = absl::ConsumePrefix(&root, "parentbased_");
  double ratio = 1;
  if (root == "always_off") {
    ratio = 0;
  } else if (root == "traceidratio") {
    const std::string argument = Variable("OTEL_TRACES_SAMPLER_ARG", "1");
    if (!absl::SimpleAtod(argument, &ratio) || !(0 <= ratio && ratio <= 1)) {
      return Unusable("OTEL_TRACES_SAMPLER_ARG", "a number from 0 to 1");
    }
  } else if (root != "always_on") {
    return Unusable("OTEL_TRACES_SAMPLER", "[parentbased_]always_on, always_off or traceidratio");
  }
  auto sampler = std::make_unique<sdk::trace::TraceIdRatioBasedSampler>(ratio);
  if (!by_parent) return sampler;
  return std::make_unique<sdk::trace::ParentBasedSampler>(std::move(sampler));
}

// Never freed, since the process ends with _Exit.
sdk::trace::TracerProvider* provider = nullptr;

absl::Status Start() {
  if (Variable("OTEL_TRACES_EXPORTER", "otlp") != "otlp") {
    return Unusable("OTEL_TRACES_EXPORTER", "otlp or none");
  }
  ATTNBIAS_ASSIGN_OR_RETURN(auto exporter, MakeExporter());
  ATTNBIAS_ASSIGN_OR_RETURN(auto sampler, MakeSampler());
  using sdk::common::internal_log::GlobalLogHandler;
  GlobalLogHandler::SetLogHandler(nostd::shared_ptr<SdkLog>(new SdkLog));
  GlobalLogHandler::SetLogLevel(sdk::common::internal_log::LogLevel::Warning);
  // Attributes from the environment take precedence.
  const auto resource = sdk::resource::Resource::Create({{"service.name", "attnbias-server"},
                                                         {"service.version", ATTNBIAS_VERSION}})
                            .Merge(sdk::resource::OTELResourceDetector().Detect());
  provider = new sdk::trace::TracerProvider(
      sdk::trace::BatchSpanProcessorFactory::Create(std::move(exporter),
                                                    sdk::trace::BatchSpanProcessorOptions()),
      resource, std::move(sampler));
  return absl::OkStatus();
}

// Extracts the client's trace context and injects the call's own context.
class Carrier final : public opentelemetry::context::propagation::TextMapCarrier {
 public:
  explicit Carrier(const TraceContext& client) : client_(client) {}
  std::string traceparent;

 private:
  nostd::string_view Get(nostd::string_view key) const noexcept override {
    return View(key == "traceparent"  ? client_.traceparent
                : key == "tracestate" ? client_.tracestate
                                      : "");
  }
  void Set(nostd::string_view key, nostd::string_view value) noexcept override {
    if (key == "traceparent") traceparent = std::string(value);
  }
  const TraceContext& client_;
};

// Sets attributes, which have the names that OpenTelemetry uses for RPCs or the prefix attnbias.
void Describe(const AccessLine& line, otel::Span& span) {
  const auto set = [&span](const std::string& key, std::string_view value) {
    if (!value.empty()) span.SetAttribute(key, View(value));
  };
  const std::string code = absl::StatusCodeToString(line.code);
  set("rpc.system.name", "grpc");
  set("rpc.response.status_code", code);
  // The peer is ipv4:HOST:PORT, ipv6:%5BHOST%5D:PORT or unix:PATH.
  const std::string peer = absl::StrReplaceAll(line.peer, {{"%5B", ""}, {"%5D", ""}});
  const size_t begin = peer.find(':') + 1;
  const size_t end = peer.starts_with("ip") ? peer.rfind(':') : peer.size();
  set("client.address", peer.substr(begin, end - begin));
  set("attnbias.identity", line.identity);
  set("attnbias.encoding", line.encoding);
  set("attnbias.fingerprint", line.fingerprint);
  set("attnbias.request_id", line.request_id);
  set("attnbias.error", line.error);
  span.SetAttribute("attnbias.bytes", line.bytes);
  for (size_t i = 0; i < kNumPhases; ++i) {
    const std::chrono::duration<double> seconds = line.phases[i];
    span.SetAttribute(absl::StrCat("attnbias.", kPhaseNames[i], "_seconds"), seconds.count());
  }
  // The codes that OpenTelemetry attributes to the server rather than to the client.
  if (absl::c_linear_search(
          std::initializer_list<absl::StatusCode>{
              absl::StatusCode::kUnknown, absl::StatusCode::kDeadlineExceeded,
              absl::StatusCode::kUnimplemented, absl::StatusCode::kInternal,
              absl::StatusCode::kUnavailable, absl::StatusCode::kDataLoss},
          line.code)) {
    set("error.type", code);
    span.SetStatus(otel::StatusCode::kError, line.error);
  }
}

std::string MakeSpan(Method method, const AccessLine& line, const TraceContext& client) {
  otel::propagation::HttpTraceContext propagator;
  Carrier carrier(client);
  opentelemetry::context::Context context;
  context = propagator.Extract(carrier, context);
  const auto start =
      std::chrono::system_clock::now() - (std::chrono::steady_clock::now() - line.start);
  const std::string name = PathOf(method);
  const auto span =
      provider->GetTracer("attnbias")
          ->StartSpan(name, {{"rpc.method", name}},
                      {.start_system_time = SystemTimestamp(start),
                       .start_steady_time = opentelemetry::common::SteadyTimestamp(line.start),
                       .parent = context,
                       .kind = otel::SpanKind::kServer});
  if (span->IsRecording()) {
    Describe(line, *span);
    for (const PhaseClock::Change& change : line.changes) {
      span->AddEvent(change.to ? View(kPhaseNames[static_cast<size_t>(*change.to)]) : "client",
                     SystemTimestamp(start + (change.at - line.start)));
    }
  }
  span->End({opentelemetry::common::SteadyTimestamp(line.start + line.duration)});
  propagator.Inject(carrier, otel::SetSpan(context, span));
  return carrier.traceparent;
}

void Flush(std::chrono::milliseconds patience) { provider->ForceFlush(patience); }

#else

absl::Status Start() {
  return absl::UnimplementedError("OTEL_* variables enable spans, which this build cannot export");
}

std::string MakeSpan(Method, const AccessLine&, const TraceContext&) { return ""; }

void Flush(std::chrono::milliseconds) {}

#endif  // ATTNBIAS_TRACING

}  // namespace

void StartTracing() {
  if (!IsEnabled()) return;
  const absl::Status status = Start();
  is_tracing = status.ok();
  if (is_tracing) return;
  LogWarning(absl::StrCat(status.message(), "; no spans are exported"));
}

bool IsTracing() { return is_tracing; }

std::string TraceCall(Method method, const AccessLine& line, const TraceContext& client) {
  if (is_tracing) return MakeSpan(method, line, client);
  const std::string text(client.traceparent);
  const bool has_form =
      text.size() == 55 && text.find_first_not_of("0123456789abcdef-") == text.npos;
  return has_form ? text : "";
}

void FlushSpans(std::chrono::milliseconds patience) {
  if (is_tracing) Flush(patience);
}

int64_t SpansDropped() { return spans_dropped; }

}  // namespace attnbias
