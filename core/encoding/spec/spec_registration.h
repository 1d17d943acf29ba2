// SPDX-License-Identifier: Apache-2.0
// Who describes each spec, by its name. Whoever does registers it, so that
// nobody else has to know it.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_SPEC_REGISTRATION_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_SPEC_REGISTRATION_H_

#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/invalid.h"
#include "core/base/status_macros.h"
#include "core/encoding/spec/any_spec.h"

namespace attnbias {

// Makes a spec known, for the life of the program, by a function that describes
// it once its fields have passed CheckFields.
template <typename Description, typename... Context>
class SpecRegistration {
 public:
  template <typename Spec>
  explicit SpecRegistration(absl::StatusOr<Description> (*describe)(
      const Spec& spec, const Context&... context)) {
    Known().emplace(
        Spec::kName,
        Entry{[] { return AnySpec(Spec()); },
              [describe](const AnySpec& spec, const Context&... context) {
                return describe(*spec.As<Spec>(), context...);
              }});
  }

  // The spec of that name with nothing set; nothing where there is none.
  static std::optional<AnySpec> DefaultSpec(std::string_view name) {
    const auto found = Known().find(name);
    if (found == Known().end()) return std::nullopt;
    return found->second.default_spec();
  }

  // The names of all, in alphabetical order.
  static std::vector<std::string_view> Names() {
    std::vector<std::string_view> names;
    for (const auto& [name, entry] : Known()) names.push_back(name);
    return names;
  }

  // Sets fields of the spec that follow from others. `field` is where the spec
  // stands, `buckets` as CheckFields has it.
  static absl::StatusOr<Description> Describe(absl::string_view field,
                                              AnySpec& spec, bool buckets,
                                              const Context&... context) {
    const auto found = Known().find(spec.name());
    if (found == Known().end()) return Invalid(field, ": not set");
    spec.Derive();
    AnySpec defaults = found->second.default_spec();
    ATTNBIAS_RETURN_IF_ERROR(
        CheckFields(spec.name(), spec.Fields(), defaults.Fields(), buckets));
    return found->second.describe(spec, context...);
  }

 private:
  struct Entry {
    AnySpec (*default_spec)();
    std::function<absl::StatusOr<Description>(const AnySpec& spec,
                                              const Context&... context)>
        describe;
  };

  static std::map<std::string_view, Entry>& Known() {
    static auto* const known = new std::map<std::string_view, Entry>;
    return *known;
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_SPEC_REGISTRATION_H_
