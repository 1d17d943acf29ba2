// SPDX-License-Identifier: Apache-2.0
// Makes the bytes of .safetensors files for tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attnbias {

// Returns a file's bytes: the header's length, the header and the data.
inline std::string SafetensorsBytes(const std::string& header, std::string_view data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(header.size() >> (8 * i)));
  }
  return absl::StrCat(bytes, header, std::string(data));
}

struct F32Tensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

inline std::string SafetensorsBytes(const std::vector<F32Tensor>& tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::string data;
  for (const F32Tensor& tensor : tensors) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size() * 4);
    absl::StrAppend(&header, ",\"", tensor.name, "\":{\"dtype\":\"F32\",\"shape\":[",
                    absl::StrJoin(tensor.shape, ","), "],\"data_offsets\":[", begin, ",",
                    data.size(), "]}");
  }
  return SafetensorsBytes(header + "}", data);
}

}  // namespace attnbias
