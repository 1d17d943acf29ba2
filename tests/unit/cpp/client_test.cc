// SPDX-License-Identifier: Apache-2.0
// Tests features that only the C++ client has. tests/clients runs the client against a server that
// misbehaves in every way.
#include "attnbias/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
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

  // Returns a tensor's bytes, or the error as text.
  static std::string Text(const absl::StatusOr<Tensor>& tensor) {
    if (!tensor.ok()) return tensor.status().ToString();
    return {reinterpret_cast<const char*>(tensor->bytes().data()), tensor->bytes().size()};
  }

  Script BreaksAfter3000() {
    return [this](const FakeStream& stream) {
      stream.SendHeader(header_);
      for (size_t at = stream.request.read_offset(), end = at + 3000; at < end; at += 1000) {
        stream.SendChunk(payload_, at, at + 1000);
      }
      return kBroken;
    };
  }

  Script SendsAll() {
    return [this](const FakeStream& stream) { return stream.SendAll(payload_, header_); };
  }

  ClientOptions options_;
  const std::string payload_ = MakePayload(kBytes);
  const v1::TensorHeader header_ = MakeHeader(payload_, "first");
  const v1::TensorSpec spec_ = [] {
    v1::TensorSpec spec;
    spec.mutable_output()->set_scale(8);
    return spec;
  }();
  // Declared last, so that it stops before the data that its scripts send is destroyed.
  FakeServer server_;
};

TEST_F(ClientTest, GetsPayloadAndHeader) {
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

TEST_F(ClientTest, GetsIntoCallerMemory) {
  server_.Then(SendsAll());
  std::string out(kBytes + 10, 'x');
  std::vector<int64_t> progress;
  const auto header = MakeClient().GetInto(
      spec_, absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()), out.size()),
      [&](int64_t done, int64_t total) {
        EXPECT_EQ(total, static_cast<int64_t>(kBytes));
        progress.push_back(done);
      });
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(out, payload_ + "xxxxxxxxxx");
  EXPECT_THAT(progress, ElementsAre(1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000));
}

TEST_F(ClientTest, RejectsOutputThatIsTooSmall) {
  server_.Then(SendsAll());
  std::string out(kBytes - 1, 'x');
  const auto header = MakeClient().GetInto(
      spec_, absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()), out.size()));
  EXPECT_EQ(header.status(),
            absl::InvalidArgumentError("out: got 9999 bytes, want at least 10000"));
  EXPECT_EQ(out, std::string(kBytes - 1, 'x'));
}

// Only two attempts are allowed, but each one delivers 3000 bytes.
TEST_F(ClientTest, CountsOnlyAttemptsWithoutProgress) {
  options_.max_attempts = 2;
  for (int i = 0; i < 3; ++i) server_.Then(BreaksAfter3000());
  server_.Then(SendsAll());
  EXPECT_EQ(Text(MakeClient().Get(spec_)), payload_);
}

TEST_F(ClientTest, RestartsIfFingerprintChanges) {
  const std::string other = MakePayload(5000, 2);
  const auto gone = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "fingerprint");
  server_.Then(BreaksAfter3000());
  server_.Then([=](const FakeStream&) { return gone; });
  server_.Then(
      [=](const FakeStream& stream) { return stream.SendAll(other, MakeHeader(other, "second")); });
  const auto tensor = MakeClient().Get(spec_);
  EXPECT_EQ(Text(tensor), other);
  ASSERT_EQ(server_.requests().size(), 3u);
  EXPECT_EQ(server_.requests()[2].read_offset(), 0);
  EXPECT_EQ(server_.requests()[2].expected_fingerprint(), "");
}

TEST_F(ClientTest, ErrorsNameFieldViolations) {
  google::rpc::BadRequest bad;
  auto* violation = bad.add_field_violations();
  violation->set_field("spec.alibi.num_heads");
  violation->set_description("got 0, want an integer in [1, 65536]");
  server_.Then([=](const FakeStream&) {
    return WithDetail(grpc::StatusCode::INVALID_ARGUMENT, "alibi.num_heads", bad);
  });
  const absl::Status status = MakeClient().Get(spec_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "alibi.num_heads");
  const std::vector<FieldViolation> violations = FieldViolations(status);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "spec.alibi.num_heads");
  EXPECT_EQ(violations[0].description, "got 0, want an integer in [1, 65536]");
}

TEST_F(ClientTest, RetriesUnaryCalls) {
  server_.ThenDescribe([](v1::DescribeTensorResponse*) { return kBroken; });
  server_.ThenDescribe([this](v1::DescribeTensorResponse* response) {
    *response->mutable_header() = header_;
    return grpc::Status::OK;
  });
  const auto header = MakeClient().Describe(spec_);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->fingerprint(), Fingerprint("first"));
}

TEST_F(ClientTest, DamagedDescriptionIsDataLoss) {
  server_.ThenDescribe([this](v1::DescribeTensorResponse* response) {
    response->set_header_crc32c(Crc32cOf(header_));
    *response->mutable_header() = header_;
    response->mutable_header()->mutable_parts(0)->set_shape(0, 1);
    return grpc::Status::OK;
  });
  const absl::Status status = MakeClient().Describe(spec_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("header: got CRC-32C"));
}

TEST_F(ClientTest, DescriptionWithoutHeaderIsDataLoss) {
  server_.ThenDescribe([](v1::DescribeTensorResponse*) { return grpc::Status::OK; });
  EXPECT_EQ(MakeClient().Describe(spec_).status(),
            absl::DataLossError("stream: the first message has no header"));
}

TEST_F(ClientTest, RejectsAnswerToAnotherRequest) {
  v1::DescribeTensorRequest request;
  *request.mutable_spec() = spec_;
  const uint32_t want = Crc32cOf(request);
  server_.ThenDescribe([this, want](v1::DescribeTensorResponse* response) {
    *response->mutable_header() = header_;
    response->set_request_crc32c(want ^ 1);
    return grpc::Status::OK;
  });
  EXPECT_EQ(
      MakeClient().Describe(spec_).status(),
      absl::DataLossError(absl::StrCat("request_crc32c: got ", absl::Hex(want ^ 1, absl::kZeroPad8),
                                       ", want ", absl::Hex(want, absl::kZeroPad8))));
}

// The client later uses the description in a header without checking it again.
TEST_F(ClientTest, RejectsSelfContradictoryHeader) {
  const auto refusal = [this](auto change) {
    server_.ThenDescribe([this, change](v1::DescribeTensorResponse* response) {
      v1::TensorHeader& header = *response->mutable_header();
      header = header_;
      header.mutable_resolved_spec()->mutable_pair()->mutable_queries()->set_end(3);
      change(header, *header.mutable_resolved_spec());
      return grpc::Status::OK;
    });
    return std::string(MakeClient().Describe(spec_).status().message());
  };
  EXPECT_EQ(refusal([](v1::TensorHeader& header, v1::TensorSpec&) {
              v1::Range& rows = *header.add_fully_masked_rows();
              rows.set_begin(1);
              rows.set_end(3);
            }),
            "");
  for (const auto& [begin, end] : {std::pair(2, 4), std::pair(-1, 1), std::pair(1, 1)}) {
    EXPECT_THAT(refusal([begin, end](v1::TensorHeader& header, v1::TensorSpec&) {
                  v1::Range& rows = *header.add_fully_masked_rows();
                  rows.set_begin(begin);
                  rows.set_end(end);
                }),
                HasSubstr("want ascending ranges in [0, 3)"));
  }
  EXPECT_EQ(refusal([](v1::TensorHeader& header, v1::TensorSpec&) { header.add_column_axes(0); }),
            "header.column_axes: got columns that differ from those of the parts");
  const std::string beyond =
      "header.resolved_spec: got positions beyond 2^42, or a range that ends before it begins";
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(refusal([](v1::TensorHeader&, v1::TensorSpec& spec) {
              spec.mutable_pair()->mutable_keys()->set_end(kLast);
            }),
            beyond);
  EXPECT_EQ(refusal([](v1::TensorHeader&, v1::TensorSpec& spec) {
              spec.mutable_pair()->mutable_keys()->set_begin(1);
            }),
            beyond);
  EXPECT_EQ(refusal([](v1::TensorHeader&, v1::TensorSpec& spec) {
              spec.mutable_pair()->set_query_offset(-kLast - 1);
            }),
            beyond);
  EXPECT_EQ(refusal([](v1::TensorHeader& header, v1::TensorSpec&) {
              header.mutable_parts(0)->set_first_relative_position(kLast);
            }),
            beyond);
}

TEST_F(ClientTest, TimeoutBoundsWaitForServer) {
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

// Covers a replica that goes away and returns.
TEST_F(ClientTest, BalancesCallsAcrossReplicas) {
  FakeServer other;
  options_.target = absl::StrCat("ipv4:", server_.target(), ",", other.target());
  const Client client = *Client::Create(options_);
  const auto all_have_calls = [&] {
    const int before = server_.info_calls();
    const int of_other = other.info_calls();
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (absl::Now() < end &&
           (server_.info_calls() < before + 10 || other.info_calls() < of_other + 10)) {
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

TEST_F(ClientTest, LoadBalancingPolicyCanBeSet) {
  for (const auto& [name, value] :
       {std::pair("grpc.lb_policy_name", "pick_first"),
        std::pair("grpc.service_config", R"({"loadBalancingConfig": [{"pick_first": {}}]})")}) {
    FakeServer one;
    FakeServer other;
    const Client client =
        *Client::Create({.target = absl::StrCat("ipv4:", one.target(), ",", other.target()),
                         .channel_options = {{name, value}}});
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(client.ServerInfo().status(), absl::OkStatus());
    }
    EXPECT_EQ(std::abs(one.info_calls() - other.info_calls()), 20) << name;
  }
}

// The Python client has the same defaults; its tests check them too.
TEST(Client, DefaultsMatchOtherClients) {
  const ClientOptions options;
  EXPECT_EQ(options.timeout, absl::Seconds(300));
  EXPECT_EQ(options.max_tensor_bytes, int64_t{16} << 30);
  EXPECT_EQ(options.max_attempts, std::nullopt);
}

TEST_F(ClientTest, SendsMetadataWithEachCall) {
  options_.metadata = {{"authorization", "Bearer abc"}};
  EXPECT_EQ(MakeClient().ServerInfo().status(), absl::OkStatus());
  EXPECT_EQ(server_.callers().back().authorization, "Bearer abc");
}

TEST_F(ClientTest, LoopbackBypassesProxy) {
  ::setenv("http_proxy", "http://127.0.0.1:1", 1);
  options_.timeout = absl::Seconds(5);
  const auto health = MakeClient().CheckHealth("");
  ::unsetenv("http_proxy");
  EXPECT_EQ(health.status(), absl::OkStatus());
}

TEST(Client, NamesInvalidOption) {
  const auto message = [](const ClientOptions& options) {
    return std::string(Client::Create(options).status().message());
  };
  EXPECT_EQ(message({.target = ""}),
            "target: got \"\", want host, host:port, [IPv6]:port, unix:/path or "
            "another gRPC target");
  EXPECT_EQ(message({.timeout = absl::ZeroDuration()}), "timeout: got 0, want more than 0");
  EXPECT_EQ(message({.connect_timeout = absl::ZeroDuration()}),
            "connect_timeout: got 0, want more than 0");
  EXPECT_EQ(message({.max_tensor_bytes = 0}), "max_tensor_bytes: got 0, want more than 0");
  EXPECT_EQ(message({.max_attempts = 0}), "max_attempts: got 0, want at least 1");
  for (const char* const key : {"", "Tenant", "a key", "\xC3\xA4"}) {
    EXPECT_EQ(message({.metadata = {{"tenant", "a"}, {key, "a"}}}),
              absl::StrCat("metadata: got the key \"", absl::CHexEscape(key),
                           "\", want lowercase letters, digits, '-', '_' and '.'"));
  }
  for (const char* const value : {"Bearer a\n", "\xC3\xA4"}) {
    EXPECT_EQ(message({.metadata = {{"authorization", value}}}),
              "metadata: got a value for \"authorization\" that is not "
              "printable ASCII, want printable ASCII, or a key that ends in "
              "\"-bin\"");
    EXPECT_EQ(message({.metadata = {{"a-bin", value}}}), "");
  }
}

}  // namespace
}  // namespace attnbias::client_test
