// SPDX-License-Identifier: Apache-2.0
// Gets what others ask for by the C++ client: attnbias-cpp-get TARGET
// [offline]. Each line is a TensorSpec, serialised, in hex; the answers are a
// header and a payload likewise.
#include <iostream>
#include <string>

#include "absl/strings/escaping.h"
#include "attnbias/client.h"

int main(int argc, char** argv) {
  const auto client = attnbias::Client::Create(
      {.target = argv[1],
       .on_cache_error =
           [](const absl::Status& error) { std::cerr << error << "\n"; },
       .offline = argc > 2});
  if (!client.ok()) {
    std::cerr << client.status() << "\n";
    return 1;
  }
  std::string line;
  while (std::getline(std::cin, line)) {
    attnbias::v1::TensorSpec spec;
    if (!spec.ParseFromString(absl::HexStringToBytes(line))) return 2;
    const absl::StatusOr<attnbias::Tensor> tensor = client->Get(spec);
    if (!tensor.ok()) {
      std::cerr << tensor.status() << "\n";
      return 1;
    }
    const std::string payload(
        reinterpret_cast<const char*>(tensor->bytes().data()),
        tensor->bytes().size());
    std::cout << absl::BytesToHexString(tensor->header().SerializeAsString())
              << " " << absl::BytesToHexString(payload) << std::endl;
  }
}
