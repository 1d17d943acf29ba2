// SPDX-License-Identifier: Apache-2.0
// Lets the benchmark's driver alternate between programs: runs a round for each line on standard
// input and prints its result as a line on standard output.
#pragma once

#include <chrono>
#include <functional>
#include <iostream>
#include <string>

namespace attnbias {

// Prints "ready", then the result of each round.
inline void RunRounds(const std::function<double()>& round) {
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << round() << std::endl;
  }
}

inline double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count();
}

}  // namespace attnbias
