// SPDX-License-Identifier: Apache-2.0
// Readiness under load, with hysteresis.
#ifndef ATTNBIAS_SERVER_OVERLOAD_GATE_H_
#define ATTNBIAS_SERVER_OVERLOAD_GATE_H_

namespace attnbias {

// Overloaded from kEnter on, until the load falls below kLeave: so the verdict
// does not waver with the load.
class OverloadGate {
 public:
  static constexpr double kEnter = 0.95;
  static constexpr double kLeave = 0.80;

  // `load` is how much of the scarcest resource is in use, from 0 on.
  bool Update(double load) {
    overloaded_ = load >= (overloaded_ ? kLeave : kEnter);
    return overloaded_;
  }

 private:
  bool overloaded_ = false;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_OVERLOAD_GATE_H_
