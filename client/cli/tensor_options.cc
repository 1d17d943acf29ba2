// SPDX-License-Identifier: Apache-2.0
#include "client/cli/tensor_options.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/cli/spec_fields.h"

namespace attnbias {
namespace {

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  // Whether it came as A:B, which cuts a window, rather than as a length.
  bool is_window = false;
};

absl::StatusOr<Interval> ParseInterval(absl::string_view option,
                                       const std::string& text) {
  Interval interval;
  const std::vector<std::string> ends = absl::StrSplit(text, ':');
  interval.is_window = ends.size() == 2;
  const bool parsed =
      ends.size() <= 2 && absl::SimpleAtoi(ends.back(), &interval.end) &&
      (!interval.is_window || absl::SimpleAtoi(ends.front(), &interval.begin));
  if (!parsed) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": got \"", text,
                     "\", want a length N or a half-open range A:B"));
  }
  return interval;
}

void Fill(const Interval& interval, v1::Range* range) {
  range->set_begin(interval.begin);
  range->set_end(interval.end);
}

// Sets an enum field from an option, which may be absent.
template <typename Set>
absl::Status ReadEnum(absl::string_view option, const std::string& text,
                      const google::protobuf::EnumDescriptor& type, Set set) {
  if (text.empty()) return absl::OkStatus();
  const absl::StatusOr<int> value = ParseEnum(type, text);
  if (!value.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": ", value.status().message()));
  }
  set(*value);
  return absl::OkStatus();
}

bool HasTableExtent(const TensorOptions& o) {
  return !o.positions.empty() || !o.position_ids.empty();
}

bool HasPairExtent(const TensorOptions& o) {
  return !o.queries.empty() || !o.keys.empty() || !o.heads.empty() ||
         !o.align.empty() || o.query_offset.has_value() ||
         !o.query_position_ids.empty() || !o.key_position_ids.empty();
}

// What the encoding takes; "" for one that there is not.
std::string ExtentNamed(const std::string& encoding) {
  for (const auto* candidate : Encodings()) {
    if (candidate->name() == encoding) return ExtentOf(*candidate);
  }
  return "";
}

absl::Status BuildAxis(const std::string& text, v1::PositionList* list) {
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    int64_t position = 0;
    if (!absl::SimpleAtoi(word, &position)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--position-ids: got \"", word, "\", want integers, as 3,-1,3"));
    }
    list->add_positions(position);
  }
  return absl::OkStatus();
}

absl::Status BuildTableExtent(const TensorOptions& options,
                              v1::TableExtent* extent) {
  for (const std::string& axis : options.position_ids) {
    if (absl::Status status = BuildAxis(axis, extent->add_position_ids());
        !status.ok()) {
      return status;
    }
  }
  if (options.positions.empty()) return absl::OkStatus();
  const auto interval = ParseInterval("--positions", options.positions);
  if (!interval.ok()) return interval.status();
  Fill(*interval, extent->mutable_positions());
  return absl::OkStatus();
}

absl::Status BuildWindows(const TensorOptions& options,
                          v1::PairExtent* extent) {
  if (!options.queries.empty()) {
    const auto queries = ParseInterval("--queries", options.queries);
    if (!queries.ok()) return queries.status();
    extent->set_query_length(queries->end);
    if (queries->is_window) Fill(*queries, extent->mutable_queries());
  }
  if (!options.keys.empty()) {
    const auto keys = ParseInterval("--keys", options.keys);
    if (!keys.ok()) return keys.status();
    extent->set_key_length(keys->end);
    if (keys->is_window) Fill(*keys, extent->mutable_keys());
  }
  if (!options.heads.empty()) {
    const auto heads = ParseInterval("--heads", options.heads);
    if (!heads.ok()) return heads.status();
    Fill(*heads, extent->mutable_heads());
  }
  return absl::OkStatus();
}

absl::Status BuildPairExtent(const TensorOptions& options,
                             v1::PairExtent* extent) {
  if (options.query_offset.has_value()) {
    extent->set_query_offset(*options.query_offset);
  }
  if (!options.query_position_ids.empty()) {
    extent->mutable_query_positions()->mutable_positions()->Assign(
        options.query_position_ids.begin(), options.query_position_ids.end());
  }
  if (!options.key_position_ids.empty()) {
    extent->mutable_key_positions()->mutable_positions()->Assign(
        options.key_position_ids.begin(), options.key_position_ids.end());
  }
  if (absl::Status status = ReadEnum(
          "--align", options.align, *v1::Alignment_descriptor(),
          [&](int v) { extent->set_alignment(static_cast<v1::Alignment>(v)); });
      !status.ok()) {
    return status;
  }
  return BuildWindows(options, extent);
}

absl::Status BuildGridWindow(absl::string_view option, const std::string& text,
                             v1::Range* range) {
  const auto interval = ParseInterval(option, text);
  if (!interval.ok()) return interval.status();
  Fill(*interval, range);
  return absl::OkStatus();
}

// Tokens of a grid, whose lengths are the encoding's own.
absl::Status BuildGridExtent(const TensorOptions& options,
                             v1::TensorSpec* spec) {
  absl::Status status;
  if (!options.queries.empty()) {
    status.Update(BuildGridWindow("--queries", options.queries,
                                  spec->mutable_grid()->mutable_queries()));
  }
  if (!options.keys.empty()) {
    status.Update(BuildGridWindow("--keys", options.keys,
                                  spec->mutable_grid()->mutable_keys()));
  }
  if (!options.heads.empty()) {
    status.Update(BuildGridWindow("--heads", options.heads,
                                  spec->mutable_grid()->mutable_heads()));
  }
  return status;
}

absl::Status BuildFill(const std::string& text, v1::Mask* mask) {
  double value = 0;
  if (absl::EqualsIgnoreCase(text, "lowest")) {
    mask->set_fill_lowest(true);
  } else if (absl::SimpleAtod(text, &value)) {
    mask->set_fill_value(value);
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "--fill: got \"", text, "\", want a number, -inf or lowest"));
  }
  return absl::OkStatus();
}

absl::Status BuildMask(const TensorOptions& options, v1::Output* output) {
  const bool has_mask = options.causal || options.window_left.has_value() ||
                        options.window_right.has_value();
  if (!has_mask) {
    if (options.fill.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--fill: needs a mask: --causal, --window-left or --window-right");
  }
  v1::Mask* mask = output->mutable_mask();
  mask->set_causal(options.causal);
  if (options.window_left) mask->set_window_left(*options.window_left);
  if (options.window_right) mask->set_window_right(*options.window_right);
  if (options.fill.empty()) return absl::OkStatus();
  return BuildFill(options.fill, mask);
}

absl::Status BuildOutput(const TensorOptions& options, v1::Output* output) {
  if (options.scale.has_value()) output->set_scale(*options.scale);
  absl::Status status =
      ReadEnum("--form", options.form, *v1::Form_descriptor(),
               [&](int v) { output->set_form(static_cast<v1::Form>(v)); });
  if (!status.ok()) return status;
  status = ReadEnum(
      "--dtype", options.data_type, *v1::DataType_descriptor(),
      [&](int v) { output->set_data_type(static_cast<v1::DataType>(v)); });
  if (!status.ok()) return status;
  status =
      ReadEnum("--values", options.values, *v1::Values_descriptor(),
               [&](int v) { output->set_values(static_cast<v1::Values>(v)); });
  if (!status.ok()) return status;
  return BuildMask(options, output);
}

absl::Status BuildExtent(const TensorOptions& options, v1::TensorSpec* spec) {
  if (ExtentNamed(options.encoding) == "grid") {
    return BuildGridExtent(options, spec);
  }
  if (HasTableExtent(options)) {
    return BuildTableExtent(options, spec->mutable_table());
  }
  if (HasPairExtent(options)) {
    return BuildPairExtent(options, spec->mutable_pair());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::TensorSpec> BuildSpec(const TensorOptions& options) {
  v1::TensorSpec spec;
  absl::Status status = SetEncoding(options.encoding, options.fields, &spec);
  if (status.ok()) status = BuildExtent(options, &spec);
  if (status.ok()) status = BuildOutput(options, spec.mutable_output());
  if (!status.ok()) return status;
  return spec;
}

absl::Status CheckExtent(const TensorOptions& options) {
  const std::string extent = ExtentNamed(options.encoding);
  const bool table = extent == "table";
  const bool pair = extent == "pair";
  const absl::string_view why = table  ? " takes positions"
                                : pair ? " takes queries and keys"
                                       : " has its tokens in a grid";
  struct Option {
    absl::string_view name;
    bool given;
    bool fits;
  };
  for (const Option& option : {
           Option{"--positions", !options.positions.empty(), table},
           Option{"--position-ids", !options.position_ids.empty(), table},
           Option{"--queries", !options.queries.empty(), !table},
           Option{"--keys", !options.keys.empty(), !table},
           Option{"--heads", !options.heads.empty(), !table},
           Option{"--align", !options.align.empty(), pair},
           Option{"--query-offset", options.query_offset.has_value(), pair},
           Option{"--query-position-ids", !options.query_position_ids.empty(),
                  pair},
           Option{"--key-position-ids", !options.key_position_ids.empty(),
                  pair},
       }) {
    if (option.fits || !option.given) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        option.name, ": got a value, want none: ", options.encoding, why));
  }
  const auto missing = [&](absl::string_view option, absl::string_view ids) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": not given, want N, A:B or ", ids, ": ",
                     options.encoding, why));
  };
  if (table && !HasTableExtent(options)) {
    return missing("--positions", "--position-ids");
  }
  if (pair && options.queries.empty() && options.query_position_ids.empty()) {
    return missing("--queries", "--query-position-ids");
  }
  if (pair && options.keys.empty() && options.key_position_ids.empty()) {
    return missing("--keys", "--key-position-ids");
  }
  return absl::OkStatus();
}

}  // namespace attnbias
