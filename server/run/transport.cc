// SPDX-License-Identifier: Apache-2.0
#include "server/run/transport.h"

#include <microhttpd.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "google/protobuf/message.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/server_interceptor.h"
#include "server/service/messages.h"

namespace attnbias {
namespace {

constexpr std::string_view kUnix = "unix:";
// The last byte of sun_path is NUL.
constexpr size_t kMaxPathBytes = sizeof(sockaddr_un::sun_path) - 1;

absl::Status Malformed(std::string_view text) {
  return Invalid("got '", std::string(text), "', want HOST:PORT with a port in [0, 65535]");
}

// Parses unix:PATH or, in gRPC's alternative spelling, unix:///PATH.
absl::StatusOr<ListenAddress> ParseUnix(std::string_view text) {
  std::string_view path = text.substr(kUnix.size());
  const bool has_authority = path.starts_with("//");
  if (has_authority) path.remove_prefix(2);
  if (path.empty() || (has_authority && path.front() != '/')) {
    return Invalid("got '", std::string(text), "', want unix:PATH or unix:///PATH");
  }
  if (path.size() > kMaxPathBytes) {
    return Invalid("got '", std::string(text), "', a path of ", path.size(),
                   " bytes, want at most ", kMaxPathBytes);
  }
  return ListenAddress{.path = std::string(path)};
}

constexpr char kTextFormat[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr unsigned kMaxConnections = 32;
// Bounds a connection's request and the headers of its response.
constexpr size_t kConnectionBytes = 16 << 10;
// Time after which an idle connection is closed.
constexpr unsigned kIdleSeconds = 5;

MHD_Result Answer(void* port, MHD_Connection* connection, const char* url, const char* method,
                  const char* /*version*/, const char* /*body*/, size_t* /*body_size*/,
                  void** /*request*/) {
  const bool get = method == std::string_view(MHD_HTTP_METHOD_GET) ||
                   method == std::string_view(MHD_HTTP_METHOD_HEAD);
  const HttpPages& pages = static_cast<const MetricsPort*>(port)->pages();
  const auto found = pages.find(std::string_view(url));
  HttpPage page = {.status = MHD_HTTP_NOT_FOUND};
  if (found != pages.end()) {
    page = get ? found->second() : HttpPage{.status = MHD_HTTP_METHOD_NOT_ALLOWED};
  }
  MHD_Response* const response =
      MHD_create_response_from_buffer(page.text.size(), page.text.data(), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, kTextFormat);
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
  const MHD_Result result = MHD_queue_response(connection, page.status, response);
  MHD_destroy_response(response);
  return result;
}

}  // namespace

bool ListenAddress::is_local() const {
  return is_file() || host == "localhost" || host == "::1" || host.starts_with("127.");
}

absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text) {
  return text.starts_with(kUnix) ? ParseUnix(text) : ParseHostPort(text);
}

absl::StatusOr<ListenAddress> ParseHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Malformed(text);
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!bracketed && host.find(':') != std::string_view::npos) {
    return Malformed(text);
  }
  ListenAddress result = {.host = std::string(host.empty() ? "::" : host)};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, result.port);
  if (error != std::errc() || rest != end) return Malformed(text);
  return result;
}

std::string ToString(const ListenAddress& address) {
  if (address.is_file()) return absl::StrCat("unix:", address.path);
  const bool ipv6 = address.host.find(':') != std::string::npos;
  return ipv6 ? absl::StrCat("[", address.host, "]:", address.port)
              : absl::StrCat(address.host, ":", address.port);
}

namespace {

// Returns 0 or the errno from connect().
int Connect(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, kMaxPathBytes);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int error =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
  close(fd);
  return error;
}

// Returns UNAVAILABLE, with the reason, if a server cannot create its socket at `path`. gRPC would
// report no reason, and would remove the socket of a running server.
absl::Status CheckSocketFile(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  if (!folder.empty() && !fs::is_directory(folder, error)) {
    return absl::UnavailableError(absl::StrCat("no such folder: '", folder.string(), "'"));
  }
  const fs::file_status file = fs::symlink_status(path, error);
  if (!fs::exists(file)) return absl::OkStatus();
  if (!fs::is_socket(file)) {
    return absl::UnavailableError("the path exists and is not a socket");
  }
  switch (const int connected = Connect(path)) {
    case ECONNREFUSED:  // left behind by a server that has ended
      return absl::OkStatus();
    case 0:
    case EAGAIN:  // its queue is full
      return absl::UnavailableError("another server is listening there");
    default:
      return absl::UnavailableError(std::strerror(connected));
  }
}

// Maximum total size of the incomplete requests that gRPC holds. Above this, it ends some of those
// calls with RESOURCE_EXHAUSTED.
constexpr size_t kTransportBytes = size_t{64} << 20;

// Threads for reflection: one per concurrent stream, and one that waits for streams.
constexpr int kReflectionThreads = 16;
constexpr size_t kMaxReflectionBytes = 512;

// Removes reflection, which gRPC adds to every server in a program that links it.
class ReflectionRemoval final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* /*args*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins,
                  [](const auto& plugin) { return plugin->name() == "proto_server_reflection"; });
  }
};

// Clears ServerReflectionRequests that are longer than any symbol or file name, since responses
// repeat them.
class ReflectionBound final : public grpc::experimental::Interceptor {
 public:
  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    using grpc::experimental::InterceptionHookPoints;
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE) &&
        batch->GetRecvMessage() != nullptr) {
      auto& request = *static_cast<google::protobuf::Message*>(batch->GetRecvMessage());
      if (request.ByteSizeLong() > kMaxReflectionBytes) {
        // Unlike Clear, this frees the request's strings.
        const std::unique_ptr<google::protobuf::Message> empty(request.New());
        request.GetReflection()->Swap(&request, empty.get());
      }
    }
    batch->Proceed();
  }
};

class ReflectionBoundFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    constexpr std::string_view kReflection = "/grpc.reflection.";
    return std::string_view(info->method()).starts_with(kReflection) ? new ReflectionBound
                                                                     : nullptr;
  }
};

absl::Status CannotListen(const ListenAddress& address, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("cannot listen on ", ToString(address), ": ", why));
}

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

void Configure(const TransportOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  // With SO_REUSEPORT, a second server on the port would silently receive some connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // gRPC checks a message's size only after decompression: 0.5 MB can become more than 0.5 GB.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_time));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             Milliseconds(options.keepalive_timeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Clients ping every 10 s. gRPC closes connections that ping more than twice that often.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  // By default, gRPC waits indefinitely for the calls on a connection of this age to end.
  if (options.max_connection_age > absl::ZeroDuration()) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                               Milliseconds(options.max_connection_age));
  }
  // Only reflection uses these threads, one per stream.
  builder.SetResourceQuota(
      grpc::ResourceQuota().SetMaxThreads(kReflectionThreads).Resize(kTransportBytes));
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
  if (!options.reflection) {
    builder.SetOption(std::make_unique<ReflectionRemoval>());
    return;
  }
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<ReflectionBoundFactory>());
  builder.experimental().SetInterceptorCreators(std::move(factories));
}

}  // namespace

absl::StatusOr<std::unique_ptr<grpc::Server>> ListenOn(
    std::vector<ListenAddress>& addresses, const TransportOptions& options,
    const std::shared_ptr<grpc::ServerCredentials>& credentials,
    const std::vector<grpc::Service*>& services) {
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  Configure(options, builder);
  for (grpc::Service* const service : services) {
    builder.RegisterService(service);
  }
  std::vector<int> ports(addresses.size());
  for (size_t i = 0; i < addresses.size(); ++i) {
    const ListenAddress& address = addresses[i];
    if (address.is_file()) {
      const absl::Status file = CheckSocketFile(address.path);
      if (!file.ok()) return CannotListen(address, file.message());
    }
    builder.AddListeningPort(ToString(address),
                             address.is_file() ? grpc::InsecureServerCredentials() : credentials,
                             &ports[i]);
  }
  // No other thread creates files yet.
  const mode_t mask = umask(0777 & ~options.socket_mode);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  umask(mask);
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (ports[i] == 0) return CannotListen(addresses[i], "see the log above");
    if (!addresses[i].is_file()) addresses[i].port = ports[i];
  }
  return server;
}

absl::StatusOr<std::unique_ptr<MetricsPort>> MetricsPort::Listen(const std::string& address,
                                                                 const HttpPages& pages) {
  const auto failed = [&address](absl::string_view why) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics on ", address, ": ", why));
  };
  ATTNBIAS_ASSIGN_OR_RETURN(ListenAddress parsed, ParseHostPort(address));
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error =
          getaddrinfo(parsed.host.c_str(), std::to_string(parsed.port).c_str(), &hints, &found);
      error != 0) {
    return failed(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> resolved(found, &freeaddrinfo);
  std::unique_ptr<MetricsPort> port(new MetricsPort(pages));
  for (const addrinfo* at = found; at != nullptr && port->daemon_ == nullptr; at = at->ai_next) {
    // Makes [::] also serve IPv4.
    const unsigned family = at->ai_family == AF_INET6 ? MHD_USE_DUAL_STACK : 0;
    port->daemon_ =
        MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | family, 0, nullptr, nullptr, &Answer,
                         port.get(), MHD_OPTION_SOCK_ADDR, at->ai_addr, MHD_OPTION_CONNECTION_LIMIT,
                         kMaxConnections, MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes,
                         MHD_OPTION_CONNECTION_TIMEOUT, kIdleSeconds, MHD_OPTION_END);
  }
  if (port->daemon_ == nullptr && parsed.host == "::") {
    // The machine has no IPv6.
    parsed.host = "0.0.0.0";
    return Listen(ToString(parsed), pages);
  }
  if (port->daemon_ == nullptr) return failed(std::strerror(errno));
  parsed.port = MHD_get_daemon_info(port->daemon_, MHD_DAEMON_INFO_BIND_PORT)->port;
  port->address_ = ToString(parsed);
  return port;
}

MetricsPort::~MetricsPort() {
  if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
}

}  // namespace attnbias
