#include "elastic/goodput_ledger.h"

#include <numeric>

namespace dlaunch {
namespace {

constexpr Duration kNone = Duration::zero();

Duration scaled(Duration time, Duration part, Duration whole) {
  if (whole <= kNone || part <= kNone) return kNone;
  const auto ns = static_cast<double>(time.count()) * static_cast<double>(part.count()) /
                  static_cast<double>(whole.count());
  return Duration(static_cast<Duration::rep>(ns));
}

template <class List>
Duration sum_of(const List& list) {
  return std::accumulate(list.begin(), list.end(), kNone,
                         [](Duration sum, const auto& item) { return sum + item.time; });
}

template <class Map>
Duration sum_of_values(const Map& map) {
  return std::accumulate(map.begin(), map.end(), kNone,
                         [](Duration sum, const auto& item) { return sum + item.second; });
}

void sort_by_sum(std::vector<Goodput::Cost>& costs) {
  std::ranges::stable_sort(costs, [](const auto& a, const auto& b) { return a.sum() > b.sum(); });
}

void add_wait(Goodput::Rank& rank, int culprit, WaitCause cause, Duration time) {
  const auto same = std::ranges::find_if(rank.waits, [=](const Goodput::Waits& wait) {
    return wait.culprit == culprit && wait.cause == cause;
  });
  if (same != rank.waits.end()) {
    same->time += time;
  } else {
    rank.waits.push_back({.culprit = culprit, .cause = cause, .time = time});
  }
}

void add_open(Goodput::Rank& rank, const OpenWait& wait) {
  if (rank.rank == wait.culprit || !wait.ranks.contains(rank.rank)) return;
  Duration left = wait.time;
  for (Duration* const account : {&rank.transfer, &rank.compute}) {
    const Duration part = std::min(*account, left);
    *account -= part;
    left -= part;
  }
  if (left < wait.time) add_wait(rank, wait.culprit, WaitCause::compute, wait.time - left);
}

}  // namespace

Duration Goodput::Rank::sum() const {
  return compute + transfer + start + sum_of(waits) + sum_of(recovery) + sum_of(lost);
}

Duration Goodput::Cost::sum() const { return sum_of_values(waits) + recovery + lost; }

std::string_view Goodput::Cost::cause() const {
  std::string_view most = recovery >= lost ? "recovery" : "lost_work";
  Duration time = std::max(recovery, lost);
  for (const auto& [cause, waited] : waits) {
    if (waited > time) most = word_of(kWaitCauseWords, cause);
    time = std::max(time, waited);
  }
  return most;
}

double GoodputTotals::share(Duration part) const {
  return total > kNone ? to_seconds(part) / to_seconds(total) : 0;
}

std::array<std::pair<std::string_view, Duration>, 6> GoodputTotals::accounts() const {
  return {{{"compute", compute},
           {"transfer", transfer},
           {"waiting", waiting},
           {"recovery", recovery},
           {"lost_work", lost},
           {"start", start}}};
}

std::vector<std::pair<std::string, double>> GoodputTotals::figures() const {
  std::vector<std::pair<std::string, double>> all = {
      {"goodput", goodput()}, {"wall_s", to_seconds(wall)}, {"rank_seconds", to_seconds(total)}};
  for (const auto& [account, time] : accounts()) {
    all.emplace_back(std::string(account) + "_s", to_seconds(time));
  }
  return all;
}

GoodputSummary Goodput::summary() const {
  GoodputSummary summary{.totals = *this};
  const std::vector<Cost> all = culprits();
  if (all.empty()) return summary;
  summary.culprit = all.front().rank;
  summary.cost = all.front().sum();
  summary.host = all.front().host;
  summary.cause = all.front().cause();
  return summary;
}

std::vector<Goodput::Cost> Goodput::culprits() const {
  std::map<std::string, Cost> busy;
  for (const Cost& cost : costs) {
    if (cost.host.empty()) continue;
    Cost& sum = busy[cost.host];
    sum.host = cost.host;
    for (const auto& [cause, time] : cost.waits) sum.waits[cause] += time;
    sum.recovery += cost.recovery;
    sum.lost += cost.lost;
  }
  const std::string_view late_together = word_of(kWaitCauseWords, WaitCause::host);
  std::erase_if(busy, [=](const auto& host) { return host.second.cause() != late_together; });
  std::vector<Cost> all;
  all.reserve(busy.size() + costs.size());
  for (const auto& [name, sum] : busy) all.push_back(sum);
  for (const Cost& cost : costs) {
    if (!busy.contains(cost.host)) all.push_back(cost);
  }
  sort_by_sum(all);
  return all;
}

// -- Changes of a book's state

// What the rank has done since the last time is safe.
void GoodputLedger::bank(Book& book, TimePoint when) {
  const Duration worked = when - book.since;
  book.worked += worked;
  book.worked_blocked += std::clamp(book.blocked, kNone, worked);
  for (const auto& [key, time] : book.fresh) book.waits[key] += time;
  book.fresh.clear();
  book.blocked = kNone;
  book.since = when;
}

void GoodputLedger::leave(Book& book, TimePoint when, State next) {
  when = std::max(when, book.since);
  const Duration time = when - book.since;
  switch (book.state) {
    case State::starting:
      book.start += time;
      break;
    case State::recovering:
      book.recovery[book.culprit] += time;
      break;
    case State::working:
      bank(book, when);
      break;
    case State::done:
      book.idle[-1] += time;
      break;
    case State::closed:
      break;
  }
  if (next == State::closed && book.state != State::closed) book.earlier += when - book.opened;
  if (book.state == State::closed) book.opened = when;
  book.since = when;
  book.before = book.state;
  book.state = next;
}

// It runs, but had not joined the round by then: that was not work yet.
void GoodputLedger::not_yet(Book& book, TimePoint when) {
  if (book.state != State::working || book.joined) return;
  book.state = book.before;
  leave(book, when, book.before);
}

void GoodputLedger::doubt(Book& book, TimePoint when) {
  when = std::max(when, book.since);
  book.doubtful = Book::Doubtful{.from = book.since,
                                 .to = when,
                                 .blocked = book.blocked,
                                 .told = std::max(kNone, book.told - book.since),
                                 .waits = std::move(book.fresh),
                                 .culprit = book.culprit};
  book.fresh.clear();
  book.blocked = kNone;
  book.since = when;
  book.state = State::recovering;
}

// What the rank has done since the last commit is lost. Of its reports only sums are known, which
// may end before the commit or after it.
void GoodputLedger::settle(Book& book) const {
  if (!book.doubtful) return;
  const Book::Doubtful work = std::move(*book.doubtful);
  book.doubtful.reset();
  const TimePoint safe = std::clamp(committed_, work.from, work.to);
  const Duration kept = safe - work.from;
  book.worked += kept;
  book.worked_blocked += std::min(kept, scaled(work.blocked, kept, work.told));
  for (const auto& [key, time] : work.waits) {
    book.waits[key] += kept < work.told ? scaled(time, kept, work.told) : time;
  }
  book.lost[work.culprit] += work.to - safe;
  book.lost_from = safe;
  book.lost_to = work.to;
}

void GoodputLedger::join(Book& book, TimePoint when) {
  settle(book);
  not_yet(book, when);
  leave(book, when, State::working);
  book.joined = true;
  book.told = book.since;
  book.told_blocked = kNone;
}

// -- Events

void GoodputLedger::begin_round(TimePoint now, int round, int size) {
  const bool first = books_.empty();
  for (int rank = 0; rank < size; ++rank) {
    const auto [it, is_new] = books_.try_emplace(rank);
    Book& book = it->second;
    if (is_new) {
      book.opened = book.since = book.waited = first ? begun_ : now;
    } else if (round == round_) {
      continue;
    } else if (book.state == State::closed) {
      leave(book, now, State::starting);
    } else {
      settle(book);
      not_yet(book, now);
      const bool worked = book.state == State::working || book.state == State::done;
      if (worked) book.culprit = -1;
      if (worked) leave(book, now, State::recovering);
    }
    book.round = round;
    book.joined = false;
  }
  for (auto it = books_.lower_bound(size); it != books_.end(); ++it) {
    if (it->second.state != State::closed) leave(it->second, now, State::closed);
  }
  round_ = round;
}

void GoodputLedger::started(TimePoint now, int rank) {
  const auto it = books_.find(rank);
  if (it == books_.end()) return;
  Book& book = it->second;
  if (book.state != State::starting && book.state != State::recovering) return;
  leave(book, now, State::working);
  book.told = book.since;
  book.told_blocked = kNone;
}

void GoodputLedger::done(TimePoint when, int rank) {
  const auto it = books_.find(rank);
  if (it == books_.end()) return;
  const State state = it->second.state;
  if (state != State::working && state != State::starting) return;
  leave(it->second, when, State::done);
  last_done_ = rank;
}

void GoodputLedger::failed(TimePoint when, int culprit, bool alone, Duration hung) {
  worked_until_ = when - hung;
  for (auto& [rank, book] : books_) {
    if (alone && rank != culprit) continue;
    if (book.state == State::working) {
      settle(book);
      book.culprit = culprit;
      doubt(book, when);
    } else if (book.state == State::starting) {
      leave(book, when, State::recovering);
      book.culprit = culprit;
    }
  }
}

void GoodputLedger::take(int node, const RankSpans& report) {
  const auto it = books_.find(report.rank);
  if (it == books_.end() || it->second.state == State::closed) return;
  Book& book = it->second;
  least_ = std::max(least_, report.least);
  dropped_ += report.dropped;
  for (const Span& span : report.spans) finder_.add(report.round, report.rank, node, span);
  if (report.round != book.round || report.joined == TimePoint{}) return;
  sees_waits_ = true;
  if (!book.joined && book.state != State::done) join(book, report.joined);
  if (book.state == State::working) add_blocked(book, report);
}

void GoodputLedger::add_blocked(Book& book, const RankSpans& report) {
  const Duration over = std::max(kNone, report.until - book.told);
  const Duration blocked = std::clamp(report.blocked - book.told_blocked, kNone, over);
  for (const auto& [rank, share] : slow_links_) {
    const auto ns = static_cast<double>(over.count()) * share;
    book.fresh[{rank, WaitCause::link}] +=
        std::min(blocked, Duration(static_cast<Duration::rep>(ns)));
  }
  Duration before_commit = kNone;
  if (committed_ > book.since && committed_ <= report.until) {
    before_commit = scaled(blocked, committed_ - book.told, over);
    book.blocked += before_commit;
    bank(book, committed_);
  }
  book.blocked += blocked - before_commit;
  book.told = std::max(book.told, report.until);
  book.told_blocked = report.blocked;
}

void GoodputLedger::finish(TimePoint now) {
  if (finished_) return;
  for (const Wait& wait : finder_.take(TimePoint::max())) note(wait);
  for (auto& [rank, book] : books_) {
    settle(book);
    if (book.state == State::closed) continue;
    leave(book, now, State::closed);
    const auto waited = book.idle.extract(-1);
    if (waited) book.idle[rank == last_done_ ? -1 : last_done_] += waited.mapped();
  }
  finished_ = now;
}

// -- Waits

void GoodputLedger::find_waits() {
  TimePoint by = TimePoint::max();
  for (const auto& [rank, book] : books_) {
    if (book.state == State::working && book.joined) by = std::min(by, book.told);
  }
  if (by == TimePoint::max()) return;
  // The last rank that leaves a collective may report it one report later than the others.
  for (const Wait& wait :
       finder_.take(by - spans_interval(static_cast<int>(books_.size())) * 3 / 2))
    note(wait);
}

void GoodputLedger::note(const Wait& wait) {
  const auto it = books_.find(wait.rank);
  if (it == books_.end()) return;
  Book& book = it->second;
  TimePoint from = std::max(wait.from, book.waited), to = wait.to;
  book.waited = std::max(book.waited, to);
  if (from >= book.lost_from) {
    from = std::max(from, std::min(book.lost_to, to));
  } else if (book.lost_to > book.lost_from) {
    to = std::min(to, book.lost_from);
  }
  if (from >= to) return;
  const WaitKey key{wait.culprit, wait.cause};
  if (book.doubtful && from >= book.doubtful->from) {
    book.doubtful->waits[key] += std::max(kNone, std::min(to, book.doubtful->to) - from);
    return;
  }
  const TimePoint cut = book.state == State::working ? std::clamp(book.since, from, to) : to;
  if (cut > from) book.waits[key] += cut - from;
  if (cut < to) book.fresh[key] += to - cut;
}

// -- The accounts

// Waits for ranks that came late are measured, those for slow links are estimates: these get what
// is left of the blocked time at most.
void GoodputLedger::fit_waits(Book& book) {
  const auto fit = [&](bool links, Duration room) {
    Duration all = kNone;
    for (const auto& [key, time] : book.waits) {
      if ((key.second == WaitCause::link) == links) all += time;
    }
    if (all <= room) return all;
    for (auto& [key, time] : book.waits) {
      if ((key.second == WaitCause::link) == links) time = scaled(time, room, all);
    }
    return room;
  };
  const Duration waited = fit(false, book.worked);
  fit(true, std::max(kNone, std::min(book.worked_blocked, book.worked) - waited));
}

Goodput::Rank GoodputLedger::rank_at(int rank, Book book, TimePoint now) const {
  settle(book);
  if (book.state != State::closed) leave(book, now, State::closed);
  Goodput::Rank out;
  out.rank = rank;
  out.wall = book.earlier;
  out.start = book.start;
  fit_waits(book);
  Duration booked = kNone;
  for (const auto& [key, time] : book.waits) {
    if (time <= kNone) continue;
    booked += time;
    out.waits.push_back({.culprit = key.first, .cause = key.second, .time = time});
  }
  const Duration blocked = std::clamp(book.worked_blocked, booked, book.worked);
  out.transfer = blocked - booked;
  out.compute = book.worked - blocked;
  for (const auto& [culprit, time] : book.idle) add_wait(out, culprit, WaitCause::compute, time);
  for (const auto& [culprit, time] : book.recovery) out.recovery.push_back({culprit, time});
  for (const auto& [culprit, time] : book.lost) out.lost.push_back({culprit, time});
  return out;
}

Goodput GoodputLedger::at(TimePoint now, const std::vector<OpenWait>& open) const {
  now = finished_.value_or(now);
  Goodput all;
  all.wall = now - begun_;
  all.sees_waits = sees_waits_;
  all.least = least_;
  all.dropped = dropped_;
  std::map<int, Goodput::Cost> costs;
  for (const auto& [rank, book] : books_) {
    Goodput::Rank& of = all.ranks.emplace_back(rank_at(rank, book, now));
    for (const OpenWait& wait : open) add_open(of, wait);
    all.total += of.wall;
    all.compute += of.compute;
    all.transfer += of.transfer;
    all.start += of.start;
    all.waiting += sum_of(of.waits);
    all.recovery += sum_of(of.recovery);
    all.lost += sum_of(of.lost);
    for (const auto& wait : of.waits) costs[wait.culprit].waits[wait.cause] += wait.time;
    for (const auto& due : of.recovery) costs[due.culprit].recovery += due.time;
    for (const auto& due : of.lost) costs[due.culprit].lost += due.time;
  }
  for (auto& [culprit, cost] : costs) {
    cost.rank = culprit;
    if (culprit >= 0 && cost.sum() > kNone) all.costs.push_back(cost);
  }
  sort_by_sum(all.costs);
  return all;
}

}  // namespace dlaunch
