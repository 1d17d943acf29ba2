// SPDX-License-Identifier: Apache-2.0
// Fetches a 2 GiB dense T5 bias (32 heads, 4096 x 4096, F32) into one buffer with the C++ client,
// including checksums. Each round prints its seconds.
//
//   stream_bench HOST:PORT
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "attnbias/client.h"
#include "tests/load/bench/rounds.h"

namespace {

constexpr int kHeads = 32;
constexpr int kBuckets = 32;
constexpr int kLength = 4096;

attnbias::v1::TensorSpec DenseSpec() {
  attnbias::v1::TensorSpec spec;
  attnbias::v1::T5& t5 = *spec.mutable_t5();
  t5.set_num_heads(kHeads);
  t5.set_bidirectional(true);
  attnbias::v1::InlineTable& table = *t5.mutable_table()->mutable_inline_table();
  table.set_data_type(attnbias::v1::DATA_TYPE_F32);
  table.add_shape(kBuckets);
  table.add_shape(kHeads);
  std::vector<float> numbers(size_t{kBuckets} * kHeads);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(i) / 7;
  }
  table.set_data(numbers.data(), numbers.size() * sizeof(float));
  spec.mutable_pair()->set_query_length(kLength);
  spec.mutable_pair()->set_key_length(kLength);
  spec.mutable_output()->set_form(attnbias::v1::FORM_DENSE);
  return spec;
}

void Fetch(const attnbias::Client& client, const attnbias::v1::TensorSpec& spec,
           std::vector<std::byte>& buffer) {
  const auto header = client.GetInto(spec, absl::MakeSpan(buffer));
  if (!header.ok()) {
    std::fprintf(stderr, "%s\n", header.status().ToString().c_str());
    std::exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s HOST:PORT\n", argv[0]);
    return 2;
  }
  attnbias::ClientOptions options;
  options.target = argv[1];
  const absl::StatusOr<attnbias::Client> client = attnbias::Client::Create(options);
  if (!client.ok()) {
    std::fprintf(stderr, "%s\n", client.status().ToString().c_str());
    return 1;
  }
  const attnbias::v1::TensorSpec spec = DenseSpec();
  constexpr size_t kBytes = sizeof(float) * kHeads * kLength * kLength;
  // Pages are touched before they are timed.
  std::vector<std::byte> buffer(kBytes, std::byte{1});
  attnbias::RunRounds([&] { return attnbias::Seconds([&] { Fetch(*client, spec, buffer); }); });
}
