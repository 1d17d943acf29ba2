// SPDX-License-Identifier: Apache-2.0
// Powers compared in integers, as borders of logarithmic buckets are defined.
#ifndef ATTNBIAS_CORE_ENCODING_COMMON_POWERS_H_
#define ATTNBIAS_CORE_ENCODING_COMMON_POWERS_H_

#include <gmpxx.h>

#include <cstdint>
#include <cstdlib>

namespace attnbias {

// The sign of (a / m)^s - (b / m)^k; none is negative, m not 0.
inline int ComparePowers(int64_t a, int64_t s, int64_t b, int64_t k,
                         int64_t m) {
  mpz_class left;
  mpz_class right;
  mpz_class factor;
  mpz_ui_pow_ui(left.get_mpz_t(), a, s);
  mpz_ui_pow_ui(right.get_mpz_t(), b, k);
  mpz_ui_pow_ui(factor.get_mpz_t(), m, std::abs(s - k));
  // Both sides are multiplied by m^max(s, k).
  (s > k ? right : left) *= factor;
  return cmp(left, right);
}

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_COMMON_POWERS_H_
