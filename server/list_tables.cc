// SPDX-License-Identifier: Apache-2.0
#include "server/list_tables.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"
#include "google/protobuf/message.h"

namespace attnbias {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;
// A token is this and the last name of its page. The next page begins after
// that name, whatever has been mounted meanwhile.
constexpr char kTokenPrefix[] = "after:";

ptrdiff_t CommonPrefix(const std::string& a, const std::string& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
         a.begin();
}

// The mounted table of this digest. Where several have the same numbers, it is
// the one whose name is most like that of `own`.
const MountedTable* Mounted(const std::string& sha256, const MountedTable& own,
                            const TableSet& tables) {
  const MountedTable* best = nullptr;
  ptrdiff_t most = 0;
  for (const MountedTable& table : tables.tables()) {
    if (table.table.sha256() != sha256) continue;
    const ptrdiff_t alike = CommonPrefix(table.name, own.name);
    if (best == nullptr || alike > most) best = &table;
    most = std::max(most, alike);
  }
  return best;
}

// Adds the names of mounted tables to the digests in `message`.
void NameTables(const MountedTable& own, const TableSet& tables,
                Message* message) {
  const auto* reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->message_type() == nullptr) continue;
    if (field->is_repeated()) {
      for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
        NameTables(own, tables,
                   reflection->MutableRepeatedMessage(message, field, i));
      }
      continue;
    }
    Message* inner = reflection->MutableMessage(message, field);
    if (field->message_type() != v1::TableRef::descriptor()) {
      NameTables(own, tables, inner);
      continue;
    }
    auto* ref = static_cast<v1::TableRef*>(inner);
    if (const auto* named = Mounted(ref->sha256(), own, tables)) {
      ref->set_name(named->name);
    }
  }
}

void EncodeInfo(const MountedTable& mounted, const TableSet& tables,
                v1::TableInfo* info) {
  const Table& table = mounted.table;
  info->set_name(mounted.name);
  info->set_sha256(table.sha256());
  info->set_data_type(static_cast<v1::DataType>(table.data_type()));
  info->mutable_shape()->Assign(table.shape().begin(), table.shape().end());
  info->set_source(mounted.source);
  if (!mounted.spec.has_value()) return;
  *info->mutable_spec() = *mounted.spec;
  NameTables(mounted, tables, info->mutable_spec());
}

}  // namespace

absl::Status ListTables(const v1::ListTablesRequest& request,
                        const TableSet& tables,
                        v1::ListTablesResponse* response) {
  if (request.page_size() < 0 || request.page_size() > kMaxPageSize) {
    return Invalid("page_size: got ", request.page_size(),
                   ", want an integer in [0, ", kMaxPageSize, "]");
  }
  absl::string_view after = request.page_token();
  if (!after.empty() && !absl::ConsumePrefix(&after, kTokenPrefix)) {
    return Invalid(
        "page_token: not a token of this server, want the next_page_token of "
        "the last answer");
  }
  const int size =
      request.page_size() == 0 ? kDefaultPageSize : request.page_size();
  const auto all = tables.tables();
  auto next =
      std::upper_bound(all.begin(), all.end(), after,
                       [](absl::string_view name, const MountedTable& table) {
                         return name < absl::string_view(table.name);
                       });
  for (; next != all.end() && response->tables_size() < size; ++next) {
    EncodeInfo(*next, tables, response->add_tables());
  }
  if (next != all.end()) {
    response->set_next_page_token(absl::StrCat(kTokenPrefix, (next - 1)->name));
  }
  return absl::OkStatus();
}

}  // namespace attnbias
