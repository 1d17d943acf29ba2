// SPDX-License-Identifier: Apache-2.0
#include "server/service/precompute.h"

#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/mount/json_file.h"
#include "core/mount/registry.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "server/service/messages.h"

namespace attnbias {
namespace {

absl::StatusOr<PlanPtr> PlanOf(const nlohmann::json& entry, const Engine& engine,
                               const TableSet& tables) {
  v1::TensorSpec spec;
  const auto parsed = google::protobuf::util::JsonStringToMessage(entry.dump(), &spec);
  if (!parsed.ok()) {
    return Invalid("not a TensorSpec: ", parsed.ToString());
  }
  // In JSON, an enum value may be a number, which may be unknown.
  ATTNBIAS_RETURN_IF_ERROR(CheckKnown(spec));
  ATTNBIAS_ASSIGN_OR_RETURN(const Tables found, TakeTables(tables, spec));
  return engine.MakePlan(std::move(spec), found);
}

absl::Status ComputeOne(const PlanPtr& plan, Engine* engine, const CallerPtr& caller) {
  std::promise<absl::Status> done;
  engine->Get(plan, caller,
              [&done](absl::StatusOr<PayloadPtr> payload) { done.set_value(payload.status()); });
  return done.get_future().get();
}

}  // namespace

absl::StatusOr<std::vector<PlanPtr>> ReadPrecomputeFile(const std::string& path,
                                                        const Engine& engine,
                                                        const TableSet& tables) {
  ATTNBIAS_ASSIGN_OR_RETURN(const nlohmann::json entries, ReadJsonFile(path));
  if (!entries.is_array()) {
    return Invalid(path, ": not a JSON array of TensorSpec");
  }
  std::vector<PlanPtr> plans;
  for (const nlohmann::json& entry : entries) {
    absl::StatusOr<PlanPtr> plan = PlanOf(entry, engine, tables);
    if (!plan.ok()) {
      return Located(absl::StrCat(path, ": entry ", plans.size()), plan.status());
    }
    plans.push_back(*std::move(plan));
  }
  return plans;
}

absl::Status Precompute(const std::vector<PlanPtr>& plans, Engine* engine,
                        const CallerPtr& caller) {
  for (size_t i = 0; i < plans.size(); ++i) {
    absl::Status status = ComputeOne(plans[i], engine, caller);
    if (caller->cancelled()) {
      return absl::CancelledError("the precomputation was canceled");
    }
    if (!status.ok()) {
      return Located(absl::StrCat("precompute entry ", i), status);
    }
  }
  // Some tensors are never cached, and a later one may have evicted an earlier one.
  for (size_t i = 0; i < plans.size(); ++i) {
    if (engine->Find(plans[i], caller) != nullptr) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("precompute entry ", i,
                     ": not cached. The cache holds no tensor of structure "
                     "DENSE, no tensor larger than an eighth of the memory budget of ",
                     engine->budget().limit(), " bytes, and no more than the budget in total"));
  }
  return absl::OkStatus();
}

}  // namespace attnbias
