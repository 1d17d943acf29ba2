// SPDX-License-Identifier: Apache-2.0
// Applies the contract's rules for each field (options.proto) to a request and its learned tables:
// range, default, presence, and dependencies on other fields.
//
// The rules for every message are compiled once. Rules that combine fields in other ways are C++
// code next to the mathematics.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attnbias/v1/tensor.pb.h"
#include "core/table/table.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/generated_enum_reflection.h"
#include "google/protobuf/message.h"

namespace attnbias {

// Holds the learned tables of one request. The request names each table by digest.
class Tables {
 public:
  struct Entry {
    Table table;
    // Path of the first field that refers to the table.
    std::string field;
  };

  // Returns the reference by which a message names a table.
  static v1::TableRef RefTo(const Table& table) {
    v1::TableRef ref;
    ref.set_sha256(table.sha256());
    ref.set_layout(v1::TABLE_LAYOUT_BUCKETS_HEADS);
    return ref;
  }

  v1::TableRef Add(const Table& table, std::string field = "") {
    v1::TableRef ref = RefTo(table);
    if (!Get(ref).has_value()) entries_.push_back({table, std::move(field)});
    return ref;
  }

  // Returns the table that a reference names, or nothing if the reference is not set.
  std::optional<Table> Get(const v1::TableRef& ref) const {
    for (const Entry& entry : entries_) {
      if (entry.table.sha256() == ref.sha256()) return entry.table;
    }
    return std::nullopt;
  }

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

// Checks every field of `message` and of the messages inside it, and fills in values implied by the
// fields that are set: first the `given_by` values, then the defaults. A field that another field
// makes meaningless stays unset. `path` and "." precede field names in errors. `buckets` means that
// the request is for BUCKETS, for which `of_bias` fields are neither checked nor required.
// `message` must contain only TableRefs that `tables` holds.
//
// INVALID_ARGUMENT  the error begins with the field's path and ": "
absl::Status Complete(absl::string_view path, bool buckets, const Tables& tables,
                      google::protobuf::Message& message);

// Returns canonical bytes of a message that Complete accepted. Equal bytes mean equal values:
// fields equal to their defaults, derived fields and, with `buckets`, bias fields are omitted; -0
// becomes 0; a table is replaced by its digest.
std::string IdentityOf(const google::protobuf::Message& message, bool buckets,
                       const Tables& tables);

// Returns the field that is set in a oneof of `message`.
//
// INVALID_ARGUMENT  none is set; the error names all of them
absl::StatusOr<const google::protobuf::FieldDescriptor*> FieldIn(
    absl::string_view oneof, const google::protobuf::Message& message);

// Returns the path of a field in the message at `parent`, which may be "".
std::string PathOf(absl::string_view parent, const google::protobuf::FieldDescriptor& field);

// Calls `visit` for each message in `field`, singular or repeated, with its path, until an error
// occurs. `path` is the field's path.
absl::Status ForEachMessage(
    google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field,
    const std::string& path,
    absl::FunctionRef<absl::Status(const std::string&, google::protobuf::Message&)> visit);

// Returns "LOG" for KERPLE_KERNEL_LOG.
std::string ShortName(const google::protobuf::EnumDescriptor& type, int value);

// Returns "LOG or POWER" for all values of KerpleKernel.
std::string ShortNames(const google::protobuf::EnumDescriptor& type);

template <typename Enum>
std::string ShortName(Enum value) {
  return ShortName(*google::protobuf::GetEnumDescriptor<Enum>(), value);
}

}  // namespace attnbias
