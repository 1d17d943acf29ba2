// SPDX-License-Identifier: Apache-2.0
// The C++ client for the suite: gets the tensor that a JSON object describes, or lists tables, and
// prints the outcome as one line of JSON.
#include <google/protobuf/util/json_util.h>
#include <openssl/sha.h>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "attnbias/client.h"
#include "attnbias/error.h"

namespace {

using nlohmann::json;
namespace v1 = attnbias::v1;

attnbias::ClientOptions OptionsOf(const json& settings) {
  attnbias::ClientOptions options{.target = settings.at("target")};
  options.timeout = absl::Seconds(settings.at("timeout").get<double>());
  if (settings.contains("token")) options.token = settings["token"];
  if (settings.contains("max_attempts")) {
    options.max_attempts = settings["max_attempts"].get<int>();
  }
  if (settings.contains("max_tensor_bytes")) {
    options.max_tensor_bytes = settings["max_tensor_bytes"].get<int64_t>();
  }
  if (settings.contains("connect_timeout")) {
    options.connect_timeout = absl::Seconds(settings["connect_timeout"].get<double>());
  }
  if (settings.contains("ca")) {
    options.tls = attnbias::TlsOptions{.ca_file = settings["ca"]};
  }
  return options;
}

std::string Sha256(absl::Span<const std::byte> data) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const uint8_t*>(data.data()), data.size(),
         reinterpret_cast<uint8_t*>(digest.data()));
  return absl::BytesToHexString(digest);
}

json Failure(const absl::Status& status) {
  std::vector<std::string> fields;
  for (const auto& violation : attnbias::FieldViolations(status)) {
    fields.push_back(violation.field);
  }
  return {{"status", absl::StatusCodeToString(status.code())},
          {"reason", attnbias::Reason(status)},
          {"request_id", attnbias::RequestId(status)},
          {"fields", fields},
          {"message", status.message()}};
}

// Returns the list of tables.
json Tables(const attnbias::Client& client) {
  const auto tables = client.ListTables();
  if (!tables.ok()) return Failure(tables.status());
  json names = json::array();
  for (const v1::TableInfo& table : *tables) names.push_back(table.name());
  return {{"tables", names}};
}

// Gets the tensor for `spec` several times, and returns the last outcome.
json Get(const attnbias::Client& client, const v1::TensorSpec& spec, int times) {
  absl::StatusOr<attnbias::Tensor> tensor = absl::UnknownError("not asked for");
  for (int i = times; i > 0; --i) tensor = client.Get(spec);
  if (!tensor.ok()) return Failure(tensor.status());
  json parts = json::object();
  for (int i = 0; i < tensor->header().parts_size(); ++i) {
    const v1::TensorPart& part = tensor->header().parts(i);
    parts[part.name()] = {
        {"dtype", absl::StripPrefix(v1::DataType_Name(part.data_type()), "DATA_TYPE_")},
        {"shape", std::vector<int64_t>(part.shape().begin(), part.shape().end())},
        {"sha256", Sha256(tensor->part(i))}};
  }
  return {{"fingerprint", tensor->header().fingerprint()}, {"parts", parts}};
}

}  // namespace

int main(int, char** argv) {
  const json settings = json::parse(argv[1]);
  const json& request = settings.at("request");
  v1::TensorSpec spec;
  const auto parsed =
      google::protobuf::util::JsonStringToMessage(request.is_null() ? "{}" : request.dump(), &spec);
  const auto client = attnbias::Client::Create(OptionsOf(settings));
  if (!parsed.ok() || !client.ok()) {
    std::cerr << parsed.ToString() << "\n" << client.status() << "\n";
    return 1;
  }
  const json got =
      request.is_null() ? Tables(*client) : Get(*client, spec, settings.value("times", 1));
  std::cout << got.dump(-1, ' ', /*ensure_ascii=*/true) << "\n";
}
