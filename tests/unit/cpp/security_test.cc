// SPDX-License-Identifier: Apache-2.0
// Tests the C++ client's TLS, certificates and tokens against servers that require them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "attnbias/client.h"
#include "tests/unit/cpp/certificates.h"
#include "tests/unit/cpp/fake_server.h"
#include "tests/unit/cpp/security_folder.h"

namespace attnbias::security_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Returns credentials for a server that has a certificate and, if `clients` is given, requires
// client certificates signed by those authorities.
std::shared_ptr<grpc::ServerCredentials> Tls(const Identity& identity,
                                             const std::string& clients = "") {
  grpc::SslServerCredentialsOptions options(
      clients.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                      : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = clients;
  options.pem_key_cert_pairs.push_back(
      {.private_key = identity.key, .cert_chain = identity.certificate});
  return grpc::SslServerCredentials(options);
}

class SecurityTest : public ::testing::Test, protected SecurityFolder {
 protected:
  SecurityTest() {
    const Identity trainer = clients_.Sign("trainer");
    for (const auto& [name, text] :
         std::map<std::string, std::string>{{"ca.pem", authority_.pem()},
                                            {"cert.pem", trainer.certificate},
                                            {"key.pem", trainer.key},
                                            {"token", "first\n"},
                                            {"text", "no PEM"}}) {
      Replace(name, text);
    }
  }

  // Replaces a file atomically, as certificate renewals do.
  void Replace(const std::string& name, const std::string& text) const {
    std::ofstream(Path("new"), std::ios::binary) << text;
    std::filesystem::rename(Path("new"), Path(name));
  }

  TlsOptions Trusting() const { return {.ca_file = Path("ca.pem")}; }
  TlsOptions AsTrainer() const {
    return {.ca_file = Path("ca.pem"), .cert_file = Path("cert.pem"), .key_file = Path("key.pem")};
  }

  // Makes a client that waits long enough even on a busy machine.
  static Client Make(ClientOptions options) {
    options.timeout = absl::Seconds(60);
    return *Client::Create(options);
  }

  // Returns the error from a call without retries.
  static std::string Failure(ClientOptions options) {
    options.max_attempts = 1;
    options.timeout = absl::Seconds(20);
    const absl::Status status = Client::Create(options).value().ServerInfo().status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }

  const Authority authority_{"authority"};
  const Authority clients_{"authority of clients"};
  const Authority other_{"other"};
  const Identity server_identity_ = authority_.Sign("server");
};

// Makes one call of each kind.
void CallAll(FakeServer& server, const Client& client) {
  const std::string payload = MakePayload(5000);
  server.Then(
      [=](const FakeStream& stream) { return stream.SendAll(payload, MakeHeader(payload, "f")); });
  server.ThenDescribe([=](v1::DescribeTensorResponse* response) {
    *response->mutable_header() = MakeHeader(payload, "f");
    return grpc::Status::OK;
  });
  EXPECT_EQ(client.Get({}).status(), absl::OkStatus());
  EXPECT_EQ(client.Describe({}).status(), absl::OkStatus());
  EXPECT_EQ(client.ServerInfo().status(), absl::OkStatus());
  EXPECT_EQ(client.ListTables().status(), absl::OkStatus());
  EXPECT_EQ(*client.CheckHealth(""), Health::kServing);
}

TEST_F(SecurityTest, UsesAuthorityAndCertificateForAllCalls) {
  FakeServer server(Tls(server_identity_, clients_.pem()));
  CallAll(server, Make({.target = server.target(), .tls = AsTrainer()}));
  EXPECT_THAT(
      server.callers(),
      AllOf(SizeIs(7), Each(Field("certificate_name", &Caller::certificate_name, "trainer"))));
}

// The only test that uses the system's authorities, since gRPC reads them once per process.
TEST_F(SecurityTest, UsesSystemAuthoritiesByDefault) {
  setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", Path("ca.pem").c_str(), 1);
  FakeServer server(Tls(server_identity_));
  const Client client = Make({.target = server.target(), .tls = TlsOptions()});
  EXPECT_EQ(client.ServerInfo().status(), absl::OkStatus());
  unsetenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH");
}

TEST_F(SecurityTest, ServerNameCanBeOverridden) {
  FakeServer server(Tls(authority_.Sign("server", "DNS:attnbias.example")));
  TlsOptions tls = Trusting();
  EXPECT_THAT(Failure({.target = server.target(), .tls = tls}),
              StartsWith(server.target() + " has a certificate for another name: connect using one "
                                           "of its names, or set tls.server_name to one ("));
  tls.server_name = "attnbias.example";
  const Client client = Make({.target = server.target(), .tls = tls});
  EXPECT_EQ(client.ServerInfo().status(), absl::OkStatus());
  setenv("ATTNBIAS_CLIENT_TLS_CA", Path("ca.pem").c_str(), 1);
  setenv("ATTNBIAS_CLIENT_TLS_SERVER_NAME", "attnbias.example", 1);
  EXPECT_EQ(Make({.target = server.target()}).ServerInfo().status(), absl::OkStatus());
}

TEST_F(SecurityTest, EnvironmentSuppliesMissingOptions) {
  FakeServer server(Tls(server_identity_, clients_.pem()));
  setenv("ATTNBIAS_CLIENT_TLS_CA", Path("ca.pem").c_str(), 1);
  setenv("ATTNBIAS_CLIENT_TLS_CERT", Path("cert.pem").c_str(), 1);
  setenv("ATTNBIAS_CLIENT_TLS_KEY", Path("key.pem").c_str(), 1);
  setenv("ATTNBIAS_CLIENT_TOKEN", "abc", 1);
  const auto authorization = [&](const ClientOptions& options) {
    EXPECT_EQ(Make(options).ServerInfo().status(), absl::OkStatus());
    return server.callers().back().authorization;
  };
  EXPECT_EQ(authorization({.target = server.target()}), "Bearer abc");
  setenv("ATTNBIAS_CLIENT_TOKEN_FILE", Path("token").c_str(), 1);
  EXPECT_EQ(authorization({.target = server.target()}), "Bearer first");
  EXPECT_EQ(authorization({.target = server.target(), .token = ""}), "");
  EXPECT_EQ(authorization({.target = server.target(), .token = "mine"}), "Bearer mine");
  EXPECT_EQ(authorization({.target = server.target(), .metadata = {{"authorization", "Basic me"}}}),
            "Basic me");

  FakeServer plain;
  for (const char* on : {"0", ""}) {
    setenv("ATTNBIAS_CLIENT_TLS", on, 1);
    const ClientOptions options = {
        .target = plain.target(),
        .tls = *on != '\0' ? std::nullopt : std::optional(TlsOptions{.enabled = false})};
    EXPECT_EQ(Make(options).ServerInfo().status(), absl::OkStatus());
  }
}

TEST_F(SecurityTest, SendsTokenWithEachCall) {
  FakeServer server;
  CallAll(server, Make({.target = server.target(), .token = "abc"}));
  EXPECT_THAT(server.callers(),
              AllOf(SizeIs(7), Each(Field("authorization", &Caller::authorization, "Bearer abc"))));
}

TEST_F(SecurityTest, RereadsChangedTokenFile) {
  FakeServer server;
  const Client client = Make({.target = server.target(), .token_file = Path("token")});
  const auto authorization = [&] {
    EXPECT_EQ(client.ServerInfo().status(), absl::OkStatus());
    return server.callers().back().authorization;
  };
  EXPECT_EQ(authorization(), "Bearer first");
  Replace("token", "later");
  EXPECT_EQ(authorization(), "Bearer later");
  // An invalid token changes nothing.
  Replace("token", "");
  EXPECT_EQ(authorization(), "Bearer later");
  std::filesystem::remove(Path("token"));
  EXPECT_EQ(authorization(), "Bearer later");
  Replace("token", "last");
  EXPECT_EQ(authorization(), "Bearer last");
  EXPECT_THAT(server.callers(), Each(Field("peer", &Caller::peer, server.callers().front().peer)));
}

TEST_F(SecurityTest, NewConnectionsUseTheNewCertificate) {
  FakeServer server(Tls(server_identity_, clients_.pem()));
  const Client client = Make({.target = server.target(), .tls = AsTrainer()});
  const auto name = [&] {
    EXPECT_EQ(client.ServerInfo().status(), absl::OkStatus());
    return server.callers().back().certificate_name;
  };
  EXPECT_EQ(name(), "trainer");
  const Identity renewed = clients_.Sign("renewed");
  Replace("cert.pem", renewed.certificate);
  Replace("key.pem", renewed.key);
  const absl::Time end = absl::Now() + absl::Seconds(30);
  do {
    server.Restart();
    absl::SleepFor(absl::Milliseconds(200));
  } while (name() != "renewed" && absl::Now() < end);
  EXPECT_EQ(name(), "renewed");
}

TEST_F(SecurityTest, TrustsReplacedAuthority) {
  FakeServer server(Tls(other_.Sign("server")));
  std::promise<void> refused;
  ClientOptions options = {.target = server.target(), .tls = Trusting()};
  options.on_retry = [&, told = false](const absl::Status& error) mutable {
    EXPECT_THAT(std::string(error.message()), HasSubstr("not trusted here"));
    if (!std::exchange(told, true)) refused.set_value();
  };
  const Client client = Make(options);
  auto call = std::async(std::launch::async, [&] { return client.ServerInfo().status(); });
  refused.get_future().wait();
  Replace("ca.pem", other_.pem());
  EXPECT_EQ(call.get(), absl::OkStatus());
}

TEST_F(SecurityTest, ReportsMissingOrUntrustedCertificate) {
  FakeServer mutual(Tls(server_identity_, clients_.pem()));
  TlsOptions foreign = AsTrainer();
  const Identity unknown = other_.Sign("unknown");
  Replace("cert.pem", unknown.certificate);
  Replace("key.pem", unknown.key);
  EXPECT_THAT(
      Failure({.target = mutual.target(), .tls = Trusting()}),
      StartsWith(mutual.target() + " answers, but does not speak gRPC over TLS: is it starting or "
                                   "stopping, or does it require a "
                                   "certificate? Set tls.cert_file and tls.key_file ("));
  EXPECT_THAT(Failure({.target = mutual.target(), .tls = foreign}),
              StartsWith(mutual.target() +
                         " answers, but does not speak gRPC over TLS: is it starting or "
                         "stopping, or does it not trust the "
                         "certificate in " +
                         Path("cert.pem") + "? ("));
}

TEST_F(SecurityTest, AuthenticationErrorsSuggestAFix) {
  FakeServer server;
  const auto message = [&](const ClientOptions& options, grpc::StatusCode code) {
    const size_t before = server.callers().size();
    server.ThenDescribe([code](v1::DescribeTensorResponse*) { return grpc::Status(code, "no"); });
    const absl::Status status = Make(options).Describe({}).status();
    EXPECT_EQ(static_cast<int>(status.code()), code);
    EXPECT_EQ(server.callers().size(), before + 1) << "not retried";
    return std::string(status.message());
  };
  const std::string target = server.target();
  EXPECT_EQ(message({.target = target}, grpc::StatusCode::UNAUTHENTICATED),
            target +
                " requires authentication: set token_file, or "
                "tls.cert_file and tls.key_file (no)");
  EXPECT_EQ(message({.target = target, .token = "abc"}, grpc::StatusCode::UNAUTHENTICATED),
            target +
                " rejected this token: is it for this server, and still "
                "valid? (no)");
  EXPECT_EQ(message({.target = target}, grpc::StatusCode::PERMISSION_DENIED),
            target +
                " denied permission: ask its operator, or "
                "use another token or certificate (no)");
}

TEST_F(SecurityTest, TokenRequiresTlsBeyondLoopback) {
  const auto status = [](const ClientOptions& options) { return Client::Create(options).status(); };
  EXPECT_EQ(status({.target = "attnbias.example", .token = "abc"}),
            absl::InvalidArgumentError(
                "token: got a token but no TLS, and attnbias.example:50051 is not on "
                "this machine, so others could read the token: set tls"));
  setenv("ATTNBIAS_CLIENT_TOKEN_FILE", Path("token").c_str(), 1);
  EXPECT_THAT(std::string(status({.target = "ipv4:127.0.0.1,10.0.0.1"}).message()),
              StartsWith("ATTNBIAS_CLIENT_TOKEN_FILE: got a token but no TLS, and ipv4:127.0.0.1"));
  EXPECT_EQ(status({.target = "unix:/run/a.sock"}), absl::OkStatus());
  EXPECT_EQ(status({.target = "attnbias.example", .tls = Trusting()}), absl::OkStatus());
}

TEST_F(SecurityTest, NamesInvalidOption) {
  const auto message = [](const ClientOptions& options) {
    return std::string(Client::Create(options).status().message());
  };
  const std::string text = Path("text");
  const std::string cert = Path("cert.pem");
  const std::string key = Path("key.pem");
  EXPECT_EQ(message({.tls = TlsOptions{.ca_file = "/nowhere"}}),
            "tls.ca_file: cannot read \"/nowhere\": No such file or directory");
  EXPECT_EQ(message({.tls = TlsOptions{.ca_file = folder()}}),
            "tls.ca_file: cannot read \"" + folder() + "\": Is a directory");
  EXPECT_EQ(message({.tls = TlsOptions{.ca_file = text}}),
            "tls.ca_file: got \"" + text + "\", want a PEM file with certificates");
  EXPECT_EQ(message({.tls = TlsOptions{.cert_file = text, .key_file = key}}),
            "tls.cert_file: got \"" + text + "\", want a PEM file with certificates");
  Replace("other-key.pem", other_.Sign("other").key);
  for (const std::string& wrong : {text, Path("other-key.pem"), cert}) {
    EXPECT_EQ(message({.tls = TlsOptions{.cert_file = cert, .key_file = wrong}}),
              "tls.key_file: got \"" + wrong +
                  "\", want an unencrypted PEM file with the key for \"" + cert + "\"");
  }
  EXPECT_EQ(message({.tls = TlsOptions{.cert_file = cert}}),
            "tls.cert_file: got \"" + cert + "\", want tls.key_file with it");
  setenv("ATTNBIAS_CLIENT_TLS_KEY", key.c_str(), 1);
  EXPECT_EQ(message({}),
            "ATTNBIAS_CLIENT_TLS_KEY: got \"" + key + "\", want ATTNBIAS_CLIENT_TLS_CERT with it");
  setenv("ATTNBIAS_CLIENT_TLS", "yes", 1);
  EXPECT_EQ(message({}), "ATTNBIAS_CLIENT_TLS: got \"yes\", want 1 or 0");

  const ClientOptions plain = {.tls = TlsOptions{.enabled = false}};
  ClientOptions options = plain;
  options.token_file = "/nowhere";
  EXPECT_EQ(message(options), "token_file: cannot read \"/nowhere\": No such file or directory");
  Replace("token", "two words");
  options.token_file = Path("token");
  EXPECT_EQ(message(options), "token_file: got \"" + Path("token") +
                                  "\", which does not hold a token; want visible ASCII characters, "
                                  "without spaces");
  options.token = "abc";
  EXPECT_EQ(message(options), "token: given together with token_file, want one of the two");
  options = plain;
  options.token = "two words";
  EXPECT_EQ(message(options),
            "token: got text that is not a token; want visible ASCII characters, "
            "without spaces");
  options.token = "abc";
  options.metadata = {{"authorization", "Bearer abc"}};
  EXPECT_EQ(message(options),
            "token: given together with \"authorization\" in metadata, want one of "
            "the two");
}

}  // namespace
}  // namespace attnbias::security_test
