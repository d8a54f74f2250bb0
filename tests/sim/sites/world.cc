#include "tests/sim/sites/world.h"

#include <algorithm>

#include <fmt/format.h>

#include "tests/sim/sites/saboteur.h"

namespace dlaunch::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kSiteBugNames[kSiteBugs] = {
    "none",         "half quorum",     "forgotten promise", "early accept",
    "ignored vote", "kept membership", "no consent",        "no take over",
    "one source",   "lost source"};

// Now and then a trainer gives something else than the others.
std::uint64_t kind_of(const Contribution& payload) { return payload.digest % 100 == 0 ? 1 : 0; }

}  // namespace

const char* to_string(SiteBug bug) { return kSiteBugNames[static_cast<int>(bug)]; }

struct Federation::Letter {
  std::shared_ptr<const SiteMessage> message;  // null: the other end is closed
};

// The pair's connection; end 0 is that of the lower site.
struct Federation::Line {
  std::uint64_t id = 0;
  bool open[2] = {false, false};
  TimePoint heard[2];          // by that end
  TimePoint last[2];           // when the last letter to that end arrives
  std::deque<Letter> held[2];  // to that end: the line was cut
};

struct Federation::Site {
  bool alive = false;
  std::uint64_t life = 0;
  SiteMember member;
  std::unique_ptr<SabotagedCore> core;
  std::map<Contribution, std::uint64_t> bytes;  // of each payload, that are here
  MergeId held;
  std::uint64_t hash = 0;
  std::vector<std::pair<MergeId, std::uint64_t>> saved;  // on its disk, all lives
  TimePoint wakes_at = kNever;
  Duration compute{};
  long states = 0;  // that it had
  TimePoint state_at{};
  Duration longest{};  // between two states
};

Federation::Federation(std::uint64_t seed, SiteBug bug, bool trace)
    : random_(seed), bug_(bug), trace_(trace) {
  config_.sites = random_.chance(10) ? random_.between(1, 2) : random_.between(2, 7);
  if (random_.chance(50)) config_.sites = std::min(config_.sites, 4);
  config_.grace = milliseconds(random_.one_of({500, 3000}));
  config_.heartbeat = milliseconds(500);
  config_.payloads = {.block = 4, .window = 2, .stall = seconds(2)};
  silence_ = seconds(2);
  slowest_ = milliseconds(random_.one_of({5, 30, 200, 600}));
  // Short enough that proposers often compete.
  config_.timeout = random_.chance(50) ? seconds(2) : 2 * slowest_ + milliseconds(100);
  compute_ = milliseconds(random_.one_of({100, 400, 1000}));
  for (int number = 0; number < config_.sites; ++number) {
    auto& it = *sites_.emplace_back(std::make_unique<Site>());
    it.hash = random_.chance(50) ? 7 : random_.next();
    it.saved = {{MergeId{}, it.hash}};
    it.compute = random_.chance(10) ? 5 * compute_ : compute_;
  }
}

Federation::~Federation() = default;

void Federation::note(const std::string& what) {
  for (const char c : what) {
    outcome_.hash = (outcome_.hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  if (trace_) {
    fmt::print("{:9.3f} {}\n", to_seconds(now_.time_since_epoch()) - 3600, what);
  }
}

// ---- Time.

void Federation::at(TimePoint when, std::function<void()> happen) {
  to_come_.push({when, ++happenings_, std::move(happen)});
}

void Federation::run_until(TimePoint end, const std::function<bool()>& enough) {
  while (!to_come_.empty() && to_come_.top().when <= end && checker_.wrong().empty()) {
    if (enough && enough()) return;
    Happening next = to_come_.top();
    to_come_.pop();
    now_ = next.when;
    next.happen();
  }
  if (checker_.wrong().empty()) now_ = end;
}

// ---- Lines and connections.

Federation::Line& Federation::line(int a, int b) { return lines_[std::minmax(a, b)]; }

void Federation::try_connect(int a, int b) {
  in(milliseconds(300) + random_.up_to(milliseconds(500)), [=, this] { try_connect(a, b); });
  Line& it = line(a, b);
  if (!site(a).alive || !site(b).alive || cut(a, b) || cut(b, a)) return;
  if (it.open[0] && it.open[1]) return;
  const std::uint64_t id = ++connections_;
  it = Line{};
  it.id = id;
  it.open[0] = true;
  it.heard[0] = now_;
  it.last[1] = now_ + delay();
  const auto life = site(b).life;
  at(it.last[1], [=, this] {
    Line& line_now = line(a, b);
    if (line_now.id != id || site(b).life != life || !site(b).alive) return;
    line_now.open[1] = true;
    line_now.heard[1] = now_;
    watch(b, a, id);
    step(b, SiteCore::PeerUp{site(a).member});
  });
  watch(a, b, id);
  step(a, SiteCore::PeerUp{site(b).member});
}

void Federation::send(int from, int to, std::shared_ptr<const SiteMessage> message) {
  Line& it = line(from, to);
  if (!it.open[from < to ? 0 : 1] && message) return;
  TimePoint& last = it.last[from < to ? 1 : 0];
  last = std::max(last, now_ + delay());
  at(last, [=, this, id = it.id] { deliver(from, to, id, message); });
  if (ambush_ && message && message->index() == SiteMessage(SiteAccept{}).index()) ambush(from);
}

// The worst moment for a proposer to fall silent: while its Accepts and their answers travel.
void Federation::ambush(int proposer) {
  if (!random_.chance(25)) return;
  in(random_.up_to(2 * slowest_), [=, this] {
    if (!ambush_) return;
    note(fmt::format("ambush of site {}", proposer));
    if (random_.chance(20)) return kill(proposer);
    const bool both_ways = random_.chance(30);
    for (int other = 0; other < config_.sites; ++other) {
      if (other == proposer || random_.chance(10)) continue;
      cuts_.insert({proposer, other});
      if (both_ways) cuts_.insert({other, proposer});
    }
  });
}

void Federation::deliver(int from, int to, std::uint64_t id,
                         std::shared_ptr<const SiteMessage> message) {
  Line& it = line(from, to);
  const int end = from < to ? 1 : 0;
  if (it.id != id || !it.open[end]) return;
  if (cut(from, to) || !it.held[end].empty()) {
    it.held[end].push_back({std::move(message)});
    return;
  }
  hand_over(from, to, {std::move(message)});
}

void Federation::hand_over(int from, int to, const Letter& letter) {
  if (!letter.message) return close(to, from);
  line(from, to).heard[from < to ? 1 : 0] = now_;
  ++outcome_.messages;
  SiteMessage message = *letter.message;
  if (outcome_.messages % 16 == 0) {
    auto read = decode_site_message(encode(message));
    if (!read) return checker_.break_rule("a message does not go over the wire");
    message = std::move(*read);
  }
  if (const auto* block = std::get_if<SiteBlock>(&message)) return take_block(to, from, *block);
  step(to, SiteCore::Received{from, std::move(message)});
}

void Federation::close(int here, int there) {
  Line& it = line(here, there);
  bool& open = it.open[here < there ? 0 : 1];
  if (!open) return;
  open = false;
  send(here, there, nullptr);
  if (site(here).alive) step(here, SiteCore::PeerDown{there});
}

// Closes the connection when this end hears nothing.
void Federation::watch(int here, int there, std::uint64_t id) {
  Line& it = line(here, there);
  const int end = here < there ? 0 : 1;
  if (it.id != id || !it.open[end]) return;
  if (now_ >= it.heard[end] + silence_) return close(here, there);
  at(it.heard[end] + silence_, [=, this] { watch(here, there, id); });
}

void Federation::heal(int from, int to) {
  cuts_.erase({from, to});
  Line& it = line(from, to);
  const int end = from < to ? 1 : 0;
  const auto id = it.id;
  while (!it.held[end].empty() && it.id == id && it.open[end]) {
    const Letter letter = std::move(it.held[end].front());
    it.held[end].pop_front();
    hand_over(from, to, letter);
  }
}

// ---- Sites.

void Federation::start(int number) {
  Site& it = site(number);
  const int choice = random_.below(10);
  std::size_t state = it.saved.size() - 1;
  if (choice >= 7) state = 0;
  if (choice >= 4 && choice < 7) state = random_.next() % it.saved.size();
  it.life = ++lives_;
  if (bug_ != SiteBug::kept_membership || it.member.incarnation == 0) {
    it.member = {number, it.life};
  }
  it.alive = true;
  it.bytes.clear();
  std::tie(it.held, it.hash) = it.saved[state];
  it.state_at = now_;
  it.longest = {};
  it.wakes_at = kNever;
  SiteCoreConfig config = config_;
  config.me = it.member;
  config.held = it.held;
  config.hash = it.hash;
  config.least_epoch = static_cast<std::uint64_t>(
      std::chrono::duration_cast<milliseconds>(now_ - TimePoint{} - std::chrono::hours(1)).count() +
      1);
  it.core = std::make_unique<SabotagedCore>(config, bug_);
  note(fmt::format("site {} starts with {}", number, to_string(it.held)));
  if (it.held != MergeId{}) contribute(number, it.held);
  step(number, SiteCore::Clock{});
}

void Federation::kill(int number) {
  Site& it = site(number);
  if (!it.alive) return;
  note(fmt::format("site {} is killed", number));
  ++outcome_.kills;
  it.alive = false;
  const bool silently = random_.chance(50);
  for (int other = 0; other < config_.sites; ++other) {
    if (other == number) continue;
    bool& open = line(number, other).open[number < other ? 0 : 1];
    if (open && !silently) send(number, other, nullptr);
    open = false;
  }
  it.core.reset();
}

void Federation::later(int number, Duration delay, std::function<void()> happen) {
  in(delay, [this, number, life = site(number).life, happen = std::move(happen)] {
    if (site(number).alive && site(number).life == life) happen();
  });
}

void Federation::step(int number, const SiteCore::Event& event) {
  Site& it = site(number);
  const auto actions = it.core->step(now_, event);
  if (const Merge* newest = it.core->newest()) checker_.decided(*newest);
  for (const auto& action : actions) std::visit([&](const auto& one) { do_(number, one); }, action);
  wake(number);
}

void Federation::wake(int number) {
  Site& it = site(number);
  const TimePoint due = std::max(it.core->deadline().value_or(kNever), now_ + milliseconds(1));
  if (due >= it.wakes_at) return;
  it.wakes_at = due;
  later(number, due - now_, [=, this] {
    Site& now = site(number);
    if (now.wakes_at != now_) return;  // an earlier one came in between
    now.wakes_at = kNever;
    step(number, SiteCore::Clock{});
  });
}

void Federation::take_block(int number, int from, const SiteBlock& block) {
  Site& it = site(number);
  if (!it.core->expects(block.payload, block.offset, block.data.size())) return;
  if (it.bytes[block.payload] != block.offset) {
    return checker_.break_rule("a block does not follow the bytes before it");
  }
  it.bytes[block.payload] += block.data.size();
  step(number, SiteCore::Arrived{from, block.payload, block.offset,
                                 static_cast<std::uint32_t>(block.data.size())});
}

void Federation::new_state(int number, const MergeId& id, std::uint64_t hash) {
  Site& it = site(number);
  note(fmt::format("site {} holds {}", number, to_string(id)));
  it.held = id;
  it.hash = hash;
  it.saved.emplace_back(id, hash);
  ++it.states;
  it.longest = std::max(it.longest, now_ - it.state_at);
  it.state_at = now_;
  checker_.holds(number, id, hash);
  contribute(number, id);
}

// The trainer computes with this state, once the site knows that no newer one was decided.
void Federation::contribute(int number, const MergeId& id) {
  const Duration compute = site(number).compute;
  later(number, compute / 2 + random_.up_to(compute), [=, this] {
    Site& now = site(number);
    if (now.held != id) return;
    if (now.core->newest() == nullptr) return contribute(number, id);
    const Contribution payload{now.member, id.next(), 1 + random_.next() % 12, random_.next()};
    now.bytes[payload] = payload.bytes;
    checker_.whole(now.member, payload);
    step(number, SiteCore::Contributed{payload, kind_of(payload)});
  });
}

void Federation::do_(int number, const SiteCore::Send& action) {
  send(number, action.to, std::make_shared<const SiteMessage>(action.message));
}

void Federation::do_(int number, const SiteCore::Serve& action) {
  const PayloadAsk& it = action.block;
  const auto here = site(number).bytes.find(it.payload);
  if (here == site(number).bytes.end() || here->second < it.offset + it.count) {
    return checker_.break_rule("a site serves bytes that it does not have");
  }
  SiteBlock block{it.payload, it.offset, std::string(it.count, 'x')};
  send(number, it.site, std::make_shared<const SiteMessage>(std::move(block)));
}

void Federation::do_(int number, const SiteCore::Receive& action) {
  site(number).bytes[action.payload] = 0;
}

void Federation::do_(int number, const SiteCore::Check& action) {
  const bool right = !random_.chance(1);
  later(number, random_.up_to(milliseconds(5)), [=, this] {
    Site& it = site(number);
    const auto here = it.bytes.find(action.payload);
    if (here == it.bytes.end()) return;
    if (right) checker_.whole(it.member, action.payload);
    if (!right) here->second = 0;
    step(number, SiteCore::Checked{action.payload, right, kind_of(action.payload)});
  });
}

void Federation::do_(int number, const SiteCore::Forget& action) {
  site(number).bytes.erase(action.payload);
}

void Federation::do_(int number, const SiteCore::Apply& action) {
  Site& it = site(number);
  const Merge merge = action.merge;
  const auto& all = merge.contributions;
  const auto has_all = [all, number, this] {
    return std::all_of(all.begin(), all.end(), [&](const Contribution& one) {
      const auto here = site(number).bytes.find(one);
      return here != site(number).bytes.end() && here->second == one.bytes;
    });
  };
  checker_.applies(number, it.held, merge, has_all());
  if (std::any_of(all.begin(), all.end(),
                  [&](const Contribution& one) { return kind_of(one) != kind_of(all.front()); })) {
    checker_.break_rule("a merge has contributions of two kinds");
  }
  later(number, random_.up_to(compute_ / 2), [=, this] {
    if (!has_all()) checker_.break_rule("a payload is gone while a site applies it");
    const std::uint64_t hash = hash_after(site(number).hash, merge);
    new_state(number, merge.id, hash);
    step(number, SiteCore::Applied{merge.id, hash});
  });
}

void Federation::do_(int number, const SiteCore::Adopt& action) {
  Site& it = site(number);
  checker_.adopts(number, it.held, it.hash, action.merge);
  new_state(number, action.merge.id, it.hash);
}

void Federation::do_(int number, const SiteCore::FetchState& action) {
  const int from = action.from;
  const auto id = line(number, from).id;
  later(number, 2 * delay(), [=, this] {
    const Line& it = line(number, from);
    const bool arrives = it.id == id && it.open[0] && it.open[1] && !cut(from, number) &&
                         site(from).alive && !random_.chance(5);
    if (!arrives) return fail_state(number, from, id);
    const MergeId held = site(from).held;
    const std::uint64_t hash = site(from).hash;
    step(number, SiteCore::StateArrived{from});
    later(number, random_.up_to(compute_ / 2), [=, this] {
      if (held > site(number).held) new_state(number, held, hash);
      step(number, SiteCore::TookState{held, hash});
    });
  });
}

// Where the connection ends, no answer need come; while it lasts, one does, be it after a cut.
void Federation::fail_state(int number, int from, std::uint64_t id) {
  const Line& it = line(number, from);
  if (it.id != id || !it.open[number < from ? 0 : 1]) return;
  const bool source_answers = site(from).alive && it.open[0] && it.open[1] && !cut(from, number);
  if (source_answers || random_.chance(50)) return step(number, SiteCore::StateFailed{from});
  later(number, seconds(1), [=, this] { fail_state(number, from, id); });
}

void Federation::do_(int number, const SiteCore::Missing& action) {
  note(fmt::format("site {} misses {} sites", number, action.sites.size()));
}

void Federation::do_(int number, const SiteCore::GiveUp&) {
  checker_.break_rule(fmt::format("site {} gives up, and may wait without limit", number));
}

void Federation::do_(int number, const SiteCore::Mismatch&) {
  checker_.break_rule(fmt::format("site {} sees another state after one merge", number));
}

// ---- The course of a run.

SiteOutcome Federation::run() {
  for (int a = 0; a < config_.sites; ++a) {
    for (int b = a + 1; b < config_.sites; ++b) {
      in(random_.up_to(milliseconds(300)), [=, this] { try_connect(a, b); });
    }
    in(random_.up_to(seconds(1)), [=, this] {
      if (!site(a).alive) start(a);
    });
  }
  if (random_.chance(30)) {
    one_fault();
  } else {
    chaos();
  }
  repair();
  if (checker_.wrong().empty()) must_go_on("after the repair", seconds(90));
  outcome_.wrong = checker_.wrong();
  outcome_.merges = checker_.merges();
  outcome_.foundings = checker_.foundings();
  return outcome_;
}

void Federation::heal_all() {
  while (!cuts_.empty()) {
    const auto [from, to] = *cuts_.begin();
    heal(from, to);
  }
}

void Federation::repair() {
  note("repair");
  ambush_ = false;
  heal_all();
  for (int number = 0; number < config_.sites; ++number) {
    if (!site(number).alive) start(number);
  }
}

// All sites have three further states, and close ones in one epoch.
void Federation::must_go_on(const char* when, Duration limit) {
  std::vector<long> before;
  for (const auto& it : sites_) before.push_back(it->states);
  const auto together = [&] {
    MergeId least = sites_[0]->held, most = least;
    for (std::size_t i = 0; i < sites_.size(); ++i) {
      if (sites_[i]->states < before[i] + 3) return false;
      least = std::min(least, sites_[i]->held);
      most = std::max(most, sites_[i]->held);
    }
    return least.epoch == most.epoch && most.number <= least.number + 2;
  };
  run_until(now_ + limit, together);
  if (checker_.wrong().empty() && !together()) {
    checker_.break_rule(fmt::format("the sites do not go on together {}", when));
  }
}

void Federation::chaos() {
  const TimePoint end = now_ + seconds(random_.between(3, 40));
  const int pace = random_.one_of({300, 1000, 4000});
  ambush_ = random_.chance(60);
  while (now_ < end && checker_.wrong().empty()) {
    run_until(now_ + random_.up_to(milliseconds(pace)), nullptr);
    if (checker_.wrong().empty()) fail_somehow();
  }
}

void Federation::fail_somehow() {
  const int a = random_.below(config_.sites), b = random_.below(config_.sites);
  const int choice = random_.below(10);
  if (choice < 3) {
    kill(a);
  } else if (choice < 6) {
    if (!site(a).alive) start(a);
  } else if (choice < 7 && a != b) {
    note(fmt::format("the line from {} to {} is cut", a, b));
    cuts_.insert({a, b});
    if (random_.chance(60)) cuts_.insert({b, a});
  } else if (choice < 8) {
    const auto half = random_.next();
    note(fmt::format("partition {}", half % 128));
    for (int i = 0; i < config_.sites; ++i) {
      for (int j = 0; j < config_.sites; ++j) {
        if ((half >> i & 1) != (half >> j & 1)) cuts_.insert({i, j});
      }
    }
  } else if (choice < 9 && !cuts_.empty()) {
    const auto [from, to] = *cuts_.begin();
    heal(from, to);
  } else {
    note("all lines are whole");
    heal_all();
  }
}

bool Federation::all_are_members() const {
  return std::all_of(sites_.begin(), sites_.end(), [this](const auto& it) {
    const Merge* newest = it->alive ? it->core->newest() : nullptr;
    return newest != nullptr && newest->members.size() == sites_.size() && it->states > 2;
  });
}

// One site dies or is cut off, or one line is cut: no other site waits for longer than grace and
// time-outs.
void Federation::one_fault() {
  config_.grace = seconds(3);
  config_.timeout = seconds(2);
  for (const auto& it : sites_) it->compute = compute_;
  run_until(now_ + seconds(60), [this] { return all_are_members(); });
  if (!checker_.wrong().empty()) return;
  if (!all_are_members()) return checker_.break_rule("the sites do not come together at first");
  const int n = config_.sites;
  const Victim kind = n < 2   ? Victim::none
                      : n < 3 ? random_.one_of({Victim::killed, Victim::cut_off})
                              : random_.one_of({Victim::killed, Victim::cut_off, Victim::pair_cut});
  const int victim = n < 3 ? n - 1 : random_.below(n);
  const int other = (victim + 1 + (n > 1 ? random_.below(n - 1) : 0)) % n;
  for (int to = 0; to < n && kind != Victim::none && kind != Victim::killed; ++to) {
    if (to == victim || (kind == Victim::pair_cut && to != other)) continue;
    cuts_.insert({victim, to});
    cuts_.insert({to, victim});
  }
  note(fmt::format("fault {} of site {} ({})", static_cast<int>(kind), victim, other));
  if (kind == Victim::killed) kill(victim);
  for (const auto& it : sites_) it->state_at = now_, it->longest = {};
  run_until(now_ + seconds(40), nullptr);
  const Duration limit = config_.grace + silence_ + config_.timeout * (2 + n / 2) + 6 * compute_ +
                         config_.payloads.stall + 30 * slowest_;
  for (int number = 0; number < n && checker_.wrong().empty(); ++number) {
    const bool is_out = number == victim && kind != Victim::pair_cut && kind != Victim::none;
    const Site& it = site(number);
    if (!is_out && std::max(it.longest, now_ - it.state_at) > limit) {
      checker_.break_rule("one fault stops another site for too long");
    }
  }
}

}  // namespace dlaunch::sim
