// The sites of a training (--sites): which there are, and which one this job is.
#include "base/site_list.h"
#include "base/units.h"
#include "cli/plan_parts.h"

namespace dlaunch {
namespace {

constexpr Duration kLeastSiteTimeout = std::chrono::seconds(1);

// NAME=HOST:PORT,…; the path of a file may have '=', too.
bool is_site_list(std::string_view given) {
  const auto sign = given.find('=');
  return sign != std::string_view::npos && given.find('/') > sign;
}

// An error's code is that of reading a file, or of a wrong value.
Result<SiteList> read_sites(const PlanDraft& draft) {
  const Text& given = draft.options.sites;
  const bool is_list = is_site_list(*given);
  auto text = is_list ? Result<std::string>(*given) : draft.machine.read_file(*given);
  Result<SiteList> sites = text ? (is_list ? parse_site_list(*text) : parse_site_file(*text))
                                : Result<SiteList>(text.error());
  if (sites) return sites;
  const std::string where = is_list || !text ? given.source : given.source + " " + *given;
  return Error{.code = sites.error().code, .what = where + ": " + sites.error().what};
}

Result<std::string> own_site(PlanDraft& draft, const SiteList& sites) {
  const Text& site = draft.options.site;
  if (site) {
    if (index_of(sites, *site) >= 0) return *site;
    std::vector<std::string_view> known;
    for (const SiteAddress& one : sites) known.push_back(one.name);
    return refuse("{}: '{}' is not one of {}{}", site.source, *site, names_of(sites),
                  did_you_mean(*site, known));
  }
  SiteList here;
  for (const SiteAddress& one : sites) {
    if (draft.is_own(one.endpoint.host)) here.push_back(one);
  }
  if (here.size() == 1) return here.front().name;
  const std::string source = draft.options.sites.source;
  if (here.empty()) {
    return refuse("{}: no site has an address of this machine; say which one this job is: --site",
                  source);
  }
  return refuse("{}: {} are on this machine; say which one this job is: --site", source,
                names_of(here));
}

// The options that have no effect without --sites.
Result<void> without_sites(const PlanDraft& draft) {
  const Options& options = draft.options;
  for (const Text* option : {&options.site, &options.site_grace, &options.site_timeout,
                             &options.site_wait, &options.site_linger, &options.site_journal}) {
    if (is_mistaken(*option)) {
      return refuse("{}: only a job with --sites has sites", option->source);
    }
  }
  return {};
}

Result<void> plan_site_journal(PlanDraft& draft) {
  const Text& journal = draft.options.site_journal;
  if (!journal) return {};
  std::string& folder = draft.plan().sites.journal;
  folder = *journal;
  if (folder.empty()) return refuse("{}: the name of the folder is empty", journal.source);
  if (folder.starts_with('/')) return {};
  auto here = draft.machine.folder();
  if (!here) return here.error();
  folder = *here + "/" + folder;
  return {};
}

}  // namespace

Result<void> plan_sites(PlanDraft& draft) {
  const Options& options = draft.options;
  if (!options.sites) return without_sites(draft);
  auto list = read_sites(draft);
  if (!list) return list.error();
  auto own = own_site(draft, *list);
  if (!own) return own.error();
  SitesPlan& sites = draft.plan().sites;
  sites.list = std::move(*list);
  sites.own = std::move(*own);
  for (const auto& [option, field] : {std::pair(&options.site_grace, &sites.grace),
                                      std::pair(&options.site_timeout, &sites.timeout),
                                      std::pair(&options.site_wait, &sites.wait),
                                      std::pair(&options.site_linger, &sites.linger)}) {
    if (auto set = set_duration(*option, *field); !set) return set;
  }
  if (sites.timeout < kLeastSiteTimeout) {
    return refuse("{}: {} is too short, the least is {}", options.site_timeout.source,
                  *options.site_timeout, format_duration(kLeastSiteTimeout));
  }
  // A host of a job gets the secret from the leader.
  if (!draft.joins && draft.plan().secret_file.empty()) {
    return refuse("{}: the sites need a secret, the same at all of them: --secret-file",
                  options.sites.source);
  }
  return plan_site_journal(draft);
}

}  // namespace dlaunch
