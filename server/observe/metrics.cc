// SPDX-License-Identifier: Apache-2.0
#include "server/observe/metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "attnbias/v1/service.pb.h"
#include "google/protobuf/descriptor.h"
#include "inference/inference.pb.h"
#include "prometheus/gauge.h"
#include "prometheus/text_serializer.h"

namespace attnbias {
namespace {

// Names of the status codes, indexed by number. Dashboards expect go-grpc-middleware's names.
constexpr std::string_view kCodeNames[] = {
    "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
    "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
    "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
    "DataLoss", "Unauthenticated"};
static_assert(std::size(kCodeNames) == kNumStatusCodes);

// Ranges from 50 us, the cost of a minimal call, to one minute, for streams.
const prometheus::Histogram::BucketBoundaries kSecondsBuckets = {
    0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02,
    0.05,    0.1,    0.2,    0.5,    1,     2,     5,     10,   60};

const google::protobuf::MethodDescriptor& DescriptorOf(Method method) {
  // Looked up only once, since every call needs a method's name.
  static const auto& own =
      *v1::GetTensorRequest::descriptor()->file()->FindServiceByName("AttentionBiasService");
  static const auto& inference =
      *inference::ModelInferRequest::descriptor()->file()->FindServiceByName(
          "GRPCInferenceService");
  const int index = static_cast<int>(method);
  return index < own.method_count() ? *own.method(index)
                                    : *inference.method(index - own.method_count());
}

prometheus::Labels LabelsOf(const google::protobuf::MethodDescriptor& method) {
  const char* const type = method.client_streaming()   ? "bidi_stream"
                           : method.server_streaming() ? "server_stream"
                                                       : "unary";
  return {{"grpc_type", type},
          {"grpc_service", std::string(method.service()->full_name())},
          {"grpc_method", std::string(method.name())}};
}

double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double pages = 0;
  statm >> pages >> pages;  // the second number
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double OpenDescriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator begin("/proc/self/fd", error);
  // Excludes the descriptor used to read the folder.
  return error ? 0 : static_cast<double>(std::distance(begin, {}) - 1);
}

double MostDescriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<double>(limit.rlim_cur);
}

}  // namespace

std::string_view NameOf(Method method) { return DescriptorOf(method).name(); }

std::string PathOf(Method method) {
  const auto& descriptor = DescriptorOf(method);
  return absl::StrCat(std::string(descriptor.service()->full_name()), "/",
                      std::string(descriptor.name()));
}

Metrics::Metrics() {
  AddGauge("process_resident_memory_bytes", "Resident memory", ResidentBytes);
  AddGauge("process_open_fds", "Open file descriptors", OpenDescriptors);
  AddGauge("process_max_fds", "Maximum number of open file descriptors", MostDescriptors);
  AddGauge("process_start_time_seconds", "Start time, in seconds since the Unix epoch",
           [start = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch())] { return start; });
  RegisterMethods();
  auto& rejected = AddCounters("attnbias_rejected_total", "Calls rejected, by reason");
  for (const std::string_view reason : kRejectionNames) {
    rejections_.push_back(&rejected.Add({{"reason", std::string(reason)}}));
  }
  prometheus::BuildGauge()
      .Name("attnbias_build_info")
      .Help("Always 1; the version is in the label")
      .Register(registry_)
      .Add({{"version", ATTNBIAS_VERSION}})
      .Set(1);
}

prometheus::Family<prometheus::Counter>& Metrics::AddCounters(const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry_);
}

void Metrics::RegisterMethods() {
  auto& started = AddCounters("grpc_server_started_total", "Calls started");
  auto& handled = AddCounters("grpc_server_handled_total", "Calls ended, by status code");
  auto& sent = AddCounters("grpc_server_msg_sent_total", "Messages sent");
  auto& seconds = prometheus::BuildHistogram()
                      .Name("grpc_server_handling_seconds")
                      .Help("Duration of calls")
                      .Register(registry_);
  auto& phase_seconds = prometheus::BuildHistogram()
                            .Name("attnbias_phase_seconds")
                            .Help("Time that calls spent in each phase")
                            .Register(registry_);
  for (int i = 0; i < kNumMethods; ++i) {
    const auto method = static_cast<Method>(i);
    for (size_t phase = 0; phase < kNumPhases; ++phase) {
      methods_[i].phases[phase] = &phase_seconds.Add({{"grpc_method", std::string(NameOf(method))},
                                                      {"phase", std::string(kPhaseNames[phase])}},
                                                     kSecondsBuckets);
    }
    prometheus::Labels labels = LabelsOf(DescriptorOf(method));
    methods_[i].started = &started.Add(labels);
    methods_[i].messages_sent = &sent.Add(labels);
    methods_[i].seconds = &seconds.Add(labels, kSecondsBuckets);
    for (int code = 0; code < kNumStatusCodes; ++code) {
      labels["grpc_code"] = std::string(kCodeNames[code]);
      methods_[i].handled[code] = &handled.Add(labels);
    }
  }
}

std::string Metrics::Text() const {
  for (const auto& [gauge, value] : asked_gauges_) gauge->Set(value());
  const double cpu_seconds = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  cpu_seconds_->Increment(cpu_seconds - cpu_seconds_->Value());
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

void Metrics::AddGauge(const std::string& name, const std::string& help,
                       std::function<double()> value) {
  auto& family = prometheus::BuildGauge().Name(name).Help(help).Register(registry_);
  asked_gauges_.emplace_back(&family.Add({}), std::move(value));
}

void Metrics::CallHandled(Method method, absl::StatusCode code, std::chrono::nanoseconds time,
                          const PhaseTimes& phases) {
  const auto seconds = [](std::chrono::duration<double> duration) { return duration.count(); };
  const PerMethod& counters = methods_[static_cast<int>(method)];
  counters.handled[static_cast<int>(code)]->Increment();
  counters.seconds->Observe(seconds(time));
  for (size_t phase = 0; phase < kNumPhases; ++phase) {
    if (phases[phase].count() > 0) counters.phases[phase]->Observe(seconds(phases[phase]));
  }
}

void Metrics::MessageSent(Method method, int64_t bytes) {
  methods_[static_cast<int>(method)].messages_sent->Increment();
  if (method == Method::kStreamTensor) stream_bytes_->Increment(static_cast<double>(bytes));
}

}  // namespace attnbias
