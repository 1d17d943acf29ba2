// SPDX-License-Identifier: Apache-2.0
// The spec of any encoding, or of any term of logits, as one type.
//
//   AnySpec spec = AlibiSpec{.num_heads = 8};
//   spec.name();                        // "alibi"
//   spec.As<AlibiSpec>()->num_heads;    // 8
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_ANY_SPEC_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_ANY_SPEC_H_

#include <any>
#include <concepts>
#include <string_view>
#include <utility>

#include "core/base/canonical_writer.h"
#include "core/encoding/spec/field.h"

namespace attnbias {

// A struct with a name, the field's in the contract, and a list of fields. It
// may have a `void Derive()`, which sets fields that are not set and follow
// from others, and a `void Canonicalise()`, after which specs of equal numbers
// are equal.
template <typename Spec>
concept IsSpec = requires(Spec spec) {
  { Spec::kName } -> std::convertible_to<std::string_view>;
  { spec.Fields() } -> std::same_as<FieldList>;
};

class AnySpec {
 public:
  // Of no encoding: an empty name, no fields.
  AnySpec() = default;
  template <IsSpec Spec>
  AnySpec(Spec spec)  // NOLINT: a Spec is any spec
      : value_(std::move(spec)), functions_(&kFunctionsOf<Spec>) {}

  // The Spec's; empty for nothing.
  std::string_view name() const { return functions_->name; }

  // Null where it is another.
  template <IsSpec Spec>
  const Spec* As() const {
    return std::any_cast<Spec>(&value_);
  }
  template <IsSpec Spec>
  Spec* As() {
    return std::any_cast<Spec>(&value_);
  }

  // Sets the fields that are not set and follow from others.
  void Derive() { functions_->derive(value_); }

  // They refer to this object.
  FieldList Fields() { return functions_->fields(value_); }

  // Writes everything that an encoding's numbers depend on but the output:
  // equal identities give equal numbers. `buckets`, of its values BUCKETS.
  void WriteIdentity(bool buckets, CanonicalWriter& writer) const {
    functions_->write_identity(value_, buckets, writer);
  }

 private:
  struct Functions {
    std::string_view name;
    void (*derive)(std::any& value);
    FieldList (*fields)(std::any& value);
    void (*write_identity)(const std::any& value, bool buckets,
                           CanonicalWriter& writer);
  };

  template <typename Spec>
  static void WriteIdentityOf(const std::any& value, bool buckets,
                              CanonicalWriter& writer) {
    Spec spec = *std::any_cast<Spec>(&value);
    if constexpr (requires { spec.Canonicalise(); }) spec.Canonicalise();
    Spec defaults;
    attnbias::WriteIdentity(spec.Fields(), defaults.Fields(), buckets, writer);
  }

  template <typename Spec>
  static void DeriveIn(std::any& value) {
    auto& spec = *std::any_cast<Spec>(&value);
    if constexpr (requires { spec.Derive(); }) spec.Derive();
  }

  template <typename Spec>
  static constexpr Functions kFunctionsOf = {
      Spec::kName, &DeriveIn<Spec>,
      [](std::any& value) { return std::any_cast<Spec>(&value)->Fields(); },
      &WriteIdentityOf<Spec>};
  static constexpr Functions kNothing = {
      "", [](std::any&) {}, [](std::any&) { return FieldList(); },
      [](const std::any&, bool, CanonicalWriter&) {}};

  std::any value_;
  const Functions* functions_ = &kNothing;
};

using EncodingSpec = AnySpec;

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_ANY_SPEC_H_
