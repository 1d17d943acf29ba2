// SPDX-License-Identifier: Apache-2.0
// Fetches an ALiBi bias as diagonals, then the dense row of its last query
// directly into the program's own memory.
#include <cstddef>
#include <iostream>
#include <vector>

#include "absl/types/span.h"
#include "attnbias/client.h"
#include "attnbias/error.h"
#include "attnbias/toeplitz.h"

namespace v1 = attnbias::v1;

constexpr int kHeads = 8;
constexpr int kLength = 1024;

int Fail(const absl::Status& status) {
  std::cerr << status.message() << "\n";
  for (const auto& violation : attnbias::FieldViolations(status)) {
    std::cerr << violation.field << ": " << violation.description << "\n";
  }
  return 1;
}

int main(int argc, char** argv) {
  const auto client = attnbias::Client::Create({.target = argc > 1 ? argv[1] : "localhost:50051"});
  if (!client.ok()) return Fail(client.status());

  v1::TensorSpec spec;
  spec.mutable_alibi()->set_num_heads(kHeads);
  spec.mutable_pair()->set_query_length(kLength);
  spec.mutable_pair()->set_key_length(kLength);

  // The compact form: F32 diagonals [kHeads, 2 kLength - 1], which take 64 KB instead of 32 MB.
  const absl::StatusOr<attnbias::Tensor> bias = client->Get(spec);
  if (!bias.ok()) return Fail(bias.status());
  const auto view = attnbias::Toeplitz<float>::Of(*bias);
  if (!view.ok()) return Fail(view.status());
  // Head, query and key, without bounds checks.
  std::cout << "query 1023, key 1020 of head 0: " << (*view)(0, 1023, 1020) << "\n";

  // The dense row of the last query: [kHeads, 1, kLength].
  spec.mutable_pair()->mutable_queries()->set_begin(kLength - 1);
  spec.mutable_pair()->mutable_queries()->set_end(kLength);
  spec.mutable_output()->set_form(v1::FORM_DENSE);
  std::vector<float> row(size_t{kHeads} * kLength);
  const absl::StatusOr<v1::TensorHeader> header = client->GetInto(
      spec, absl::MakeSpan(reinterpret_cast<std::byte*>(row.data()), row.size() * sizeof(float)));
  if (!header.ok()) return Fail(header.status());
  std::cout << "the same in the window:         " << row[1020] << "\n"
            << "fingerprint " << header->fingerprint() << "\n";
}
