// SPDX-License-Identifier: Apache-2.0
// The integration tests compare these numbers with the system's.
#include "server/observe/metrics.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

namespace attnbias::metrics_test {
namespace {

using prometheus::MetricType;

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

}  // namespace
}  // namespace attnbias::metrics_test
