#include "ring/sites/site_lookup.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/eventfd.h>

#include <map>
#include <mutex>
#include <utility>

#include "base/quiet_thread.h"
#include "base/unique_fd.h"

namespace dlaunch {

struct SiteLookup::Answers {
  std::mutex mutex;
  std::map<int, Addresses> by_site;
  UniqueFd wake;

  void put(int site, Addresses found) {
    {
      const std::lock_guard lock(mutex);
      by_site.insert_or_assign(site, std::move(found));
    }
    ::eventfd_write(wake.get(), 1);
  }
};

SiteLookup::SiteLookup(int wake) : answers_(std::make_shared<Answers>()) {
  answers_->wake = UniqueFd(::fcntl(wake, F_DUPFD_CLOEXEC, 0));
}

void SiteLookup::ask(int site, const Endpoint& endpoint) {
  if (!asked_.insert(site).second) return;
  if (auto numeric = resolve(endpoint.host, endpoint.port, AI_NUMERICHOST)) {
    return answers_->put(site, std::move(numeric));
  }
  auto thread = start_quiet_thread([answers = answers_, site, endpoint] {
    auto found = resolve(endpoint.host, endpoint.port);
    if (!found) {
      found =
          Error{.code = Errc::io, .what = "resolve '" + endpoint.host + "': " + found.error().what};
    }
    answers->put(site, std::move(found));
  });
  // Nobody waits for a name server that does not answer.
  if (thread) return thread->detach();
  answers_->put(site, thread.error());
}

std::optional<SiteLookup::Addresses> SiteLookup::take(int site) {
  const std::lock_guard lock(answers_->mutex);
  auto answer = answers_->by_site.extract(site);
  if (answer.empty()) return std::nullopt;
  asked_.erase(site);
  return std::move(answer.mapped());
}

}  // namespace dlaunch
