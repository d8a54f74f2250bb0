// The C API of <dlaunch/sites.h>.
#include "dlaunch/sites.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>

#include <climits>
#include <fmt/format.h>

#include "base/contract.h"
#include "base/site_list.h"
#include "base/units.h"
#include "ring/api.h"
#include "ring/links/job_view.h"
#include "ring/links/mesh.h"
#include "ring/outer_sites.h"

using dlaunch::Duration;
using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::Result;
namespace contract = dlaunch::contract;

namespace {

static_assert(dlaunch::kLongestSiteList == dlaunch::kMostSites);
static_assert(dlaunch::kLongestSiteList == DL_SITES_MOST);

Error open_error(std::string what) {
  return dlaunch::usage_error("dl_sites_open: " + std::move(what));
}

std::string text_of(const char* option, const char* variable) {
  return option != nullptr ? option : dlaunch::process_environment()(variable).value_or("");
}

// The option if given, else the variable, else the value that the field has.
Result<void> time_of(double option, const char* variable, Duration& field) {
  if (option >= 0) {
    field = dlaunch::duration_of(option);
    return {};
  }
  const auto text = dlaunch::process_environment()(variable);
  if (!text) return {};
  auto time = dlaunch::parse_duration(*text);
  if (!time) return open_error(std::string(variable) + ": " + time.error().what);
  field = *time;
  return {};
}

Result<void> set_sites(const dl_sites_options& options, dlaunch::SiteEndpointConfig& config) {
  const std::string list = text_of(options.sites, contract::kSites);
  if (list.empty()) {
    return open_error(std::string(contract::kSites) +
                      " is not set: start the job with dlaunch --sites");
  }
  auto sites = dlaunch::parse_site_list(list);
  if (!sites) return open_error(sites.error().what);
  config.sites = std::move(*sites);
  const std::string own = text_of(options.site, contract::kSite);
  config.me = dlaunch::index_of(config.sites, own);
  if (config.me >= 0) return {};
  return open_error(own.empty()
                        ? std::string(contract::kSite) + " is not set"
                        : fmt::format("site '{}' is none of {}", own, names_of(config.sites)));
}

Result<void> set_rest(const dl_sites_options& options, const dlaunch::JobView& job,
                      dlaunch::SiteEndpointConfig& config) {
  if (auto ok = time_of(options.grace_s, contract::kSiteGrace, config.grace); !ok) return ok;
  if (auto ok = time_of(options.timeout_s, contract::kSiteTimeout, config.timeout); !ok) return ok;
  if (auto ok = time_of(options.wait_s, contract::kSiteWait, config.wait); !ok) return ok;
  if (auto ok = time_of(options.linger_s, contract::kSiteLinger, config.linger); !ok) return ok;
  if (config.timeout < std::chrono::milliseconds(100)) {
    return open_error("the time-out is shorter than 0.1 s");
  }
  config.journal = text_of(options.journal, contract::kSiteJournal);
  if (!job.secret_file.empty()) {
    auto secret = dlaunch::Secret::load(job.secret_file);
    if (!secret) return secret.error();
    config.secret = std::move(*secret);
  }
  if (config.secret.empty()) {
    return open_error(
        fmt::format("the sites need a secret, the same at all of them: {} is not set; dlaunch "
                    "--secret-file sets it",
                    contract::kSecretFile));
  }
  config.secret.set_encrypts(job.tls);
  config.host = dlaunch::own_host_name();
  return {};
}

}  // namespace

void dl_sites_options_init(dl_sites_options* options) {
  if (options == nullptr) return;
  *options = {.struct_size = sizeof(dl_sites_options),
              .sites = nullptr,
              .site = nullptr,
              .grace_s = -1,
              .timeout_s = -1,
              .wait_s = -1,
              .linger_s = -1,
              .journal = nullptr,
              .late = DL_SITES_CARRY};
}

dl_result dl_sites_open(dl_comm* comm, const dl_sites_options* given, dl_sites** sites) {
  if (sites != nullptr) *sites = nullptr;
  return dlaunch::with(comm, [&](dlaunch::Communicator&) -> Result<void> {
    dl_sites_options options;
    dl_sites_options_init(&options);
    if (given != nullptr) options = *given;
    if (sites == nullptr) return open_error("sites is null");
    if (options.struct_size != sizeof options) {
      return open_error("set the options by dl_sites_options_init() first");
    }
    if (options.late != DL_SITES_CARRY && options.late != DL_SITES_DROP) {
      return open_error("late is not a dl_sites_late");
    }
    auto made = std::make_unique<dl_sites>();
    made->comm = comm;
    made->late = options.late;
    if (auto ok = set_sites(options, made->config); !ok) return ok;
    if (auto ok = set_rest(options, comm->job, made->config); !ok) return ok;
    *sites = made.release();
    return {};
  });
}

void dl_sites_leave(dl_sites* sites) {
  if (sites == nullptr) return;
  sites->left = true;
  if (!sites->endpoint) return;
  sites->endpoint->linger(sites->config.grace, sites->ended);
  sites->end_endpoint();
}

void dl_sites_close(dl_sites* sites) {
  dl_sites_leave(sites);
  delete sites;
}

dl_result dl_sites_get_info(dl_sites* sites, dl_sites_info* info) {
  if (sites == nullptr || info == nullptr || info->struct_size != sizeof *info) {
    return DL_ERR_INVALID;
  }
  const std::lock_guard lock(sites->mutex);
  *info = {.struct_size = sizeof *info,
           .sites = static_cast<int>(sites->config.sites.size()),
           .site = sites->config.me,
           .merges = sites->last.number,
           .epoch = sites->last.epoch,
           .contributed = sites->contributed,
           .members = sites->members,
           .carried = sites->carried,
           .jumps = sites->jumps,
           .bytes_sent = {},
           .bytes_received = {}};
  if (!sites->endpoint) return DL_OK;
  const auto traffic = sites->endpoint->traffic();
  std::ranges::copy(traffic.sent, info->bytes_sent);
  std::ranges::copy(traffic.received, info->bytes_received);
  return DL_OK;
}

const char* dl_sites_name(const dl_sites* sites, int site) {
  if (sites == nullptr || site < 0) return nullptr;
  const auto& list = sites->config.sites;
  const auto at = static_cast<std::size_t>(site);
  return at < list.size() ? list[at].name.c_str() : nullptr;
}
