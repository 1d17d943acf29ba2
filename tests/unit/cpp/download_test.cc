// SPDX-License-Identifier: Apache-2.0
// Large payloads by ranges over several connections, and small ones in one
// message.
#include "client/cpp/src/download.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <future>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "attnbias/client.h"
#include "client/cpp/src/known_sizes.h"
#include "tests/unit/cpp/fake_server.h"

namespace attnbias::download_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr int64_t kMebibyte = 1 << 20;
constexpr int64_t kFirst = 16 * kMebibyte;
// For what comes at once. After half a minute gRPC would end a silent call.
constexpr absl::Duration kPatience = absl::Seconds(20);
const auto kBroken = grpc::Status(grpc::StatusCode::UNAVAILABLE, "broken");
const auto kBug = grpc::Status(grpc::StatusCode::INTERNAL, "a bug");
const auto kGone =
    grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "fingerprint");

TEST(WorthwhileStreams, FollowTheRate) {
  // At 64 MiB/s or less a range of 16 MiB is worth a stream.
  EXPECT_EQ(WorthwhileStreams(1, kFirst), 1);
  EXPECT_EQ(WorthwhileStreams(kFirst, kFirst), 1);
  EXPECT_EQ(WorthwhileStreams(kFirst + 1, kFirst), 2);
  EXPECT_EQ(WorthwhileStreams(3 * kFirst, 4 * kFirst), 3);
  EXPECT_EQ(WorthwhileStreams(100 * kFirst, 1), 8);
  // Ten times as fast, ten times as much.
  EXPECT_EQ(WorthwhileStreams(10 * kFirst, 40 * kFirst), 1);
  EXPECT_EQ(WorthwhileStreams(10 * kFirst + 1, 40 * kFirst), 2);
  EXPECT_EQ(
      WorthwhileStreams(1000 * kFirst, std::numeric_limits<double>::infinity()),
      1);
}

class DownloadTest : public ::testing::Test {
 protected:
  // A stream as the server saw it.
  struct Seen {
    int64_t offset;
    int64_t limit;
    std::string fingerprint;
    std::string peer;
  };

  Client MakeClient() {
    options_.target = server_.target();
    return *Client::Create(options_);
  }

  static std::string Text(const absl::StatusOr<Tensor>& tensor) {
    if (!tensor.ok()) return tensor.status().ToString();
    return {reinterpret_cast<const char*>(tensor->bytes().data()),
            tensor->bytes().size()};
  }

  // Each of the next streams, until those of another script.
  void ThenAll(int count, const Script& script) {
    for (int i = 0; i < count; ++i) {
      server_.Then([this, script](const FakeStream& stream) {
        {
          const std::lock_guard lock(mutex_);
          seen_.push_back(
              {stream.request.read_offset(), stream.request.read_limit(),
               stream.request.expected_fingerprint(), stream.context->peer()});
        }
        return script(stream);
      });
    }
  }

  Script Sends(const std::string& payload, const std::string& fingerprint) {
    return [&payload, fingerprint](const FakeStream& stream) {
      return stream.SendAll(payload, MakeHeader(payload, fingerprint),
                            kMebibyte);
    };
  }

  // What was seen, by offset; those of one offset in order.
  std::vector<Seen> ByOffset() const {
    const std::lock_guard lock(mutex_);
    std::vector<Seen> seen = seen_;
    std::ranges::stable_sort(seen, {}, &Seen::offset);
    return seen;
  }
  std::vector<std::pair<int64_t, int64_t>> Ranges() const {
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (const Seen& seen : ByOffset()) {
      ranges.emplace_back(seen.offset, seen.limit);
    }
    return ranges;
  }

  // Returns once so many have called it; false if they do not in time.
  bool Meet(int count) {
    ++met_;
    const absl::Time end = absl::Now() + kPatience;
    while (met_ < count && absl::Now() < end) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    return met_ >= count;
  }

  ClientOptions options_;
  v1::TensorSpec spec_ = [] {
    v1::TensorSpec spec;  // without an encoding: any consistent answer fits
    spec.mutable_output()->set_scale(8);
    return spec;
  }();
  std::atomic<int> met_ = 0;
  mutable std::mutex mutex_;
  std::vector<Seen> seen_;
  FakeServer server_;
};

class RangesTest : public DownloadTest {
 protected:
  // The server stops before what its scripts use is gone.
  ~RangesTest() override { server_.Stop(); }

  // 7.5 MiB and a bit after the first range: shares of 3 MiB.
  const std::string payload_ = MakePayload(kFirst + 15 * kMebibyte / 2 + 4);
};

TEST_F(RangesTest, OneStreamIsOneCall) {
  options_.streams = 1;
  ThenAll(1, Sends(payload_, "first"));
  EXPECT_TRUE(Text(MakeClient().Get(spec_)) == payload_);
  EXPECT_THAT(Ranges(), ElementsAre(Pair(0, 0)));
}

TEST_F(RangesTest, RangesComeAtOnceOverConnectionsOfTheirOwn) {
  options_.streams = 3;
  ThenAll(1, Sends(payload_, "first"));
  ThenAll(3, [this](const FakeStream& stream) {
    if (!Meet(3)) return kBug;
    return Sends(payload_, "first")(stream);
  });
  EXPECT_TRUE(Text(MakeClient().Get(spec_)) == payload_);
  const int64_t rest = static_cast<int64_t>(payload_.size()) - kFirst;
  EXPECT_THAT(Ranges(),
              ElementsAre(Pair(0, kFirst), Pair(kFirst, 3 * kMebibyte),
                          Pair(kFirst + 3 * kMebibyte, 3 * kMebibyte),
                          Pair(kFirst + 6 * kMebibyte, rest - 6 * kMebibyte)));
  const std::vector<Seen> seen = ByOffset();
  EXPECT_EQ(seen[0].fingerprint, "");
  std::set<std::string> peers;
  for (size_t i = 1; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].fingerprint, Fingerprint("first"));
    peers.insert(seen[i].peer);
  }
  EXPECT_EQ(peers.size(), 3u);
  EXPECT_EQ(seen[1].peer, seen[0].peer);
}

TEST_F(RangesTest, ConnectionsAreKept) {
  options_.streams = 3;
  const Client client = MakeClient();
  for (int i = 0; i < 2; ++i) {
    ThenAll(4, Sends(payload_, "first"));
    EXPECT_TRUE(Text(client.Get(spec_)) == payload_);
  }
  std::set<std::string> peers;
  for (const Seen& seen : seen_) peers.insert(seen.peer);
  EXPECT_EQ(seen_.size(), 8u);
  EXPECT_EQ(peers.size(), 3u);
}

TEST_F(RangesTest, WhatTheFirstRangeHasIsOneCall) {
  const std::string payload = MakePayload(kFirst);
  ThenAll(1, Sends(payload, "first"));
  EXPECT_TRUE(Text(MakeClient().Get(spec_)) == payload);
  EXPECT_THAT(Ranges(), ElementsAre(Pair(0, kFirst)));
}

// Less than is worth two streams, however slow they are.
TEST_F(RangesTest, ALittleMoreComesByOneStream) {
  ThenAll(2, Sends(payload_, "first"));
  EXPECT_TRUE(Text(MakeClient().Get(spec_)) == payload_);
  EXPECT_THAT(Ranges(), ElementsAre(Pair(0, kFirst),
                                    Pair(kFirst, payload_.size() - kFirst)));
}

TEST_F(RangesTest, ASlowWayHasSeveralStreams) {
  const std::string payload = MakePayload(3 * kFirst + 4);
  ThenAll(1, [&](const FakeStream& stream) {
    absl::SleepFor(absl::Milliseconds(250));
    return Sends(payload, "first")(stream);
  });
  ThenAll(3, Sends(payload, "first"));
  EXPECT_TRUE(Text(MakeClient().Get(spec_)) == payload);
  EXPECT_EQ(Ranges().size(), 4u);
}

TEST_F(RangesTest, ARangeThatBreaksGoesOnAlone) {
  options_.streams = 3;
  options_.max_attempts = 2;  // of each range
  ThenAll(1, Sends(payload_, "first"));
  ThenAll(3, [this](const FakeStream& stream) {
    if (!Meet(3)) return kBug;
    if (stream.request.read_offset() == kFirst) {
      return Sends(payload_, "first")(stream);
    }
    stream.SendHeader(MakeHeader(payload_, "first"));
    if (stream.request.read_offset() == kFirst + 3 * kMebibyte) {
      stream.SendChunk(payload_, kFirst + 3 * kMebibyte,
                       kFirst + 4 * kMebibyte);
    }
    return kBroken;
  });
  ThenAll(2, Sends(payload_, "first"));
  EXPECT_TRUE(Text(MakeClient().Get(spec_)) == payload_);
  const int64_t last =
      static_cast<int64_t>(payload_.size()) - kFirst - 6 * kMebibyte;
  EXPECT_THAT(Ranges(),
              ElementsAre(Pair(0, kFirst), Pair(kFirst, 3 * kMebibyte),
                          Pair(kFirst + 3 * kMebibyte, 3 * kMebibyte),
                          Pair(kFirst + 4 * kMebibyte, 2 * kMebibyte),
                          Pair(kFirst + 6 * kMebibyte, last),
                          Pair(kFirst + 6 * kMebibyte, last)));
}

TEST_F(RangesTest, TheFirstRangeGoesOnInsideOfItself) {
  options_.streams = 2;
  ThenAll(1, [this](const FakeStream& stream) {
    stream.SendHeader(MakeHeader(payload_, "first"));
    stream.SendChunk(payload_, 0, kMebibyte);
    return kBroken;
  });
  ThenAll(3, Sends(payload_, "first"));
  EXPECT_TRUE(Text(MakeClient().Get(spec_)) == payload_);
  EXPECT_THAT(Ranges()[1], Pair(kMebibyte, 15 * kMebibyte));
}

// All of it has come; how the stream ends is of no matter then.
TEST_F(RangesTest, ARangeThatIsCompleteMayBreak) {
  options_.streams = 2;
  ThenAll(3, [this](const FakeStream& stream) {
    Sends(payload_, "first")(stream);
    return kBroken;
  });
  EXPECT_TRUE(Text(MakeClient().Get(spec_)) == payload_);
  EXPECT_EQ(Ranges().size(), 3u);
}

TEST_F(RangesTest, APayloadThatHasChangedComesAnew) {
  const std::string other = MakePayload(kFirst + 5 * kMebibyte, 2);
  options_.streams = 2;
  ThenAll(1, Sends(payload_, "first"));
  ThenAll(2, [this](const FakeStream&) { return Meet(2) ? kGone : kBug; });
  ThenAll(1, Sends(other, "second"));
  std::vector<int64_t> done;
  std::string out(payload_.size(), 'x');
  const auto header = MakeClient().GetInto(
      spec_,
      absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()), out.size()),
      [&](int64_t bytes, int64_t) { done.push_back(bytes); });
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->fingerprint(), Fingerprint("second"));
  EXPECT_TRUE(out.starts_with(other));
  EXPECT_EQ(done.back(), static_cast<int64_t>(other.size()));
  EXPECT_EQ(std::ranges::count(done, kMebibyte), 2);
}

TEST_F(RangesTest, ItComesAnewOnlyOnce) {
  options_.streams = 2;
  ThenAll(1, Sends(payload_, "first"));
  ThenAll(2, [this](const FakeStream&) { return Meet(2) ? kGone : kBug; });
  ThenAll(1, [this](const FakeStream& stream) {
    stream.SendHeader(MakeHeader(payload_, "first"));
    stream.SendChunk(payload_, 0, kMebibyte);
    return kBroken;
  });
  ThenAll(1, [](const FakeStream&) { return kGone; });
  EXPECT_EQ(MakeClient().Get(spec_).status(),
            absl::FailedPreconditionError("fingerprint"));
  EXPECT_EQ(Ranges().size(), 5u);
}

TEST_F(RangesTest, OnlyWhatGoesOnMayFindAnotherPayload) {
  ThenAll(1, [this](const FakeStream& stream) {
    stream.SendHeader(MakeHeader(payload_, "first"));
    stream.SendChunk(payload_, 0, kMebibyte);
    return kGone;
  });
  EXPECT_EQ(MakeClient().Get(spec_).status(),
            absl::FailedPreconditionError("fingerprint"));
  EXPECT_EQ(Ranges().size(), 1u);
}

TEST_F(RangesTest, TheFirstFailureEndsTheOthers) {
  options_.streams = 3;
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(3);
  std::atomic<bool> cancelled = false;
  ThenAll(1, Sends(payload_, "first"));
  ThenAll(3, [&](const FakeStream& stream) {
    if (!Meet(3)) return grpc::Status::OK;
    if (stream.request.read_offset() == kFirst) {
      stream.SendHeader(MakeHeader(payload_, "first"));
      const absl::Time end = absl::Now() + kPatience;
      while (!stream.context->IsCancelled() && absl::Now() < end) {
        absl::SleepFor(absl::Milliseconds(1));
      }
      cancelled = stream.context->IsCancelled();
      return kBroken;
    }
    if (stream.request.read_offset() == kFirst + 3 * kMebibyte) {
      return WithDetail(grpc::StatusCode::UNAVAILABLE, "later", info);
    }
    // The other one waits by now, or is about to.
    absl::SleepFor(absl::Milliseconds(50));
    return kBug;
  });
  EXPECT_EQ(MakeClient().Get(spec_).status(), absl::InternalError("a bug"));
  server_.Stop();
  EXPECT_TRUE(cancelled);
  EXPECT_EQ(Ranges().size(), 4u);
}

TEST_F(RangesTest, ARangeOfAnotherPayloadIsDataLoss) {
  options_.streams = 1;
  ThenAll(1, [this](const FakeStream& stream) {
    stream.SendHeader(MakeHeader(payload_, "first"));
    stream.SendChunk(payload_, 0, kMebibyte);
    return kBroken;
  });
  ThenAll(1, Sends(payload_, "second"));
  const absl::Status lost = absl::DataLossError(
      absl::StrCat("stream: resumed with fingerprint ", Fingerprint("second"),
                   ", want ", Fingerprint("first")));
  EXPECT_EQ(MakeClient().Get(spec_).status(), lost);
  options_.streams = 2;
  ThenAll(1, Sends(payload_, "first"));
  ThenAll(2, Sends(payload_, "second"));
  EXPECT_EQ(MakeClient().Get(spec_).status(), lost);
}

// A server that knows no limit.
TEST_F(RangesTest, ARangeHasNoMoreThanWasAskedFor) {
  options_.streams = 2;
  ThenAll(1, [this](const FakeStream& stream) {
    stream.SendHeader(MakeHeader(payload_, "first"));
    for (int64_t at = 0; at < kFirst; at += kMebibyte) {
      stream.SendChunk(payload_, at, at + kMebibyte);
    }
    stream.SendChunk(payload_, kFirst, kFirst + 4);
    return grpc::Status::OK;
  });
  EXPECT_EQ(MakeClient().Get(spec_).status(),
            absl::DataLossError("chunk: got 4 bytes of data, want at most the "
                                "0 that are missing"));
}

TEST_F(RangesTest, ARangeThatEndsEarlyIsDataLoss) {
  options_.streams = 2;
  ThenAll(1, Sends(payload_, "first"));
  ThenAll(2, [this](const FakeStream& stream) {
    if (stream.request.read_offset() == kFirst) {
      return Sends(payload_, "first")(stream);
    }
    stream.SendHeader(MakeHeader(payload_, "first"));
    return grpc::Status::OK;
  });
  EXPECT_EQ(MakeClient().Get(spec_).status(),
            absl::DataLossError(
                absl::StrCat("stream: ended after ", kFirst + 4 * kMebibyte,
                             " bytes, want ", payload_.size())));
}

TEST_F(RangesTest, AllShareTheDeadline) {
  options_.streams = 2;
  options_.timeout = absl::Seconds(2);
  ThenAll(1, Sends(payload_, "first"));
  ThenAll(2, [](const FakeStream& stream) {
    const absl::Time end = absl::Now() + kPatience;
    while (!stream.context->IsCancelled() && absl::Now() < end) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    return grpc::Status::OK;
  });
  EXPECT_EQ(MakeClient().Get(spec_).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(RangesTest, CallbacksComeOneAtATime) {
  options_.streams = 4;
  std::atomic<int> inside = 0;
  std::vector<int64_t> done;
  const auto enter = [&] {
    EXPECT_EQ(++inside, 1);
    absl::SleepFor(absl::Milliseconds(1));
    --inside;
  };
  int retries = 0;
  options_.on_retry = [&](const absl::Status&) {
    enter();
    ++retries;
  };
  ThenAll(1, Sends(payload_, "first"));
  ThenAll(4, [this](const FakeStream& stream) {
    return Meet(4) && stream.request.read_offset() > kFirst
               ? kBroken
               : Sends(payload_, "first")(stream);
  });
  ThenAll(3, Sends(payload_, "first"));
  const auto tensor = MakeClient().Get(spec_, [&](int64_t bytes, int64_t) {
    enter();
    done.push_back(bytes);
  });
  EXPECT_TRUE(Text(tensor) == payload_);
  EXPECT_EQ(retries, 3);
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_EQ(done.back(), static_cast<int64_t>(payload_.size()));
}

TEST_F(RangesTest, ThreadsShareTheConnections) {
  options_.streams = 3;
  const Client client = MakeClient();
  ThenAll(4 * 4, Sends(payload_, "first"));
  std::vector<std::future<bool>> threads;
  for (int i = 0; i < 4; ++i) {
    threads.push_back(std::async(std::launch::async, [&, client] {
      return Text(client.Get(spec_)) == payload_;
    }));
  }
  for (std::future<bool>& thread : threads) EXPECT_TRUE(thread.get());
  std::set<std::string> peers;
  for (const Seen& seen : seen_) peers.insert(seen.peer);
  EXPECT_EQ(peers.size(), 3u);
}

class MessageTest : public DownloadTest {
 protected:
  static v1::GetTensorResponse Message(const std::string& payload,
                                       const std::string& fingerprint) {
    v1::GetTensorResponse message;
    *message.mutable_header() = MakeHeader(payload, fingerprint);
    const std::string header = message.header().SerializeAsString();
    message.set_header_crc32c(Crc32c(header.data(), header.size()));
    message.set_data(payload);
    message.set_crc32c(Crc32c(payload.data(), payload.size()));
    return message;
  }

  void ThenMessage(const v1::GetTensorResponse& message) {
    server_.ThenGet([message](v1::GetTensorResponse* response) {
      *response = message;
      return grpc::Status::OK;
    });
  }
  void ThenRefuse(const grpc::Status& status) {
    server_.ThenGet([status](v1::GetTensorResponse*) { return status; });
  }

  // A client that knows the size.
  Client Informed(int64_t bytes) {
    server_.ThenDescribe([bytes](v1::DescribeTensorResponse* response) {
      *response->mutable_header() =
          MakeHeader(std::string(bytes, ' '), "first");
      return grpc::Status::OK;
    });
    Client client = MakeClient();
    EXPECT_TRUE(client.Describe(spec_).ok());
    return client;
  }

  ~MessageTest() override { server_.Stop(); }

  const std::string small_ = MakePayload(10'000);
};

TEST_F(MessageTest, IsWhatWasDescribedAsSmall) {
  const Client client = Informed(10'000);
  ThenMessage(Message(small_, "first"));
  std::vector<int64_t> done;
  const auto tensor = client.Get(spec_, [&](int64_t bytes, int64_t total) {
    EXPECT_EQ(total, 10'000);
    done.push_back(bytes);
  });
  ASSERT_EQ(Text(tensor), small_);
  EXPECT_EQ(tensor->header().fingerprint(), Fingerprint("first"));
  EXPECT_THAT(done, ElementsAre(10'000));
  EXPECT_EQ(server_.get_calls(), 1);
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(MessageTest, IsWhatWasFetchedBefore) {
  const Client client = MakeClient();
  ThenAll(1, Sends(small_, "first"));
  EXPECT_EQ(Text(client.Get(spec_)), small_);
  EXPECT_EQ(server_.get_calls(), 0);
  for (int i = 0; i < 2; ++i) {
    ThenMessage(Message(small_, "first"));
    EXPECT_EQ(Text(client.Get(spec_)), small_);
  }
  EXPECT_EQ(server_.get_calls(), 2);
  EXPECT_EQ(server_.requests().size(), 1u);
}

// 4 MiB less 64 KiB are the most.
TEST_F(MessageTest, HasABound) {
  const std::string most = MakePayload((4 << 20) - (64 << 10));
  ThenMessage(Message(most, "first"));
  EXPECT_TRUE(Text(Informed(most.size()).Get(spec_)) == most);
  const std::string more = MakePayload((4 << 20) - (64 << 10) + 4);
  ThenAll(1, Sends(more, "first"));
  EXPECT_TRUE(Text(Informed(more.size()).Get(spec_)) == more);
  EXPECT_EQ(server_.get_calls(), 1);
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(MessageTest, OrElseAStreamIsTried) {
  const std::string large = MakePayload(kFirst + 5 * kMebibyte, 2);
  for (const auto code :
       {grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::PERMISSION_DENIED,
        grpc::StatusCode::UNIMPLEMENTED,
        grpc::StatusCode::RESOURCE_EXHAUSTED}) {
    const Client client = Informed(10'000);
    ThenRefuse({code, "no"});
    ThenAll(1, Sends(large, "second"));  // it has grown
    ThenAll(1, Sends(large, "second"));
    EXPECT_TRUE(Text(client.Get(spec_)) == large) << code;
    ThenAll(2, Sends(large, "second"));  // and that is known now
    EXPECT_TRUE(Text(client.Get(spec_)) == large) << code;
  }
  EXPECT_EQ(server_.get_calls(), 4);
}

// gRPC refuses it here, with RESOURCE_EXHAUSTED.
TEST_F(MessageTest, ThatIsTooLargeIsStreamed) {
  const std::string large = MakePayload(5 << 20);
  ThenMessage(Message(large, "first"));
  ThenAll(1, Sends(large, "first"));
  EXPECT_TRUE(Text(Informed(10'000).Get(spec_)) == large);
}

TEST_F(MessageTest, IsRetried) {
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_nanos(1'000'000);
  ThenRefuse(kBroken);
  ThenRefuse(WithDetail(grpc::StatusCode::RESOURCE_EXHAUSTED, "busy", info));
  ThenMessage(Message(small_, "first"));
  EXPECT_EQ(Text(Informed(10'000).Get(spec_)), small_);
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(MessageTest, IsNotAskedForWhereNoneIsToBeHad) {
  const Client client = Informed(10'000);
  ThenRefuse({grpc::StatusCode::PERMISSION_DENIED, "no"});
  for (int i = 0; i < 2; ++i) {
    ThenAll(1, Sends(small_, "first"));
    EXPECT_EQ(Text(client.Get(spec_)), small_);
  }
  EXPECT_EQ(server_.get_calls(), 1);
}

TEST_F(MessageTest, HasErrorsThatAreFinal) {
  ThenRefuse(kBug);
  EXPECT_EQ(Informed(10'000).Get(spec_).status(), absl::InternalError("a bug"));
  options_.max_attempts = 1;
  ThenRefuse(kBroken);
  EXPECT_EQ(Informed(10'000).Get(spec_).status(),
            absl::UnavailableError("broken"));
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(MessageTest, IsChecked) {
  const Client client = Informed(10'000);
  const auto lost = [&](const auto& change) {
    v1::GetTensorResponse message = Message(small_, "first");
    change(&message);
    ThenMessage(message);
    const absl::Status status = client.Get(spec_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(lost([](auto* m) { (*m->mutable_data())[999] ^= 1; }),
              HasSubstr("10000 bytes at offset 0 have CRC-32C"));
  EXPECT_THAT(lost([](auto* m) {
                m->mutable_header()->mutable_parts(0)->add_shape(1);
              }),
              HasSubstr("header: got CRC-32C"));
  EXPECT_THAT(lost([](auto* m) {
                m->mutable_header()->set_total_bytes(9'999);
                m->clear_header_crc32c();
              }),
              HasSubstr("header.total_bytes: got 9999"));
  EXPECT_EQ(lost([](auto* m) {
              m->clear_header();
              m->clear_header_crc32c();
            }),
            "stream: the first message has no header");
  EXPECT_EQ(lost([](auto* m) {
              m->mutable_data()->resize(9'996);
              m->set_crc32c(Crc32c(m->data().data(), m->data().size()));
            }),
            "message: has 9996 bytes, want 10000");
  EXPECT_EQ(lost([](auto* m) {
              m->mutable_data()->append(4, ' ');
              m->set_crc32c(Crc32c(m->data().data(), m->data().size()));
            }),
            "chunk: got 10004 bytes of data, want at most the 10000 that are "
            "missing");
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(MessageTest, HasToFitTheCallersMemory) {
  ThenMessage(Message(small_, "first"));
  std::string out(9'999, 'x');
  EXPECT_EQ(
      Informed(10'000)
          .GetInto(spec_,
                   absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()),
                                  out.size()))
          .status(),
      absl::InvalidArgumentError("out: got 9999 bytes, want at least 10000"));
}

TEST(KnownSizes, AreTheLastThousandOrSo) {
  const auto of = [](int heads) {
    v1::TensorSpec spec;
    spec.mutable_alibi()->set_num_heads(heads);
    return spec;
  };
  KnownSizes sizes;
  EXPECT_FALSE(sizes.FitsMessage(of(0)));
  for (int i = 0; i < 1025; ++i) sizes.Learn(of(i), 100);
  EXPECT_FALSE(sizes.FitsMessage(of(0)));
  EXPECT_TRUE(sizes.FitsMessage(of(1)));
  EXPECT_TRUE(sizes.FitsMessage(of(1024)));
  for (int i = 0; i < 2000; ++i) sizes.Learn(of(1024), 5 << 20);
  EXPECT_FALSE(sizes.FitsMessage(of(1024)));
  EXPECT_TRUE(sizes.FitsMessage(of(1)));
}

TEST(KnownSizes, HaveNoLargeSpecs) {
  v1::TensorSpec spec;
  auto& table = *spec.mutable_t5()->mutable_table()->mutable_inline_table();
  table.set_data(std::string(65'000, 'x'));
  KnownSizes sizes;
  sizes.Learn(spec, 100);
  EXPECT_TRUE(sizes.FitsMessage(spec));
  table.set_data(std::string(66'000, 'x'));
  sizes.Learn(spec, 100);
  EXPECT_FALSE(sizes.FitsMessage(spec));
}

}  // namespace
}  // namespace attnbias::download_test
