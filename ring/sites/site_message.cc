#include "ring/sites/site_message.h"

#include <algorithm>

#include "base/record.h"

namespace dlaunch {
namespace {

// A status names the contributions of the open slot and of the kept merges.
constexpr RecordLimits kSiteLimits{.text = kMostSiteBlock, .items = 256};

bool is_site_number(std::int32_t site) { return site >= 0 && site < kMostSites; }
// {} or one that a site made.
bool well_formed(const SiteBallot& ballot) {
  return ballot.count == 0 ? ballot.site == -1 : is_site_number(ballot.site);
}
bool is_made(const SiteBallot& ballot) { return ballot.count > 0 && is_site_number(ballot.site); }

bool well_formed(const SiteStatus& status) {
  const auto all = [](const auto& items, auto test) {
    return std::all_of(items.begin(), items.end(), test);
  };
  return well_formed(status.proposer) &&
         all(status.whole, [](const Contribution& it) { return makes_sense(it); }) &&
         all(status.seen, [](const SiteSeen& it) { return is_site_number(it.member.site); }) &&
         all(status.rates, [](const SiteRate& it) { return is_site_number(it.from); });
}
bool well_formed(const SiteVote& vote) {
  return is_made(vote.ballot) && makes_sense(vote.merge) && !vote.merge.founding;
}
bool well_formed(const SitePrepare& it) { return is_made(it.ballot); }
bool well_formed(const SitePromise& it) {
  return is_made(it.ballot) &&
         (!it.accepted || (well_formed(*it.accepted) && it.accepted->merge.id == it.slot));
}
bool well_formed(const SiteRefusal& it) { return is_made(it.ballot) && is_made(it.promised); }
bool well_formed(const SiteAccept& it) { return well_formed(SiteVote{it.ballot, it.merge}); }
bool well_formed(const SiteAccepted& it) { return is_made(it.ballot); }
bool well_formed(const SiteDecided& it) { return makes_sense(it.merge); }
bool well_formed(const SiteFound& it) { return makes_sense(it.merge) && it.merge.founding; }
bool well_formed(const SiteConsent&) { return true; }
bool well_formed(const SiteAsk& it) {
  return makes_sense(it.payload) && it.count > 0 && it.count <= kMostSiteBlock &&
         it.offset < it.payload.bytes && it.count <= it.payload.bytes - it.offset;
}
bool well_formed(const SiteBlock& it) {
  return makes_sense(it.payload) && !it.data.empty() && it.offset < it.payload.bytes &&
         it.data.size() <= it.payload.bytes - it.offset;
}
bool well_formed(const SiteStateAsk& it) { return it.count > 0 && it.count <= kMostSiteBlock; }
bool well_formed(const SiteStateBlock& it) {
  return it.offset <= it.total && it.data.size() <= it.total - it.offset &&
         (it.total == 0 || !it.data.empty());
}
bool well_formed(const SiteDenial&) { return true; }

bool is_sound(const SiteMessage& message) {
  return std::visit([](const auto& it) { return well_formed(it); }, message);
}

}  // namespace

std::string encode(const SiteMessage& message) {
  RecordWriter out(kSiteLimits);
  write_message(out, message);
  return out.take();
}

Result<SiteMessage> decode_site_message(std::string_view bytes) {
  return decode_message(RecordReader(bytes, kSiteLimits), is_sound);
}

}  // namespace dlaunch
