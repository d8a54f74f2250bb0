// PayloadSources: which payload an endpoint pulls from whom, and from which offset on; and which
// asks of others it can answer. Pure. SiteCore owns one, and the shell never calls it.
//
// All sites pull a payload along the ring of the last merge: a site from its predecessor, up to the
// payload's origin. So each line carries each payload once, and a relay passes on what it has while
// the rest still arrives. A source that is lost, silent, or brings no block for `stall`, is
// replaced by the next one before it in the ring, by the origin, or by any site that has the whole
// payload; the new source continues where the old one ended. A site without the whole payload is a
// source only while it is connected to the origin.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/clock.h"
#include "ring/sites/site_merge.h"

namespace dlaunch {

struct PayloadLimits {
  std::uint32_t block = 128 << 10;  // bytes of one ask
  int window = 32;                  // asks of a payload that wait for their blocks
  Duration stall = std::chrono::seconds(5);
};

struct PayloadAsk {  // ask `site` for these bytes; or, as an answer, send them to `site`
  int site = 0;
  Contribution payload;
  std::uint64_t offset = 0;
  std::uint32_t count = 0;
  bool operator==(const PayloadAsk&) const = default;
};

class PayloadSources {
 public:
  PayloadSources(int me, const PayloadLimits& limits) : me_(me), limits_(limits) {}

  void set_order(std::vector<std::int32_t> order) { order_ = std::move(order); }
  void peer_up(int site) { connected_.insert(site); }
  void peer_down(int site);
  // A silent site is a source only of what no other site can give.
  void set_silent(int site, bool silent);
  // What the site has in full, and whom it is connected to and hears.
  void peer_has(int site, const std::vector<Contribution>& whole, std::set<int> sees);
  // All bytes of it are here, and its digest is right: our own, or after arrived() and a check.
  void have(const Contribution& payload);
  // Pull it. No effect on a payload that is here or on its way.
  void want(TimePoint now, const Contribution& payload);
  // No longer needed: forgets it, and the asks for it.
  void drop(const Contribution& payload);
  // Its digest is wrong: pulls it again, from the start and from another site.
  void corrupt(TimePoint now, const Contribution& payload);

  // Whether this block is the next of a payload that is on its way.
  bool expects(const Contribution& payload, std::uint64_t offset, std::uint64_t count) const;
  // An expected block has come. True: all bytes are here, and the caller checks the digest.
  bool arrived(TimePoint now, int from, const Contribution& payload, std::uint64_t count);
  // A peer asks us; the answer may have to wait for the bytes.
  void asked(const PayloadAsk& ask);
  // Asks for payloads of merges up to this one, which are not here, get no answer any more.
  void forget_asks(const MergeId& up_to);

  // What to ask others, and what to send to them, by now.
  std::vector<PayloadAsk> take_asks(TimePoint now);
  std::vector<PayloadAsk> take_answers();
  TimePoint deadline() const;

  bool has(const Contribution& payload) const;
  bool knows(const Contribution& payload) const { return payloads_.contains(payload); }
  // Some connected site has all of it.
  bool has_holder(const Contribution& payload) const;
  std::vector<Contribution> whole() const;
  std::vector<Contribution> known() const;
  // Measured by the blocks that came from each site; 0: unknown.
  std::map<int, std::uint64_t> rates() const;

 private:
  struct Payload {
    std::uint64_t reached = 0;  // bytes that are here
    std::uint64_t asked = 0;    // bytes that the source was asked for
    bool whole = false;         // and its digest is right
    int source = -1;
    TimePoint moved{};  // when its last bytes came, or it got its source
    std::set<int> bad;  // sources that brought nothing
  };
  struct Flow {  // from one site
    TimePoint began{}, last{};
    std::uint64_t bytes = 0;
    double rate = 0;
  };

  std::vector<int> candidates(const Contribution& payload) const;
  std::optional<int> best_source(const Contribution& payload, const Payload& it) const;
  TimePoint stalls_at(const Payload& payload) const;
  void choose(TimePoint now, const Contribution& payload, Payload& it);
  void measure(TimePoint now, int from, std::uint64_t count);

  const int me_;
  const PayloadLimits limits_;
  std::vector<std::int32_t> order_;
  std::set<int> connected_, silent_;
  std::map<Contribution, Payload> payloads_;
  std::map<int, std::set<Contribution>> held_by_;
  std::map<int, std::set<int>> sees_;
  std::map<int, Flow> flows_;
  std::vector<PayloadAsk> waiting_;  // asks of others that we cannot answer yet
};

}  // namespace dlaunch
