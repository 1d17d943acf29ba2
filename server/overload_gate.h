// SPDX-License-Identifier: Apache-2.0
// Readiness under load, with hysteresis.
#ifndef ATTNBIAS_SERVER_OVERLOAD_GATE_H_
#define ATTNBIAS_SERVER_OVERLOAD_GATE_H_

namespace attnbias {

// Turns a load that wavers into a verdict that does not: overloaded from
// kEnter on, until the load falls below kLeave.
class OverloadGate {
 public:
  static constexpr double kEnter = 0.95;
  static constexpr double kLeave = 0.80;

  // `load` is the part in use of whatever is scarcest, in [0, 1].
  bool Update(double load) {
    overloaded_ = load >= (overloaded_ ? kLeave : kEnter);
    return overloaded_;
  }

 private:
  bool overloaded_ = false;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_OVERLOAD_GATE_H_
