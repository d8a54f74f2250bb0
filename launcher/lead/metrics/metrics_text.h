// A job's metrics as text for Prometheus and what understands it: OpenMetrics 1.0, or for clients
// that do not ask for that, Prometheus' own older format. dlaunch(1), METRICS, describes them.
// Pure.
#pragma once

#include <string>

#include "launcher/lead/control/job_status.h"
#include "launcher/lead/metrics/job_counters.h"

namespace dlaunch {

enum class MetricsForm { openmetrics, plain };

std::string render_metrics(const JobStatus& job, const JobCounters& counters, MetricsForm form);

}  // namespace dlaunch
