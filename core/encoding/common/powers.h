// SPDX-License-Identifier: Apache-2.0
// Powers compared in integers, as borders of logarithmic buckets are defined.
#ifndef ATTNBIAS_CORE_ENCODING_COMMON_POWERS_H_
#define ATTNBIAS_CORE_ENCODING_COMMON_POWERS_H_

#include <gmp.h>

#include <cstdint>
#include <cstdlib>

namespace attnbias {

// The sign of (a / m)^s - (b / m)^k; none is negative, m not 0.
inline int ComparePowers(int64_t a, int64_t s, int64_t b, int64_t k,
                         int64_t m) {
  mpz_t left;
  mpz_t right;
  mpz_t factor;
  mpz_inits(left, right, factor, nullptr);
  mpz_ui_pow_ui(left, a, s);
  mpz_ui_pow_ui(right, b, k);
  mpz_ui_pow_ui(factor, m, std::abs(s - k));
  // Both sides are multiplied by m^max(s, k).
  mpz_ptr side = s > k ? right : left;
  mpz_mul(side, side, factor);
  const int sign = mpz_cmp(left, right);
  mpz_clears(left, right, factor, nullptr);
  return sign;
}

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_COMMON_POWERS_H_
