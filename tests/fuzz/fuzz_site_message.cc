#include "fuzz.h"
#include "ring/sites/site_message.h"

static int fuzz_site_message(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const auto message = decode_site_message(fuzz_text(data, size));
  if (!message) return -1;
  // What is accepted means the same once it was written again.
  const std::string written = encode(*message);
  const auto again = decode_site_message(written);
  fuzz_check(again && encode(*again) == written);
  return 0;
}

static std::vector<std::string> site_message_examples() {
  using namespace dlaunch;
  const SiteMember first{0, 11}, third{2, 13};
  const Contribution payload{third, {5, 7}, 100, 42};
  const Merge merge{.id = {5, 7},
                    .members = {first, third},
                    .contributions = {payload},
                    .order = {2, 0},
                    .founding = false,
                    .hash = 0};
  const Merge founding{.id = {6, 7},
                       .members = {first, third},
                       .contributions = {},
                       .order = {0, 2},
                       .founding = true,
                       .hash = 9};
  const SiteBallot ballot{3, 2};
  SiteStatus status;
  status.decided = status.held = {5, 6};
  status.whole = {payload};
  status.seen = {{third, {5, 6}}};
  status.rates = {{2, 1000}};
  status.slot = {5, 7};
  status.proposer = ballot;
  const std::vector<SiteMessage> given = {status,
                                          SitePrepare{{5, 7}, ballot},
                                          SitePromise{{5, 7}, ballot, SiteVote{{1, 0}, merge}},
                                          SiteRefusal{{5, 7}, {1, 0}, ballot},
                                          SiteAccept{ballot, merge},
                                          SiteAccepted{{5, 7}, ballot},
                                          SiteDecided{merge},
                                          SiteFound{founding},
                                          SiteAsk{payload, 10, 20},
                                          SiteBlock{payload, 10, "abc"},
                                          SiteStateAsk{{5, 6}, 4, 0, 100},
                                          SiteStateBlock{{5, 6}, 4, 50, 10, "abc"}};
  return one_of_each<SiteMessage>(given, [](const SiteMessage& it) { return encode(it); });
}

static const FuzzTarget site_message_target("site_message", fuzz_site_message,
                                            site_message_examples);
