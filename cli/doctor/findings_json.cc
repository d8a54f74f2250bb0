#include "cli/doctor/findings_json.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "cli/doctor/sites.h"
#include "launcher/wire/json_text.h"

namespace dlaunch {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;

json or_null(const std::string& text) { return text.empty() ? json() : json(text); }
template <class Number>
json unless(bool unknown, Number number) {
  return unknown ? json() : json(number);
}

json gpu_json(const GpuFacts& gpu) {
  const GpuFigures& figures = gpu.figures;
  return {{"bus", figures.bus},
          {"uuid", figures.uuid},
          {"lost", or_null(figures.lost)},
          {"temperature_c", unless(figures.temperature < 0, figures.temperature)},
          {"memory_bytes", figures.memory_total},
          {"memory_used_bytes", figures.memory_used},
          {"uncorrected_errors", unless(figures.uncorrected < 0, figures.uncorrected)},
          {"reset_needed", figures.pages_pending || figures.rows_pending},
          {"rows_failed", figures.rows_failed},
          {"xid", unless(gpu.xid == 0, gpu.xid)},
          {"test_failed", or_null(gpu.test.wrong)},
          {"to_gpu_bytes_per_s", unless(gpu.test.to_gpu_per_s <= 0, gpu.test.to_gpu_per_s)},
          {"from_gpu_bytes_per_s", unless(gpu.test.from_gpu_per_s <= 0, gpu.test.from_gpu_per_s)}};
}

json host_json(const HostFacts& host) {
  json gpus = json::array();
  for (const GpuFacts& gpu : host.gpu_facts.gpus) gpus.push_back(gpu_json(gpu));
  return {{"host", host.host},
          {"address", or_null(host.address)},
          {"interface", or_null(host.interface)},
          {"mtu", unless(host.mtu == 0, host.mtu)},
          {"name_is_loopback", host.named_loopback},
          {"cpus", host.cpus},
          {"cpu_quota", unless(host.cpu_quota <= 0, host.cpu_quota)},
          {"load", host.load},
          {"memory_bytes", host.memory},
          {"memory_free_bytes", host.memory_free},
          {"open_files", host.open_files},
          {"locked_memory_bytes", unless(host.locked_memory == ~0ull, host.locked_memory)},
          {"shared_memory_bytes", host.shared_memory},
          {"send_buffer_bytes", host.send_buffer},
          {"receive_buffer_bytes", host.recv_buffer},
          {"huge_pages", or_null(host.huge_pages)},
          {"infiniband", host.infiniband},
          {"gpu_count", host.gpus},
          {"gpu_driver", or_null(host.gpu_driver)},
          {"gpu_trouble", or_null(host.gpu_facts.trouble)},
          {"gpus", std::move(gpus)},
          {"clock_ahead_s", host.clock_ahead_s},
          {"clock_error_s", host.clock_error_s},
          {"started_s", unless(host.started_s < 0, host.started_s)}};
}

json pair_json(const PairFacts& pair, const std::vector<HostFacts>& hosts) {
  const auto name = [&](int at) { return hosts[static_cast<std::size_t>(at)].host; };
  return {{"from", name(pair.a)},
          {"to", name(pair.b)},
          {"round_trip_s", pair.round_trip_s},
          {"bytes_per_s", pair.bytes_per_s},
          {"bytes_per_s_back", pair.bytes_per_s_back}};
}

}  // namespace

std::string json_report_of(const std::vector<HostFacts>& hosts, const std::vector<PairFacts>& pairs,
                           const std::vector<Finding>& findings) {
  json report = {{"format", kFormat},
                 {"hosts", json::array()},
                 {"pairs", json::array()},
                 {"sites", json::array()},
                 {"findings", json::array()}};
  for (const HostFacts& host : hosts) report["hosts"].push_back(host_json(host));
  for (const PairFacts& pair : pairs) report["pairs"].push_back(pair_json(pair, hosts));
  for (const auto& site : sites_of(static_cast<int>(hosts.size()), pairs)) {
    json names = json::array();
    for (const int host : site) names.push_back(hosts[static_cast<std::size_t>(host)].host);
    report["sites"].push_back(std::move(names));
  }
  for (const Finding& finding : findings) {
    report["findings"].push_back({{"severity", finding.bad ? "problem" : "warning"},
                                  {"what", finding.what},
                                  {"fix", finding.fix}});
  }
  const auto bad = std::count_if(findings.begin(), findings.end(),
                                 [](const Finding& finding) { return finding.bad; });
  report["problems"] = bad;
  report["warnings"] = static_cast<std::ptrdiff_t>(findings.size()) - bad;
  return json_text(report, 2) + "\n";
}

}  // namespace dlaunch
