// SPDX-License-Identifier: Apache-2.0
#include "server/run/server.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/engine/plan.h"
#include "core/kernel/cuda/accelerator.h"
#include "core/kernel/kernel_set.h"
#include "core/mount/registry.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/client_context.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/security/server_credentials.h"
#include "proto/grpc_versions.h"
#include "server/observe/logging.h"
#include "server/observe/tracing.h"
#include "server/service/messages.h"
#include "server/service/precompute.h"

namespace attnbias {
namespace {

constexpr std::chrono::milliseconds kDrainPoll{5};
// Time for sending the statuses of aborted calls.
constexpr std::chrono::milliseconds kLastWords{100};
// Time for computations to end after the grace period.
constexpr std::chrono::seconds kLastPieces{2};

// Interval between checks for cancelled calls.
constexpr std::chrono::milliseconds kCancelledPeriod(20);
constexpr std::chrono::milliseconds kMinTablesPeriod(100);
constexpr std::chrono::milliseconds kAccessPeriod(1000);
// Concurrent calls on a probe's connection; probes make one call at a time.
constexpr int kMaxProbeStreams = 8;
constexpr std::chrono::milliseconds kNever = std::chrono::hours(24 * 36525);

std::chrono::milliseconds InMilliseconds(absl::Duration duration) {
  return absl::ToChronoMilliseconds(duration);
}

}  // namespace

// Computes with the CPU's kernels and, if one exists and is enabled, a CUDA device.
class Server::Backend final : public AcceleratorObserver {
 public:
  // Returns INVALID_ARGUMENT, naming the flag, for kernels that this CPU does not support. A
  // missing device is only logged. `metrics` outlives the result.
  static absl::StatusOr<std::unique_ptr<Backend>> Create(const ServerConfig& config,
                                                         Metrics* metrics) {
    const KernelSet* const kernels = FindKernelSet(config.cpu_isa);
    if (kernels == nullptr) {
      return Invalid(
          "--cpu-isa: got '", config.cpu_isa, "', want an instruction set that this CPU supports: ",
          absl::StrJoin(SupportedKernelSets(), ", ",
                        [](std::string* out, const KernelSet* set) { out->append(set->name); }));
    }
    auto backend = std::make_unique<Backend>(*kernels, metrics);
    backend->OpenDevice(config);
    return backend;
  }

  Backend(const KernelSet& kernels, Metrics* metrics) : kernels_(kernels), metrics_(*metrics) {}

  const KernelSet& kernels() const { return kernels_; }
  // Available backends, the one in use first.
  std::vector<std::string> names() const {
    if (accelerator_ == nullptr) return {"cpu"};
    if (uses_device_) return {"cuda", "cpu"};
    return {"cpu", "cuda"};
  }
  bool uses_device() const { return uses_device_; }

  void OnMade(int64_t bytes) override { metrics_.MadeByCuda(bytes); }
  void OnFallback(const absl::Status& why, bool for_good) override {
    metrics_.CudaFellBack();
    if (for_good) uses_device_ = false;
    LogWarning(
        absl::StrCat(why.message(), for_good ? "; computing on the CPU from now on"
                                             : "; work that does not fit is computed on the CPU"));
  }

 private:
  void OpenDevice(const ServerConfig& config) {
    const bool is_auto = config.backend == "auto";
    // Results are sent over a network. Whether a device is worth the cost of its transfers must be
    // measured (docs/cuda.md), so it is not used without --cuda-min-bytes.
    if (config.backend == "cpu" || (is_auto && config.cuda_min_bytes == 0)) {
      return;
    }
    absl::StatusOr<std::unique_ptr<Device>> device = OpenCudaDevice();
    if (!device.ok()) {
      LogWarning(absl::StrCat("--backend ", config.backend,
                              ": computing on the CPU only: ", device.status().message()));
      return;
    }
    LogInfo(absl::StrCat("CUDA device: ", (*device)->description()));
    accelerator_ = std::make_unique<Accelerator>(
        *std::move(device),
        AcceleratorOptions{.min_bytes = config.cuda_min_bytes, .replace_slices = !is_auto}, this);
    kernels_.accelerator = accelerator_.get();
    uses_device_ = true;
  }

  // The selected kernels, with the device as their accelerator.
  KernelSet kernels_;
  Metrics& metrics_;
  std::unique_ptr<Accelerator> accelerator_;
  std::atomic<bool> uses_device_{false};
};

absl::StatusOr<std::unique_ptr<Server>> Server::Create(const ServerConfig& config) {
  auto metrics = std::make_unique<Metrics>();
  ATTNBIAS_ASSIGN_OR_RETURN(auto backend, Backend::Create(config, metrics.get()));
  ATTNBIAS_ASSIGN_OR_RETURN(auto access, Access::Load(config.access));
  std::unique_ptr<Server> server(
      new Server(config, std::move(metrics), std::move(backend), std::move(access)));
  ATTNBIAS_RETURN_IF_ERROR(server->table_mounts_.Load());
  if (!config.precompute.empty()) {
    absl::StatusOr<std::vector<PlanPtr>> plans =
        ReadPrecomputeFile(config.precompute, server->engine_, *server->server_state_.tables.Get());
    if (!plans.ok()) {
      return Invalid("--precompute: ", plans.status().message());
    }
    server->precompute_ = *std::move(plans);
  }
  return server;
}

Server::Server(const ServerConfig& config, std::unique_ptr<Metrics> metrics,
               std::unique_ptr<Backend> backend, std::unique_ptr<Access> access)
    : config_(config),
      metrics_(std::move(metrics)),
      backend_(std::move(backend)),
      access_(std::move(access)),
      pool_(config.threads),
      engine_({.memory_budget_bytes = config.memory_budget_bytes,
               .max_tensor_bytes = config.max_tensor_bytes},
              backend_->kernels(), &pool_, metrics_.get()),
      watchdog_(InMilliseconds(config.write_stall_timeout), InMilliseconds(config.idle_timeout),
                &engine_.budget(), &timer_),
      cancelled_task_(&timer_, kCancelledPeriod,
                      [this] {
                        engine_.cache().DropCancelled();
                        pool_.ExpediteCancelled();
                      }),
      server_state_{engine_, pool_, *metrics_, watchdog_, *access_},
      // During a reload both the old and the new tables exist.
      table_mounts_(config.tables, config.memory_budget_bytes / 2, &server_state_.tables,
                    [this](int64_t bytes) { return HoldTable(bytes); }),
      service_(MakeTensorService(&server_state_, [this] { return MakeInfo(); })),
      inference_service_(MakeInferenceService(&server_state_, [this] { return health_.ready(); })) {
}

absl::StatusOr<std::shared_ptr<const void>> Server::HoldTable(int64_t bytes) {
  ATTNBIAS_ASSIGN_OR_RETURN(ByteBudget::Reservation memory, engine_.SetAside(bytes));
  return std::make_shared<const ByteBudget::Reservation>(std::move(memory));
}

Server::~Server() {
  tables_task_.reset();
  access_task_.reset();
  keep_warm_.reset();
  health_.FinishWatchers();
  const auto now = std::chrono::system_clock::now();
  if (probe_server_) probe_server_->Shutdown(now);
  if (grpc_server_) grpc_server_->Shutdown(now);
  // The metrics port reads gauges, and these read members that are destroyed later.
  metrics_port_.reset();
  // The engine's tasks must finish before the engine is destroyed.
  pool_.Shutdown();
}

absl::Status Server::Start() {
  AddGauges();
  const HttpPages pages = {
      {"/metrics", [this] { return HttpPage{.text = metrics_->Text()}; }},
      {"/healthz", [] { return HttpPage{.text = "ok\n"}; }},
      {"/readyz",
       [this] {
         return health_.ready() ? HttpPage{.text = "ok\n"}
                                : HttpPage{.status = 503, .text = "not ready\n"};
       }},
      {"/version", [] { return HttpPage{.text = ATTNBIAS_VERSION "\n"}; }},
  };
  ATTNBIAS_ASSIGN_OR_RETURN(metrics_port_, MetricsPort::Listen(config_.metrics_listen, pages));
  ATTNBIAS_RETURN_IF_ERROR(StartGrpc());
  ATTNBIAS_RETURN_IF_ERROR(StartProbes());
  KeepWarm();
  if (!config_.access.empty()) {
    access_task_.emplace(
        &timer_, kAccessPeriod, [this] { access_->Refresh(); }, Timer::On::kOwnThread);
  }
  if (!config_.tables.empty()) {
    const bool watched = config_.tables_poll > absl::ZeroDuration();
    tables_task_.emplace(
        &timer_, watched ? std::max(kMinTablesPeriod, InMilliseconds(config_.tables_poll)) : kNever,
        [this] { table_mounts_.Refresh(); }, Timer::On::kOwnThread);
  }
  return absl::OkStatus();
}

void Server::AddGauges() {
  const auto add = [this](const std::string& name, const std::string& help, auto value) {
    metrics_->AddGauge(name, help, [value] { return static_cast<double>(value()); });
  };
  add("attnbias_memory_used_bytes", "Memory used by tensors cached, in flight or being computed",
      [this] { return engine_.budget().used(); });
  add("attnbias_memory_budget_bytes",
      "Memory available for tensors: --memory-budget minus the mounted tables",
      [this] { return engine_.budget().limit(); });
  add("attnbias_cache_bytes", "Memory used by cached tensors",
      [this] { return engine_.cached_bytes(); });
  add("attnbias_queued_tasks", "Tasks waiting for a thread", [this] { return pool_.queued(); });
  add("attnbias_oldest_task_seconds", "How long the oldest queued task has been waiting",
      [this] { return std::chrono::duration<double>(pool_.oldest_wait()).count(); });
  add("attnbias_mounted_tables", "Learned tables mounted",
      [this] { return server_state_.tables.Get()->tables().size(); });
  add("attnbias_tables_reload_failed", "1 while the tables on disk cannot be mounted",
      [this] { return table_mounts_.failed(); });
  if (access_->certificates() != nullptr) {
    add("attnbias_tls_certificate_expiry_seconds",
        "Expiry of the certificate used for new connections, in seconds since the Unix epoch",
        [this] { return absl::ToUnixSeconds(access_->certificates()->expiry); });
    add("attnbias_tls_reload_failed", "1 while the certificates on disk cannot be used",
        [this] { return access_->tls_failed(); });
  }
  if (access_->asks_for_names()) {
    add("attnbias_access_reload_failed", "1 while the tokens or the policy on disk cannot be used",
        [this] { return access_->files_failed(); });
  }
  add("attnbias_cuda_in_use", "1 while a CUDA device is in use",
      [this] { return backend_->uses_device(); });
  add("attnbias_tls_handshake_failures", "TLS handshakes that failed",
      [] { return FailedHandshakes(); });
  add("attnbias_log_lines_dropped", "Log lines dropped because standard error was not ready",
      [] { return LogLinesDropped(); });
  add("attnbias_spans_dropped", "Spans that did not reach a collector",
      [] { return SpansDropped(); });
  add("attnbias_ready", "1 while readiness is SERVING", [this] { return health_.ready(); });
  add("attnbias_draining", "1 while the server is shutting down",
      [this] { return drains_.load(); });
}

absl::Status Server::StartGrpc() {
  for (const std::string& text : config_.listen) {
    ATTNBIAS_ASSIGN_OR_RETURN(addresses_.emplace_back(), ParseListenAddress(text));
  }
  std::vector<grpc::Service*> services = {service_.get(), &health_};
  if (config_.oip) services.push_back(inference_service_.get());
  credentials_ = access_->MakeCredentials();
  ATTNBIAS_ASSIGN_OR_RETURN(grpc_server_,
                            ListenOn(addresses_, config_.transport, credentials_, services));
  WarnOfExposure();
  return absl::OkStatus();
}

void Server::WarnOfExposure() const {
  if (GrpcIsMaintained() || access_->requires_certificate()) return;
  const auto found =
      std::ranges::find_if(addresses_, [](const auto& address) { return !address.is_local(); });
  if (found == addresses_.end()) return;
  LogWarning(absl::StrCat("gRPC ", grpc::Version(), " has known vulnerabilities and no longer",
                          " receives fixes; any client that reaches ", ToString(*found),
                          " can exploit them: listen on loopback, require certificates",
                          " (--tls-client-ca without --tokens), or deploy the image behind Envoy;",
                          " see SECURITY.md"));
}

// Serves only health, in plaintext, since Kubernetes probes do not support TLS.
absl::Status Server::StartProbes() {
  if (config_.probe_listen.empty()) return absl::OkStatus();
  ATTNBIAS_ASSIGN_OR_RETURN(probe_addresses_.emplace_back(), ParseHostPort(config_.probe_listen));
  ATTNBIAS_ASSIGN_OR_RETURN(
      probe_server_,
      ListenOn(probe_addresses_, {.max_concurrent_streams = kMaxProbeStreams, .reflection = false},
               grpc::InsecureServerCredentials(), {&health_}));
  return absl::OkStatus();
}

std::string Server::address() const {
  return absl::StrJoin(addresses_, ", ", [](std::string* out, const ListenAddress& address) {
    absl::StrAppend(out, ToString(address));
  });
}

std::string Server::probe_address() const { return ToString(probe_addresses_.front()); }

// After about a second without work, a callback thread in gRPC 1.51 sleeps for 100 ms, and a lone
// request then waits for tens of milliseconds. To keep the thread awake, the server calls itself
// every 400 ms, which costs 1.5 ms of CPU time per second.
void Server::KeepWarm() {
  const std::shared_ptr<grpc::health::v1::Health::Stub> health =
      grpc::health::v1::Health::NewStub(grpc_server_->InProcessChannel(grpc::ChannelArguments()));
  struct Call {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    grpc::health::v1::HealthCheckResponse response;
  };
  keep_warm_.emplace(&timer_, std::chrono::milliseconds(400), [health] {
    const auto call = std::make_shared<Call>();
    call->context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
    // Only the traffic matters, not the response.
    health->async()->Check(&call->context, &call->request, &call->response,
                           [call](const grpc::Status&) {});
  });
}

std::string Server::Summary() const {
  return absl::StrCat("attnbias-server ", ATTNBIAS_VERSION,
                      " cpu-isa=", std::string(backend_->kernels().name),
                      " threads=", config_.threads, " memory-budget=", config_.memory_budget_bytes,
                      " backend=", backend_->names().front(), " grpc=", grpc::Version());
}

v1::GetServerInfoResponse Server::MakeInfo() const {
  v1::GetServerInfoResponse info;
  info.set_version(ATTNBIAS_VERSION);
  for (const std::string& name : backend_->names()) info.add_backends(name);
  const std::string_view kernels = backend_->kernels().name;
  info.add_instruction_sets(std::string(kernels));
  for (const KernelSet* other : SupportedKernelSets()) {
    if (other->name != kernels) {
      info.add_instruction_sets(std::string(other->name));
    }
  }
  const auto* encodings = v1::TensorSpec::descriptor()->FindOneofByName("encoding");
  for (int i = 0; i < encodings->field_count(); ++i) {
    info.add_encodings(encodings->field(i)->name());
  }
  const auto* types = v1::DataType_descriptor();
  for (int i = 0; i < types->value_count(); ++i) {
    const auto type = static_cast<v1::DataType>(types->value(i)->number());
    if (type != v1::DATA_TYPE_UNSPECIFIED) info.add_data_types(type);
  }
  v1::ServerLimits& limits = *info.mutable_limits();
  limits.set_max_unary_bytes(kMaxUnaryBytes);
  limits.set_max_tensor_bytes(config_.max_tensor_bytes);
  limits.set_max_chunk_bytes(kMaxChunkBytes);
  limits.set_max_inline_table_bytes(kMaxInlineTableBytes);
  limits.set_max_position_list_length(kMaxPositionListLength);
  limits.set_memory_budget_bytes(config_.memory_budget_bytes);
  return info;
}

absl::Status Server::BecomeReady(const CallerPtr& caller) {
  ATTNBIAS_RETURN_IF_ERROR(Precompute(precompute_, &engine_, caller));
  LogInfo(absl::StrCat("ready, ", precompute_.size(), " specs precomputed, ",
                       server_state_.tables.Get()->tables().size(), " tables mounted"));
  precompute_.clear();  // also releases the tables that they hold
  health_.SetServing(true);
  return absl::OkStatus();
}

void Server::Reload() {
  if (access_task_.has_value()) access_task_->RunSoon();
  if (!tables_task_.has_value()) return;
  table_mounts_.Invalidate();
  tables_task_->RunSoon();
}

void Server::Drain() {
  LogInfo("draining");
  drains_ = true;
  health_.SetServing(false);
  std::this_thread::sleep_for(InMilliseconds(config_.shutdown_delay));
  server_state_.draining = true;
  watchdog_.CloseIdle(Draining());
  keep_warm_.reset();
  health_.FinishWatchers();
  const auto deadline = std::chrono::system_clock::now() + InMilliseconds(config_.drain_grace);
  // After sending GOAWAY, gRPC closes a connection as soon as its last call has left the process.
  // If a window update from the client then reaches the closed socket, the system drops data that
  // the client has not read. GOAWAY is therefore sent only after the calls have ended: gRPC then
  // waits for the client's acknowledgement, which follows all data.
  while (watchdog_.open_calls() > 0 && std::chrono::system_clock::now() < deadline) {
    std::this_thread::sleep_for(kDrainPoll);
  }
  // Cancelled calls may finish the piece of work in progress, but only within a time limit.
  last_resort_.emplace(&timer_, InMilliseconds(config_.drain_grace) + kLastPieces, [] {
    LogError("computations are still running after the grace period; exiting");
    std::_Exit(0);
  });
  watchdog_.CloseAll(absl::UnavailableError("the server is stopping; try another"));
  grpc_server_->Shutdown(std::max(deadline, std::chrono::system_clock::now() + kLastWords));
  LogInfo("drained");
}

}  // namespace attnbias
