#include "ring/sites/endpoint.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/quiet_thread.h"
#include "base/text.h"
#include "base/units.h"
#include "ring/links/listener.h"
#include "ring/sites/outer_merge.h"

namespace dlaunch {
namespace {

constexpr int kBlocksAsked = 64;

// The ports of this process's endpoints.
std::array<std::atomic<bool>, 65536> own_ports;

std::string why_not(const Error& error, std::uint16_t port) {
  if (error.os_errno != EADDRINUSE) return error.what;
  return own_ports[port]
             ? "another outer optimizer of this process averages over the sites: give all "
               "but one of them sites=False, in C sites = NULL"
             : "another process has it";
}

// On all addresses: other sites may reach this one by an address that is not its own.
Result<UniqueFd> listen_at(std::uint16_t port) {
  auto listener = Listener::open("::", false, {port, port});
  if (!listener && listener.error().os_errno != EADDRINUSE) {
    listener = Listener::open("0.0.0.0", false, {port, port});
  }
  if (listener) return UniqueFd(::fcntl(listener->tcp_socket().get(), F_DUPFD_CLOEXEC, 0));
  return Error{.code = Errc::io,
               .what = fmt::format("this site's endpoint cannot listen at port {}: {}", port,
                                   why_not(listener.error(), port))};
}

// Of what the payload is: where its optimizer stands, and how long it is.
std::uint64_t kind_of_payload(std::string_view payload) {
  return digest_of(payload.substr(0, payload_bytes(WireCodec::none, 0))) + payload.size();
}

SiteCoreConfig core_config(const SiteEndpointConfig& config, SiteMember me) {
  SiteCoreConfig core;
  core.sites = static_cast<int>(config.sites.size());
  core.me = me;
  core.held = config.state.id;
  core.hash = config.state.hash;
  core.least_epoch = me.incarnation / 1'000'000;
  core.grace = config.grace;
  core.timeout = config.timeout;
  core.heartbeat = std::min<Duration>(std::chrono::seconds(1), config.timeout / 5);
  core.missing_after = config.missing_after();
  core.wait = config.wait > Duration::zero() ? config.wait : Duration::max();
  core.payloads = {.block = kSiteBlock, .window = kBlocksAsked, .stall = config.timeout};
  return core;
}

}  // namespace

Result<std::unique_ptr<SiteEndpoint>> SiteEndpoint::open(SiteEndpointConfig config) {
  const SiteAddress& own = config.sites[static_cast<std::size_t>(config.me)];
  auto listener = listen_at(own.endpoint.port);
  if (!listener)
    return Error{.code = Errc::io, .what = "site " + own.name + ": " + listener.error().what};
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return errno_error("eventfd", errno);
  std::unique_ptr<JournalWriter> journal;
  if (!config.journal.empty()) {
    auto opened = JournalWriter::open(config.journal, own.name, {});
    if (opened) {
      journal = std::move(*opened);
    } else if (config.state.id == MergeId{}) {
      return Error{.code = Errc::io, .what = "--site-journal: " + opened.error().what};
    } else {  // it goes on after a while: not worth its end
      log_warn("the training goes on without its journal: {}", opened.error().what);
    }
  }
  std::unique_ptr<SiteEndpoint> made(new SiteEndpoint(std::move(config), std::move(*listener),
                                                      std::move(wake),
                                                      static_cast<std::uint64_t>(ns_since_1970())));
  made->journal_ = std::move(journal);
  if (made->journal_) {
    std::vector<std::string> names;
    for (const SiteAddress& site : made->config_.sites) names.push_back(site.name);
    made->journal_->start(made->me_, names);
    made->journal_->snapshot(made->state_.id, made->state_.hash, made->state_.copy);
  }
  auto thread = start_quiet_thread([endpoint = made.get()] { endpoint->main(); });
  if (!thread) return thread.error();
  made->thread_ = std::move(*thread);
  return made;
}

SiteEndpoint::SiteEndpoint(SiteEndpointConfig config, UniqueFd listener, UniqueFd wake,
                           std::uint64_t incarnation)
    : config_(std::move(config)),
      me_{config_.me, incarnation},
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      listens_(open_fds_, listener_.get()),
      wakes_(open_fds_, wake_.get()),
      lookup_(wake_.get()),
      core_(core_config(config_, me_)),
      state_(config_.state) {
  for (int site = 0; site < config_.me; ++site) attempts_[site];
  own_ports[port()] = true;
}

SiteEndpoint::~SiteEndpoint() {
  stop();
  own_ports[port()] = false;
}

void SiteEndpoint::stop() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
  if (journal_) journal_->end();
}

void SiteEndpoint::close_in_child() {
  own_ports[port()] = false;
  open_fds_.close_in_child();
  if (journal_) journal_->close_in_child();
}

void SiteEndpoint::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(job));
    ++to_do_;
    synced_ = false;
  }
  ::eventfd_write(wake_.get(), 1);
}

// -- The other thread's side

void SiteEndpoint::contribute(const MergeId& id, const std::shared_ptr<std::string>& bytes) {
  const Contribution contribution{
      .member = me_, .id = id, .bytes = bytes->size(), .digest = digest_of(*bytes)};
  const std::uint64_t kind = kind_of_payload(*bytes);
  post([this, contribution, bytes, kind] {
    if (contribution.id != core_.held().next()) return;
    payloads_[contribution] = bytes;
    happen(SiteCore::Contributed{contribution, kind});
  });
}

void SiteEndpoint::holds(SiteState state) {
  post([this, state = std::move(state)] {
    state_ = state;
    const std::optional<SiteNews> news = std::exchange(applying_, std::nullopt);
    if (news && news->kind == SiteNews::Kind::merge) {
      write_down(news->merge, news->payloads);
      happen(SiteCore::Applied{state.id, state.hash});
    } else if (news) {
      if (journal_) journal_->snapshot(state.id, state.hash, state.copy);
      happen(SiteCore::TookState{state.id, state.hash});
    }
  });
}

Result<std::optional<SiteNews>> SiteEndpoint::next(Duration limit, bool syncs) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return failed_ || !news_.empty() || (syncs && synced_); });
  if (failed_) return *failed_;
  if (!news_.empty()) {
    std::optional<SiteNews> first(std::move(news_.front()));
    news_.pop_front();
    return first;
  }
  if (syncs && synced_) return std::optional<SiteNews>(SiteNews{.id = held_});
  return std::optional<SiteNews>();
}

MergeId SiteEndpoint::decided() const {
  const std::lock_guard lock(mutex_);
  return decided_;
}

void SiteEndpoint::linger(Duration limit, bool ended) {
  lingers_ = true;
  std::unique_lock lock(mutex_);
  const auto all_here_have = [this] { return failed_ || (to_do_ == 0 && lack_here_.empty()); };
  changed_.wait_for(lock, limit, all_here_have);
  if (!ended || failed_ || config_.linger == Duration::zero()) return;
  std::vector<int> lack = lack_here_;
  lack.insert(lack.end(), lack_lost_.begin(), lack_lost_.end());
  if (lack.empty()) return;
  log_warn("site {} has ended its training, and waits for {} to take the result, up to {}",
           name(config_.me), names(lack), format_duration(config_.linger));
  changed_.wait_for(lock, config_.linger, [&] { return all_here_have() && lack_lost_.empty(); });
}

SiteEndpoint::Traffic SiteEndpoint::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

// -- The thread

void SiteEndpoint::main() try {
  happen(SiteCore::Clock{});  // also a site that nobody ever connects to says for whom it waits
  settle();
  while (turn()) {
  }
  if (!lingers_) return;
  for (Link& link : links_) link.connection.say_goodbye();
} catch (const std::exception&) {
  fail({.code = Errc::io, .what = "the endpoint of this site has no memory left"});
}

bool SiteEndpoint::turn() {
  wait();
  {
    const std::lock_guard lock(mutex_);
    if (stops_) return false;
  }
  const TimePoint now = steady_now();
  if (polled_[0].revents != 0) {
    eventfd_t count;
    ::eventfd_read(wake_.get(), &count);
  }
  move_links(now);  // first: posted work must find the sites heard that are
  take_posted();
  if (polled_[1].revents != 0) let_in();
  end_silent(now);
  bury(now);
  begin_attempts(now);
  if (const auto deadline = core_.deadline(); deadline && *deadline <= now) {
    happen(SiteCore::Clock{});
  }
  settle();
  return true;
}

TimePoint SiteEndpoint::next_time() const {
  TimePoint next = core_.deadline().value_or(kNever);
  for (const auto& [site, attempt] : attempts_) next = std::min(next, attempt.next);
  for (const Link& link : links_) next = std::min(next, ends_at(link));
  if (steady_now() < accepts_at_) next = std::min(next, accepts_at_);
  return next;
}

// Fills polled_: the event, the listening socket, the links.
void SiteEndpoint::wait() {
  const bool lets_in = steady_now() >= accepts_at_;
  polled_.clear();
  polled_.push_back({wake_.get(), POLLIN, 0});
  polled_.push_back({lets_in ? listener_.get() : -1, POLLIN, 0});
  for (const Link& link : links_) {
    polled_.push_back({link.connection.fd(), link.connection.events(), 0});
  }
  (void)::poll(polled_.data(), polled_.size(), poll_timeout_ms(steady_now(), next_time()));
}

void SiteEndpoint::take_posted() {
  std::vector<std::function<void()>> jobs;
  {
    const std::lock_guard lock(mutex_);
    jobs.swap(posted_);
  }
  for (const auto& job : jobs) {
    job();
    settle(1);  // the next one may depend on it
  }
}

std::string SiteEndpoint::names(const std::vector<int>& sites) const {
  SiteList all;
  all.reserve(sites.size());
  for (const int site : sites) all.push_back(config_.sites[static_cast<std::size_t>(site)]);
  return (all.size() == 1 ? "site " : "sites ") + names_of(all);
}

// -- The core

void SiteEndpoint::happen(SiteCore::Event event) { events_.push_back(std::move(event)); }

void SiteEndpoint::run_core() {
  while (!events_.empty()) {
    const SiteCore::Event event = std::move(events_.front());
    events_.pop_front();
    for (SiteCore::Action& action : core_.step(steady_now(), event)) {
      std::visit([this](auto& one) { perform(one); }, action);
    }
  }
}

void SiteEndpoint::settle(int carried_out) {
  run_core();
  const Merge* const newest = core_.newest();
  if (newest != nullptr) {
    for (const SiteMember& member : newest->members) held_by_.try_emplace(member.site);
  }
  held_by_.erase(config_.me);
  const std::lock_guard lock(mutex_);
  to_do_ -= carried_out;
  lack_here_.clear();
  lack_lost_.clear();
  for (const auto& [site, held] : held_by_) {
    if (held < core_.held()) (core_.connected(site) ? lack_here_ : lack_lost_).push_back(site);
  }
  decided_ = core_.decided();
  held_ = core_.held();
  synced_ = newest != nullptr && newest->id == held_ && !applying_ && !fetch_ && to_do_ == 0;
  changed_.notify_all();
}

void SiteEndpoint::perform(SiteCore::Send& action) {
  if (Link* const link = link_of(action.to)) link->connection.send(encode(action.message));
}

void SiteEndpoint::perform(SiteCore::Serve& action) {
  Link* const link = link_of(action.block.site);
  const auto found = payloads_.find(action.block.payload);
  if (link == nullptr || found == payloads_.end()) return;
  link->connection.send_later([ask = action.block, bytes = found->second] {
    return encode(SiteBlock{.payload = ask.payload,
                            .offset = ask.offset,
                            .data = bytes->substr(ask.offset, ask.count)});
  });
}

void SiteEndpoint::perform(SiteCore::Receive& action) {
  if (action.payload.bytes > config_.most_payload) {  // it is left out
    const std::string& whose = name(action.payload.member.site);
    return complaints_.warn(
        whose, fmt::format("site {} contributes {} bytes, and a contribution has at most {} here",
                           whose, action.payload.bytes, config_.most_payload));
  }
  auto& bytes = payloads_[action.payload] = std::make_shared<std::string>();
  bytes->reserve(action.payload.bytes);
}

void SiteEndpoint::perform(SiteCore::Check& action) {
  const auto found = payloads_.find(action.payload);
  const bool right =
      found != payloads_.end() && digests_[action.payload].value() == action.payload.digest;
  digests_.erase(action.payload);
  const std::uint64_t kind = right ? kind_of_payload(*found->second) : 0;
  happen(SiteCore::Checked{action.payload, right, kind});
}

void SiteEndpoint::perform(SiteCore::Forget& action) {
  payloads_.erase(action.payload);
  digests_.erase(action.payload);
}

void SiteEndpoint::perform(SiteCore::Apply& action) {
  SiteNews news{.kind = SiteNews::Kind::merge, .id = action.merge.id, .merge = action.merge};
  for (const Contribution& contribution : action.merge.contributions) {
    news.payloads.push_back(payloads_.at(contribution));
    if (contribution.member.site != config_.me) continue;
    news.ours = true;
    news.earlier = contribution.member != me_;
  }
  applying_ = news;
  tell(std::move(news));
}

void SiteEndpoint::perform(SiteCore::Adopt& action) {
  state_.id = action.merge.id;
  write_down(action.merge, {});
  tell({.kind = SiteNews::Kind::adopted, .id = action.merge.id, .merge = action.merge});
}

void SiteEndpoint::perform(SiteCore::FetchState& action) {
  fetch_ = Fetch{.from = action.from, .at_least = action.at_least};
  ask_state();
}

void SiteEndpoint::perform(SiteCore::Missing& action) {
  log_warn("site {} waits for {}", name(config_.me), names(action.sites));
}

void SiteEndpoint::perform(SiteCore::GiveUp& action) {
  fail({.code = Errc::timeout,
        .what =
            fmt::format("site {} has had no quorum of the sites for {} (--site-wait): {} did not "
                        "come; start them and this site again, or, if they have ended, take the "
                        "result from them",
                        name(config_.me), format_duration(config_.wait), names(action.missing))});
}

void SiteEndpoint::perform(SiteCore::Mismatch& action) {
  fail({.code = Errc::mismatch,
        .what = fmt::format("sites {} and {} have different states after merge {}: restore both "
                            "from the same state",
                            name(config_.me), name(action.site), action.id.number)});
}

void SiteEndpoint::tell(SiteNews news) {
  const std::lock_guard lock(mutex_);
  news_.push_back(std::move(news));
}

void SiteEndpoint::fail(Error why) {
  const std::lock_guard lock(mutex_);
  if (!failed_) failed_ = std::move(why);
  changed_.notify_all();
}

void SiteEndpoint::write_down(const Merge& merge, const std::vector<SharedBytes>& payloads) {
  if (!journal_) return;
  journal_->merge(merge, state_.hash, payloads);
  if (journal_->wants_snapshot()) journal_->snapshot(state_.id, state_.hash, state_.copy);
}

}  // namespace dlaunch
