// SPDX-License-Identifier: Apache-2.0
#include "server/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

namespace attnbias {
namespace {

double SecondsOf(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) / 1e9;
}

double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double pages = 0;
  statm >> pages >> pages;  // the second number
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double OpenDescriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator begin("/proc/self/fd", error);
  // Less the one that reads the folder.
  return error ? 0 : static_cast<double>(std::distance(begin, {}) - 1);
}

double MostDescriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur == RLIM_INFINITY
             ? std::numeric_limits<double>::infinity()
             : static_cast<double>(limit.rlim_cur);
}

// proc(5): the 22nd field, in ticks since the machine's start. The second is
// the program's name, in parentheses, and may hold anything.
double StartTime() {
  std::ifstream stat("/proc/self/stat");
  const std::string text(std::istreambuf_iterator<char>(stat), {});
  const size_t name_ends = text.rfind(')');
  if (name_ends == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_ends + 1));
  std::string skipped;
  for (int i = 3; i < 22; ++i) fields >> skipped;
  double ticks = 0;
  fields >> ticks;
  const double age = SecondsOf(CLOCK_BOOTTIME) -
                     ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  return SecondsOf(CLOCK_REALTIME) - age;
}

prometheus::MetricFamily Family(std::string name, std::string help,
                                prometheus::MetricType type, double value) {
  prometheus::ClientMetric metric;
  if (type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return {std::move(name), std::move(help), type, {std::move(metric)}};
}

}  // namespace

std::vector<prometheus::MetricFamily> CollectProcessMetrics() {
  using prometheus::MetricType;
  static const double start_time = StartTime();
  return {
      Family("process_cpu_seconds_total", "Time of processors used",
             MetricType::Counter, SecondsOf(CLOCK_PROCESS_CPUTIME_ID)),
      Family("process_resident_memory_bytes", "Memory that is resident",
             MetricType::Gauge, ResidentBytes()),
      Family("process_open_fds", "File descriptors that are open",
             MetricType::Gauge, OpenDescriptors()),
      Family("process_max_fds", "How many of them may be open",
             MetricType::Gauge, MostDescriptors()),
      Family("process_start_time_seconds", "Start, in Unix time",
             MetricType::Gauge, start_time),
  };
}

}  // namespace attnbias
