// SPDX-License-Identifier: Apache-2.0
// The C++ client against a server that misbehaves in every way it knows.
#include "attnbias/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <future>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "attnbias/error.h"
#include "tests/unit/cpp/fake_server.h"

namespace attnbias::client_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kBytes = 10'000;
const auto kBroken = grpc::Status(grpc::StatusCode::UNAVAILABLE, "broken");

class ClientTest : public ::testing::Test {
 protected:
  Client MakeClient() {
    options_.target = server_.target();
    return *Client::Create(options_);
  }

  // A tensor's bytes, or the error as text.
  static std::string Text(const absl::StatusOr<Tensor>& tensor) {
    if (!tensor.ok()) return tensor.status().ToString();
    return {reinterpret_cast<const char*>(tensor->bytes().data()),
            tensor->bytes().size()};
  }

  // A stream of 3000 bytes that then ends with `status`.
  Script BreaksAfter3000(grpc::Status status) {
    return [this, status](const FakeStream& stream) {
      stream.SendHeader(header_);
      for (size_t at = stream.request.read_offset(), end = at + 3000; at < end;
           at += 1000) {
        stream.SendChunk(payload_, at, at + 1000);
      }
      return status;
    };
  }

  Script SendsAll() {
    return [this](const FakeStream& stream) {
      return stream.SendAll(payload_, header_);
    };
  }

  ClientOptions options_;
  const std::string payload_ = MakePayload(kBytes);
  const v1::TensorHeader header_ = MakeHeader(payload_, "first");
  const v1::TensorSpec spec_ = [] {
    v1::TensorSpec spec;  // without an encoding: any consistent answer fits
    spec.mutable_output()->set_scale(8);
    return spec;
  }();
  // Last, so that it has stopped before what its scripts send is gone.
  FakeServer server_;
};

TEST_F(ClientTest, GetsTheBytes) {
  server_.Then(SendsAll());
  const auto tensor = MakeClient().Get(spec_);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(Text(tensor), payload_);
  EXPECT_EQ(tensor->header().SerializeAsString(), header_.SerializeAsString());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->bytes().data()) % 64, 0u);
  EXPECT_EQ(tensor->part(0).size(), kBytes);
  ASSERT_EQ(server_.requests().size(), 1u);
  EXPECT_EQ(server_.requests()[0].spec().output().scale(), 8);
  EXPECT_EQ(server_.requests()[0].read_offset(), 0);
  EXPECT_EQ(server_.requests()[0].expected_fingerprint(), "");
}

// Larger than any buffer on the way, so that slices are cut everywhere.
TEST_F(ClientTest, GetsManyMegabytes) {
  const std::string payload = MakePayload(20'000'000);
  server_.Then([=](const FakeStream& stream) {
    return stream.SendAll(payload, MakeHeader(payload, "large"), 1'234'567);
  });
  EXPECT_TRUE(Text(MakeClient().Get(spec_)) == payload);
}

TEST_F(ClientTest, GetsIntoTheCallersMemory) {
  server_.Then(SendsAll());
  std::string out(kBytes + 10, 'x');
  std::vector<int64_t> progress;
  const auto header = MakeClient().GetInto(
      spec_,
      absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()), out.size()),
      [&](int64_t done, int64_t total) {
        EXPECT_EQ(total, static_cast<int64_t>(kBytes));
        progress.push_back(done);
      });
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(out, payload_ + "xxxxxxxxxx");
  EXPECT_THAT(progress, ElementsAre(1000, 2000, 3000, 4000, 5000, 6000, 7000,
                                    8000, 9000, 10000));
}

TEST_F(ClientTest, RefusesMemoryThatIsTooSmall) {
  server_.Then(SendsAll());
  std::string out(kBytes - 1, 'x');
  const auto header = MakeClient().GetInto(
      spec_,
      absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()), out.size()));
  EXPECT_EQ(header.status(), absl::InvalidArgumentError(
                                 "out: got 9999 bytes, want at least 10000"));
  EXPECT_EQ(out, std::string(kBytes - 1, 'x'));
}

TEST_F(ClientTest, ResumesWhereTheStreamBroke) {
  server_.Then(BreaksAfter3000(kBroken));
  server_.Then(BreaksAfter3000(kBroken));
  server_.Then(SendsAll());
  EXPECT_EQ(Text(MakeClient().Get(spec_)), payload_);
  const auto requests = server_.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[1].read_offset(), 3000);
  EXPECT_EQ(requests[1].expected_fingerprint(), Fingerprint("first"));
  EXPECT_EQ(requests[2].read_offset(), 6000);
}

// A connection that breaks in mid-stream, and a server that comes back.
TEST_F(ClientTest, SurvivesARestartOfTheServer) {
  server_.Then([this](const FakeStream& stream) {
    stream.SendHeader(header_);
    // After three chunks it waits for its own end.
    for (size_t at = 0;
         at < kBytes && stream.SendChunk(payload_, at, at + 1000); at += 1000) {
      while (at >= 2000 && !stream.context->IsCancelled()) {
        std::this_thread::yield();
      }
    }
    return grpc::Status::OK;
  });
  server_.Then(SendsAll());
  bool restarted = false;
  std::string out(kBytes, 'x');
  const auto header = MakeClient().GetInto(
      spec_,
      absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()), out.size()),
      [&](int64_t done, int64_t) {
        if (done < 2000 || restarted) return;
        restarted = true;
        server_.Restart();
      });
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_TRUE(restarted);
  EXPECT_EQ(out, payload_);
  EXPECT_GE(server_.requests().back().read_offset(), 2000);
}

TEST_F(ClientTest, RetriesBeforeTheHeader) {
  server_.Then([](const FakeStream&) { return kBroken; });
  server_.Then(SendsAll());
  EXPECT_EQ(Text(MakeClient().Get(spec_)), payload_);
  EXPECT_EQ(server_.requests()[1].read_offset(), 0);
  EXPECT_EQ(server_.requests()[1].expected_fingerprint(), "");
}

TEST_F(ClientTest, GivesUpAfterAttemptsThatBringNothing) {
  options_.max_attempts = 2;
  for (int i = 0; i < 3; ++i) {
    server_.Then([](const FakeStream&) { return kBroken; });
  }
  EXPECT_EQ(MakeClient().Get(spec_).status(), absl::UnavailableError("broken"));
  EXPECT_EQ(server_.requests().size(), 2u);
}

// Two attempts, but each brings 3000 bytes.
TEST_F(ClientTest, CountsOnlyAttemptsThatBringNothing) {
  options_.max_attempts = 2;
  for (int i = 0; i < 3; ++i) server_.Then(BreaksAfter3000(kBroken));
  server_.Then(SendsAll());
  EXPECT_EQ(Text(MakeClient().Get(spec_)), payload_);
}

TEST_F(ClientTest, DoesNotRetryOtherErrors) {
  server_.Then([](const FakeStream&) {
    return grpc::Status(grpc::StatusCode::INTERNAL, "a bug");
  });
  server_.Then(SendsAll());
  EXPECT_EQ(MakeClient().Get(spec_).status(), absl::InternalError("a bug"));
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(ClientTest, StartsAfreshWhenTheFingerprintChanged) {
  const std::string other = MakePayload(5000, 2);
  const auto gone =
      grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "fingerprint");
  server_.Then(BreaksAfter3000(kBroken));
  server_.Then([=](const FakeStream&) { return gone; });
  server_.Then([=](const FakeStream& stream) {
    return stream.SendAll(other, MakeHeader(other, "second"));
  });
  const auto tensor = MakeClient().Get(spec_);
  EXPECT_EQ(Text(tensor), other);
  ASSERT_EQ(server_.requests().size(), 3u);
  EXPECT_EQ(server_.requests()[2].read_offset(), 0);
  EXPECT_EQ(server_.requests()[2].expected_fingerprint(), "");
}

TEST_F(ClientTest, StartsAfreshOnlyOnce) {
  const auto gone =
      grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "fingerprint");
  server_.Then(BreaksAfter3000(kBroken));
  server_.Then([=](const FakeStream&) { return gone; });
  server_.Then(BreaksAfter3000(kBroken));
  server_.Then([=](const FakeStream&) { return gone; });
  EXPECT_EQ(MakeClient().Get(spec_).status(),
            absl::FailedPreconditionError("fingerprint"));
  EXPECT_EQ(server_.requests().size(), 4u);
}

TEST_F(ClientTest, AFreshFailedPreconditionIsFinal) {
  server_.Then([](const FakeStream&) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "no");
  });
  EXPECT_EQ(MakeClient().Get(spec_).status(),
            absl::FailedPreconditionError("no"));
}

// Nothing was begun before the stream that it ends.
TEST_F(ClientTest, AFailedPreconditionOfTheFirstStreamIsFinal) {
  server_.Then(BreaksAfter3000(
      grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "fingerprint")));
  EXPECT_EQ(MakeClient().Get(spec_).status(),
            absl::FailedPreconditionError("fingerprint"));
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(ClientTest, WaitsAsTheServerSaysWhenOverloaded) {
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_nanos(1'000'000);
  server_.Then([=](const FakeStream&) {
    return WithDetail(grpc::StatusCode::RESOURCE_EXHAUSTED, "busy", info);
  });
  server_.Then(SendsAll());
  EXPECT_EQ(Text(MakeClient().Get(spec_)), payload_);
}

TEST_F(ClientTest, ObeysPushback) {
  const auto busy = grpc::Status(grpc::StatusCode::UNAVAILABLE, "busy");
  server_.Then([=](const FakeStream& stream) {
    stream.context->AddTrailingMetadata("grpc-retry-pushback-ms", "1");
    return busy;
  });
  server_.Then([=](const FakeStream& stream) {
    stream.context->AddTrailingMetadata("grpc-retry-pushback-ms", "-1");
    return busy;
  });
  EXPECT_EQ(MakeClient().Get(spec_).status(), absl::UnavailableError("busy"));
  EXPECT_EQ(server_.requests().size(), 2u);
}

TEST_F(ClientTest, AnExhaustedServerWithoutADelayIsFinal) {
  server_.Then([](const FakeStream&) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too large");
  });
  EXPECT_EQ(MakeClient().Get(spec_).status(),
            absl::ResourceExhaustedError("too large"));
  EXPECT_EQ(server_.requests().size(), 1u);
}

// Does not wait for a moment after its own deadline.
TEST_F(ClientTest, ADelayBeyondTheDeadlineIsFinal) {
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(1'000'000);
  server_.Then([=](const FakeStream&) {
    return WithDetail(grpc::StatusCode::RESOURCE_EXHAUSTED, "busy", info);
  });
  const absl::Status status = MakeClient().Get(spec_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "busy");
}

TEST_F(ClientTest, EndsAtItsDeadline) {
  options_.timeout = absl::Milliseconds(50);
  std::promise<void> released;
  server_.Then([&](const FakeStream& stream) {
    stream.SendHeader(header_);
    released.get_future().wait();
    return grpc::Status::OK;
  });
  const absl::Status status = MakeClient().Get(spec_).status();
  released.set_value();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ClientTest, NamesTheFieldsTheServerBlames) {
  google::rpc::BadRequest bad;
  auto* violation = bad.add_field_violations();
  violation->set_field("spec.alibi.num_heads");
  violation->set_description("got 0, want an integer in [1, 65536]");
  server_.Then([=](const FakeStream&) {
    return WithDetail(grpc::StatusCode::INVALID_ARGUMENT, "alibi.num_heads",
                      bad);
  });
  const absl::Status status = MakeClient().Get(spec_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "alibi.num_heads");
  const std::vector<FieldViolation> violations = FieldViolations(status);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "spec.alibi.num_heads");
  EXPECT_EQ(violations[0].description, "got 0, want an integer in [1, 65536]");
}

TEST_F(ClientTest, SaysWhyTheServerRefused) {
  google::rpc::ErrorInfo info;
  info.set_reason("INVALID_FIELD");
  server_.Then([=](const FakeStream&) {
    return WithDetail(grpc::StatusCode::INVALID_ARGUMENT, "no", info);
  });
  server_.Then([](const FakeStream&) {
    return grpc::Status(grpc::StatusCode::INTERNAL, "no");
  });
  const Client client = MakeClient();
  EXPECT_EQ(Reason(client.Get(spec_).status()), "INVALID_FIELD");
  EXPECT_EQ(Reason(client.Get(spec_).status()), "");
}

TEST_F(ClientTest, RefusesATensorOverItsLimit) {
  options_.max_tensor_bytes = kBytes - 1;
  server_.Then(SendsAll());
  EXPECT_EQ(MakeClient().Get(spec_).status(),
            absl::ResourceExhaustedError(
                "max_tensor_bytes: the tensor has 10000 bytes, this client "
                "takes at most 9999"));
}

TEST_F(ClientTest, UnaryCallsAreRetriedToo) {
  server_.ThenDescribe([](v1::DescribeTensorResponse*) { return kBroken; });
  server_.ThenDescribe([this](v1::DescribeTensorResponse* response) {
    *response->mutable_header() = header_;
    return grpc::Status::OK;
  });
  const auto header = MakeClient().Describe(spec_);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->fingerprint(), Fingerprint("first"));
}

TEST_F(ClientTest, ADamagedDescriptionIsDataLoss) {
  server_.ThenDescribe([this](v1::DescribeTensorResponse* response) {
    const std::string sent = header_.SerializeAsString();
    response->set_header_crc32c(Crc32c(sent.data(), sent.size()));
    *response->mutable_header() = header_;
    response->mutable_header()->mutable_parts(0)->set_shape(0, 1);
    return grpc::Status::OK;
  });
  const absl::Status status = MakeClient().Describe(spec_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("header: got CRC-32C"));
}

TEST_F(ClientTest, ADescriptionHasAHeader) {
  server_.ThenDescribe(
      [](v1::DescribeTensorResponse*) { return grpc::Status::OK; });
  EXPECT_EQ(MakeClient().Describe(spec_).status(),
            absl::DataLossError("DescribeTensor: the answer has no header"));
}

TEST_F(ClientTest, TellsAboutTheServer) {
  const auto info = MakeClient().ServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->version(), "1.2.3");
}

TEST_F(ClientTest, ListsTheTablesOfAllPages) {
  const auto tables = MakeClient().ListTables();
  ASSERT_TRUE(tables.ok()) << tables.status();
  ASSERT_EQ(tables->size(), 3);
  EXPECT_EQ((*tables)[2].name(), "table 2");
}

TEST_F(ClientTest, RefusesTablesThatDoNotAscend) {
  server_.set_repeats_tables(true);
  EXPECT_EQ(
      MakeClient().ListTables().status(),
      absl::DataLossError("tables: got \"table 0\" after \"table 0\", want "
                          "names in ascending order"));
}

TEST_F(ClientTest, TellsHealth) {
  using Response = grpc::health::v1::HealthCheckResponse;
  const Client client = MakeClient();
  EXPECT_EQ(*client.CheckHealth(""), Health::kServing);
  server_.set_health(Response::NOT_SERVING);
  EXPECT_EQ(*client.CheckHealth(""), Health::kNotServing);
  server_.set_health(Response::UNKNOWN);
  EXPECT_EQ(*client.CheckHealth(""), Health::kUnknown);
  EXPECT_EQ(client.CheckHealth("other").status(),
            absl::NotFoundError("no service other"));
}

class Outage : public ClientTest,
               public ::testing::WithParamInterface<absl::Duration> {};

TEST_P(Outage, IsOutlived) {
  server_.Stop();
  server_.Then(SendsAll());
  const Client client = MakeClient();
  auto tensor =
      std::async(std::launch::async, [&] { return client.Get(spec_); });
  auto info = std::async(std::launch::async,
                         [&] { return client.ServerInfo().status(); });
  absl::SleepFor(GetParam());
  server_.Start();
  EXPECT_EQ(Text(tensor.get()), payload_);
  EXPECT_EQ(info.get(), absl::OkStatus());
}

INSTANTIATE_TEST_SUITE_P(ShortAndLong, Outage,
                         ::testing::Values(absl::Milliseconds(200),
                                           absl::Seconds(2)));

TEST_F(ClientTest, TheTimeoutBoundsTheWaiting) {
  server_.Stop();
  options_.timeout = absl::Seconds(1);
  std::vector<std::string> told;
  options_.on_retry = [&](const absl::Status& error) {
    told.push_back(std::string(error.message()));
  };
  EXPECT_TRUE(absl::IsUnavailable(MakeClient().Get(spec_).status()));
  ASSERT_FALSE(told.empty());
  EXPECT_THAT(told[0], HasSubstr("Connection refused"));
  server_.Start();
}

// Also when one goes and comes back.
TEST_F(ClientTest, ReplicasShareTheCalls) {
  FakeServer other;
  options_.target =
      absl::StrCat("ipv4:", server_.target(), ",", other.target());
  const Client client = *Client::Create(options_);
  const auto all_have_calls = [&] {
    const int before = server_.info_calls();
    const int of_other = other.info_calls();
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (absl::Now() < end && (server_.info_calls() < before + 10 ||
                                 other.info_calls() < of_other + 10)) {
      EXPECT_EQ(client.ServerInfo().status(), absl::OkStatus());
    }
    return absl::Now() < end;
  };
  EXPECT_TRUE(all_have_calls());
  other.Stop();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(client.ServerInfo().status(), absl::OkStatus());
  }
  other.Start();
  EXPECT_TRUE(all_have_calls());
}

TEST_F(ClientTest, AnotherPolicyCanBeAskedFor) {
  for (const auto& [name, value] :
       {std::pair("grpc.lb_policy_name", "pick_first"),
        std::pair("grpc.service_config",
                  R"({"loadBalancingConfig": [{"pick_first": {}}]})")}) {
    FakeServer one;
    FakeServer other;
    const Client client = *Client::Create(
        {.target = absl::StrCat("ipv4:", one.target(), ",", other.target()),
         .channel_options = {{name, value}}});
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(client.ServerInfo().status(), absl::OkStatus());
    }
    EXPECT_EQ(std::abs(one.info_calls() - other.info_calls()), 20) << name;
  }
}

// Those of the Python client, which its tests hold too.
TEST(Client, HasTheDefaultsOfAllClients) {
  const ClientOptions options;
  EXPECT_EQ(options.timeout, absl::Seconds(300));
  EXPECT_EQ(options.max_tensor_bytes, int64_t{16} << 30);
  EXPECT_EQ(options.max_attempts, std::nullopt);
}

TEST_F(ClientTest, MetadataComesWithEachCall) {
  options_.metadata = {{"authorization", "Bearer abc"}};
  EXPECT_EQ(MakeClient().ServerInfo().status(), absl::OkStatus());
  EXPECT_EQ(server_.callers().back().authorization, "Bearer abc");
}

TEST_F(ClientTest, AProxyIsNotAskedForLoopback) {
  ::setenv("http_proxy", "http://127.0.0.1:1", 1);
  options_.timeout = absl::Seconds(5);
  const auto health = MakeClient().CheckHealth("");
  ::unsetenv("http_proxy");
  EXPECT_EQ(health.status(), absl::OkStatus());
}

TEST(Client, NamesTheOptionThatIsWrong) {
  const auto message = [](const ClientOptions& options) {
    return std::string(Client::Create(options).status().message());
  };
  EXPECT_EQ(
      message({.target = ""}),
      "target: got \"\", want host, host:port, [IPv6]:port, unix:/path or "
      "another target of gRPC");
  EXPECT_EQ(message({.timeout = absl::ZeroDuration()}),
            "timeout: got 0, want more than 0");
  EXPECT_EQ(message({.connect_timeout = absl::ZeroDuration()}),
            "connect_timeout: got 0, want more than 0");
  EXPECT_EQ(message({.max_tensor_bytes = 0}),
            "max_tensor_bytes: got 0, want more than 0");
  EXPECT_EQ(message({.max_attempts = 0}),
            "max_attempts: got 0, want at least 1");
  for (const char* const key : {"", "Tenant", "a key", "\xC3\xA4"}) {
    EXPECT_EQ(message({.metadata = {{"tenant", "a"}, {key, "a"}}}),
              absl::StrCat("metadata: got the key \"", absl::CHexEscape(key),
                           "\", want lower-case letters, digits, and any of "
                           "-_."));
  }
  for (const char* const value : {"Bearer a\n", "\xC3\xA4"}) {
    EXPECT_EQ(message({.metadata = {{"authorization", value}}}),
              "metadata: got a value of \"authorization\" that is not "
              "printable ASCII, want one that is, or a key that ends in "
              "\"-bin\"");
    EXPECT_EQ(message({.metadata = {{"a-bin", value}}}), "");
  }
}

// What a stream must not be: each case is DATA_LOSS and says why.
struct Corruption {
  std::string name;
  std::string message;
  std::function<grpc::Status(const FakeStream&, const std::string&)> script;
};

void PrintTo(const Corruption& corruption, std::ostream* out) {
  *out << corruption.name;
}

class CorruptStream : public ::testing::TestWithParam<Corruption> {};

TEST_P(CorruptStream, IsDataLoss) {
  const std::string payload = MakePayload(kBytes);
  FakeServer server;
  server.Then([=](const FakeStream& stream) {
    return GetParam().script(stream, payload);
  });
  const Client client = *Client::Create({.target = server.target()});
  const absl::Status status = client.Get({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
  EXPECT_EQ(server.requests().size(), 1u);
}

// A header to which `change` was done, then the payload.
template <typename Change>
auto WithHeader(Change change) {
  return [change](const FakeStream& stream, const std::string& payload) {
    v1::TensorHeader header = MakeHeader(payload, "f");
    change(&header);
    return stream.SendAll(payload, header);
  };
}

// The first chunk as `change` leaves it, alone or beside the header.
template <typename Change>
auto WithChunk(Change change, bool beside_header = false) {
  return [=](const FakeStream& stream, const std::string& payload) {
    v1::StreamTensorResponse message;
    if (beside_header) {
      *message.mutable_header() = MakeHeader(payload, "f");
    } else {
      stream.SendHeader(MakeHeader(payload, "f"));
    }
    message.set_data(payload.substr(0, 1000));
    message.set_crc32c(Crc32c(payload.data(), 1000));
    change(&message);
    stream.writer->Write(message);
    return grpc::Status::OK;
  };
}

INSTANTIATE_TEST_SUITE_P(
    Faults, CorruptStream,
    ::testing::Values(
        Corruption{"FlippedBit", "have CRC-32C",
                   WithChunk([](auto* m) { (*m->mutable_data())[999] ^= 1; })},
        Corruption{"WrongChecksum", "have CRC-32C",
                   WithChunk([](auto* m) { m->set_crc32c(1); })},
        Corruption{"MissingChecksum", "have CRC-32C",
                   WithChunk([](auto* m) { m->clear_crc32c(); })},
        Corruption{"Gap", "got offset 1000, want 0",
                   WithChunk([](auto* m) { m->set_offset(1000); })},
        Corruption{"NegativeOffset", "got offset -1, want 0",
                   WithChunk([](auto* m) { m->set_offset(-1); })},
        Corruption{"FlippedBitBesideTheHeader", "have CRC-32C",
                   WithChunk([](auto* m) { (*m->mutable_data())[999] ^= 1; },
                             /*beside_header=*/true)},
        Corruption{"GapBesideTheHeader", "got offset 1000, want 0",
                   WithChunk([](auto* m) { m->set_offset(1000); },
                             /*beside_header=*/true)},
        Corruption{
            "TooManyBytesBesideTheHeader", "want at most the 10000",
            WithChunk([](auto* m) { m->mutable_data()->resize(kBytes + 4); },
                      /*beside_header=*/true)},
        Corruption{"TooFewBytes", "ended after 1000 bytes, want 10000",
                   WithChunk([](auto*) {})},
        Corruption{"Repetition", "got offset 0, want 1000",
                   [](const FakeStream& stream, const std::string& payload) {
                     stream.SendHeader(MakeHeader(payload, "f"));
                     stream.SendChunk(payload, 0, 1000);
                     stream.SendChunk(payload, 0, 1000);
                     return grpc::Status::OK;
                   }},
        Corruption{"SecondHeader", "stream: a second header",
                   [](const FakeStream& stream, const std::string& payload) {
                     stream.SendHeader(MakeHeader(payload, "f"));
                     stream.SendHeader(MakeHeader(payload, "f"));
                     return grpc::Status::OK;
                   }},
        Corruption{"TooManyBytes", "want at most the 0 that are missing",
                   [](const FakeStream& stream, const std::string& payload) {
                     stream.SendAll(payload, MakeHeader(payload, "f"));
                     stream.SendChunk(payload, 0, 1);
                     return grpc::Status::OK;
                   }},
        Corruption{"NothingAtAll", "ended without a header",
                   [](const FakeStream&, const std::string&) {
                     return grpc::Status::OK;
                   }},
        Corruption{"NoHeader", "the first message has no header",
                   [](const FakeStream& stream, const std::string& payload) {
                     stream.SendChunk(payload, 0, 1000);
                     return grpc::Status::OK;
                   }},
        // Another shape of as many bytes: nothing but the checksum tells.
        Corruption{
            "FlippedHeader", "header: got CRC-32C",
            [](const FakeStream& stream, const std::string& payload) {
              v1::StreamTensorResponse message;
              *message.mutable_header() = MakeHeader(payload, "f");
              const std::string sent = message.header().SerializeAsString();
              message.set_header_crc32c(Crc32c(sent.data(), sent.size()));
              v1::TensorPart* part = message.mutable_header()->mutable_parts(0);
              part->set_shape(0, part->shape(0) / 2);
              part->add_shape(2);
              stream.writer->Write(message);
              return grpc::Status::OK;
            }},
        Corruption{"EmptyFirstMessage", "the first message has no header",
                   [](const FakeStream& stream, const std::string&) {
                     stream.writer->Write({});
                     return grpc::Status::OK;
                   }},
        Corruption{"TotalNotTheSum", "header.total_bytes: got 10001",
                   WithHeader([](auto* h) { h->set_total_bytes(kBytes + 1); })},
        Corruption{"NegativeTotal", "header.total_bytes: got -1",
                   WithHeader([](auto* h) { h->set_total_bytes(-1); })},
        Corruption{"HoleBeforePart", "does not add up", WithHeader([](auto* h) {
                     h->mutable_parts(0)->set_offset(4);
                   })},
        Corruption{"ShapeNotTheSize", "does not add up",
                   WithHeader([](auto* h) {
                     h->mutable_parts(0)->set_shape(0, 2501);
                   })},
        Corruption{"NegativeShape", "does not add up", WithHeader([](auto* h) {
                     h->mutable_parts(0)->set_shape(0, -2500);
                     h->mutable_parts(0)->add_shape(-1);
                   })},
        Corruption{"OverflowingShape", "does not add up",
                   WithHeader([](auto* h) {
                     h->mutable_parts(0)->set_shape(0, int64_t{1} << 62);
                     h->mutable_parts(0)->add_shape(int64_t{1} << 62);
                   })},
        Corruption{"TooManyAxes", "has 65 axes, want at most 64",
                   WithHeader([](auto* h) {
                     while (h->parts(0).shape_size() < 65) {
                       h->mutable_parts(0)->add_shape(1);
                     }
                   })},
        Corruption{"NoParts", "it has no parts",
                   WithHeader([](auto* h) { h->clear_parts(); })}),
    [](const auto& info) { return info.param.name; });

// A replica that resumes with other bytes than it says.
TEST_F(ClientTest, AResumeWithAnotherFingerprintIsDataLoss) {
  server_.Then(BreaksAfter3000(kBroken));
  server_.Then([this](const FakeStream& stream) {
    return stream.SendAll(payload_, MakeHeader(payload_, "second"));
  });
  EXPECT_EQ(MakeClient().Get(spec_).status(),
            absl::DataLossError(absl::StrCat(
                "stream: resumed with fingerprint ", Fingerprint("second"),
                ", want ", Fingerprint("first"))));
}

// The same fingerprint, and so the same bytes, but of another shape.
TEST_F(ClientTest, AResumeWithOtherPartsIsDataLoss) {
  server_.Then(BreaksAfter3000(kBroken));
  server_.Then([this](const FakeStream& stream) {
    v1::TensorHeader header = MakeHeader(payload_, "first");
    header.mutable_parts(0)->add_shape(1);
    return stream.SendAll(payload_, header);
  });
  const absl::Status status = MakeClient().Get(spec_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(),
              HasSubstr("stream: resumed with parts [diagonals F32 TOEPLITZ "
                        "[2500, 1] from 0], want [diagonals F32 TOEPLITZ "
                        "[2500] from 0]"));
}

TEST_F(ClientTest, AnUnknownElementTypeIsUnimplemented) {
  server_.Then([this](const FakeStream& stream) {
    v1::TensorHeader header = header_;
    header.mutable_parts(0)->set_data_type(static_cast<v1::DataType>(99));
    return stream.SendAll(payload_, header);
  });
  EXPECT_EQ(MakeClient().Get(spec_).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST_F(ClientTest, AWholePayloadMayEndAsItLikes) {
  server_.Then([this](const FakeStream& stream) {
    stream.SendAll(payload_, MakeHeader(payload_, "f"));
    return kBroken;
  });
  EXPECT_TRUE(MakeClient().Get(spec_).ok());
  EXPECT_EQ(server_.requests().size(), 1);
}

}  // namespace
}  // namespace attnbias::client_test
