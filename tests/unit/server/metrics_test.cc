// SPDX-License-Identifier: Apache-2.0
#include "server/observe/metrics.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace attnbias::metrics_test {
namespace {

using prometheus::MetricType;

std::map<std::string, double> Collected() {
  std::map<std::string, double> values;
  for (const prometheus::MetricFamily& family : CollectProcessMetrics()) {
    const prometheus::ClientMetric& metric = family.metric.front();
    values[family.name] = family.type == MetricType::Counter
                              ? metric.counter.value
                              : metric.gauge.value;
  }
  return values;
}

TEST(ProcessMetrics, HaveTheUsualNamesAndTypes) {
  std::map<std::string, MetricType> types;
  for (const prometheus::MetricFamily& family : CollectProcessMetrics()) {
    types[family.name] = family.type;
  }
  EXPECT_EQ(types, (std::map<std::string, MetricType>{
                       {"process_cpu_seconds_total", MetricType::Counter},
                       {"process_max_fds", MetricType::Gauge},
                       {"process_open_fds", MetricType::Gauge},
                       {"process_resident_memory_bytes", MetricType::Gauge},
                       {"process_start_time_seconds", MetricType::Gauge}}));
}

TEST(ProcessMetrics, MemoryCountsOnceItIsTouched) {
  constexpr double kBytes = 64 << 20;
  const double before = Collected()["process_resident_memory_bytes"];
  const std::vector<char> touched(static_cast<size_t>(kBytes), 'x');
  const double after = Collected()["process_resident_memory_bytes"];
  EXPECT_EQ(touched.back(), 'x');
  EXPECT_NEAR(after - before, kBytes, kBytes / 4);
}

TEST(ProcessMetrics, DescriptorsCountWhileTheyAreOpen) {
  const double before = Collected()["process_open_fds"];
  const int fd = open("/dev/null", O_RDONLY);
  EXPECT_EQ(Collected()["process_open_fds"], before + 1);
  close(fd);
  EXPECT_EQ(Collected()["process_open_fds"], before);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(Collected()["process_max_fds"],
            static_cast<double>(limit.rlim_cur));
}

TEST(ProcessMetrics, ProcessorsCountWhileTheyAreUsed) {
  const double before = Collected()["process_cpu_seconds_total"];
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  while (std::chrono::steady_clock::now() < until) {
  }
  const double used = Collected()["process_cpu_seconds_total"] - before;
  EXPECT_GT(used, 0.005);
}

TEST(ProcessMetrics, TheStartDoesNotMove) {
  const double now = std::chrono::duration<double>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
  const double start = Collected()["process_start_time_seconds"];
  EXPECT_LE(start, now);
  EXPECT_GT(start, now - 3600);
  EXPECT_EQ(Collected()["process_start_time_seconds"], start);
}

}  // namespace
}  // namespace attnbias::metrics_test
