// SPDX-License-Identifier: Apache-2.0
// KERPLE's two kernels: the definition of every element.
//
// An element is one real number, rounded once. At distance 0 it is +0.
#ifndef ATTNBIAS_CORE_ENCODING_BIAS_KERPLE_REFERENCE_H_
#define ATTNBIAS_CORE_ENCODING_BIAS_KERPLE_REFERENCE_H_

#include <cstddef>
#include <cstdint>

#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/evaluator.h"

namespace attnbias {

// The parameters of one head.
struct KerpleHead {
  KerpleHead(const v1::Kerple& spec, int head)
      : is_log(spec.kernel() == v1::KERPLE_KERNEL_LOG),
        p(spec.p(spec.p_size() == 1 ? 0 : head)),
        a(spec.a(spec.a_size() == 1 ? 0 : head)) {}

  // What ln(1 + a d) or d^p is multiplied by.
  double weight() const { return is_log ? -p : -a; }

  bool is_log;
  double p;
  double a;
};

// Writes the element at a distance: the definition, computed with ever more
// bits until they decide the rounding.
void ReferenceKerple(const KerpleHead& head, int64_t distance,
                     const NumberFormat& format, std::byte* out);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_BIAS_KERPLE_REFERENCE_H_
