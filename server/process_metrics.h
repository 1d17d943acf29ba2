// SPDX-License-Identifier: Apache-2.0
// What the process takes of its machine, under the names that Prometheus' own
// clients have for it.
#ifndef ATTNBIAS_SERVER_PROCESS_METRICS_H_
#define ATTNBIAS_SERVER_PROCESS_METRICS_H_

#include <vector>

#include "prometheus/metric_family.h"

namespace attnbias {

// As it is now.
std::vector<prometheus::MetricFamily> CollectProcessMetrics();

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_PROCESS_METRICS_H_
