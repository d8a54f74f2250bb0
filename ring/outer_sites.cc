#include "ring/outer_sites.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/address.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "dlaunch/outer.h"
#include "ring/api.h"

namespace dlaunch {
namespace {

// How often rank 0 looks whether the other ranks of its site are still there.
constexpr Duration kLook = std::chrono::milliseconds(100);
// How often rank 0 tells the other ranks that it still waits: a rank that is long in a collective,
// or without one, seems to hang.
constexpr Duration kSayThatItWaits = std::chrono::seconds(1);

Error no_endpoint() {
  return {.code = Errc::usage,
          .what =
              "this site has left the others, because the program has closed its sites or is a "
              "fork: close them after the last step, and begin in the process that goes on"};
}

// Says so if the address of this site in the list is another machine's: nobody would find rank 0.
void check_own_address(const SiteAddress& own) {
  const auto addresses = resolve(own.endpoint.host, 0);
  if (!addresses) return;  // the other sites may know the name
  for (const SocketAddress& address : *addresses) {
    const UniqueFd fd(::socket(address.get()->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd || ::bind(fd.get(), address.get(), address.size) == 0 || errno != EADDRNOTAVAIL) return;
  }
  log_warn(
      "site {}: {} is no address of this machine, which has rank 0; the other sites must reach "
      "rank 0 there",
      own.name, to_string(own.endpoint));
}

// One value that is not finite would stay in the residual for ever.
float finite_or_0(float value) { return std::isfinite(value) ? value : 0.0F; }

}  // namespace

OuterSites::OuterSites(dl_sites& sites, OuterState& state, WireCodec codec, std::uint64_t common)
    : sites_(sites), state_(state), codec_(codec), common_(common) {
  sites_.used = true;
  std::uint64_t most = 0;
  for (int f = 0; f < state.fragments(); ++f) {
    most = std::max<std::uint64_t>(most, payload_bytes(codec, state.gradient(f).size()));
  }
  sites_.config.most_payload = most;
}

OuterSites::~OuterSites() { sites_.used = false; }

void OuterSites::restored() {
  joined_ = false;
  pending_.reset();
}

dl_result OuterSites::say(const Error& error) const {
  keep_error(sites_.comm, error.what);
  return code_of(error.code);
}

// Rank 0's bytes on all ranks.
dl_result OuterSites::share(void* at, std::size_t bytes) const {
  return dl_size(sites_.comm) == 1 ? DL_OK : dl_broadcast(sites_.comm, at, bytes, DL_UINT8, 0);
}

SiteState OuterSites::state_now() const {
  const OuterCounts& counts = state_.counts();
  return {.id = {counts.epoch, counts.merges},
          .hash = hash_of_state(state_),
          .copy = std::make_shared<std::string>(copy_state(state_, codec_, common_))};
}

// -- What rank 0 learns

OuterSites::Verdict OuterSites::failed(const Error& error) const {
  Verdict verdict;
  verdict.code = code_of(error.code);
  std::strncpy(verdict.why, error.what.c_str(), sizeof verdict.why - 1);
  return verdict;
}

OuterSites::Verdict OuterSites::verdict_of(const SiteNews& news) {
  Verdict verdict;
  verdict.kind = news.kind;
  verdict.id = news.id;
  verdict.more = sites_.endpoint->decided() > news.id;
  verdict.ours = news.ours;
  verdict.earlier = news.earlier;
  for (const SiteMember& member : news.merge.members) verdict.members |= 1U << member.site;
  if (news.kind == SiteNews::Kind::state) {
    whole_ = news.state;
    verdict.bytes = whole_->size();
  }
  if (news.kind != SiteNews::Kind::merge) return verdict;
  std::vector<std::string_view> payloads;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < news.payloads.size(); ++i) {
    const int site = news.merge.contributions[i].member.site;
    payloads.emplace_back(*news.payloads[i]);
    names.push_back(sites_.config.sites[static_cast<std::size_t>(site)].name);
    verdict.contributed |= 1U << site;
  }
  auto head = average_payloads(payloads, names, codec_, state_, common_);
  if (!head) {
    return failed({.code = head.error().code,
                   .what = fmt::format("merge {}: {}", news.id.number, head.error().what)});
  }
  verdict.head = *head;
  return verdict;
}

OuterSites::Verdict OuterSites::listen(bool syncs) {
  if (!sites_.endpoint) return failed(no_endpoint());
  const TimePoint until = steady_now() + kSayThatItWaits;
  while (true) {
    auto news = sites_.endpoint->next(kLook, syncs);
    if (!news) return failed(news.error());
    if (*news) return verdict_of(**news);
    if (const auto over = sites_.comm->impl->over()) return failed(*over);
    if (steady_now() < until) continue;
    Verdict verdict;
    verdict.waits = true;
    return verdict;
  }
}

dl_result OuterSites::share(Verdict& verdict) const {
  const dl_result done = share(&verdict, sizeof verdict);
  if (done != DL_OK || verdict.code == DL_OK) return done;
  keep_error(sites_.comm, verdict.why);
  return verdict.code;
}

dl_result OuterSites::hear(bool syncs, Verdict& verdict) {
  dl_result done = DL_OK;
  do {
    if (leads()) verdict = listen(syncs);
    done = share(verdict);
    show_life();
  } while (done == DL_OK && verdict.waits);
  return done;
}

// --hang-timeout sees collectives, and a rank alone is in none.
void OuterSites::show_life() const {
  if (dl_size(sites_.comm) == 1) dl_heartbeat();
}

// All ranks learn whether rank 0 has an endpoint.
dl_result OuterSites::check_open() {
  Verdict verdict;
  if (leads() && !sites_.endpoint) verdict = failed(no_endpoint());
  return share(verdict);
}

// -- All ranks

OuterSites::Verdict OuterSites::open_here() {
  if (sites_.left) return failed(no_endpoint());
  SiteEndpointConfig config = sites_.config;
  config.common =
      hash_of(std::array<std::size_t, 3>{common_, static_cast<std::size_t>(config.timeout.count()),
                                         static_cast<std::size_t>(config.grace.count())});
  config.state = state_now();
  auto opened = SiteEndpoint::open(std::move(config));
  if (!opened) return failed(opened.error());
  check_own_address(sites_.config.sites[static_cast<std::size_t>(sites_.config.me)]);
  sites_.set_endpoint(std::move(*opened));
  return {};
}

// A new round, or a state that was restored, begins with a new endpoint: it is another member.
dl_result OuterSites::open_endpoint() {
  sites_.end_endpoint();
  const dl_result done = dl_size(sites_.comm) == 1 ? DL_OK : dl_barrier(sites_.comm);
  if (done != DL_OK) return done;
  Verdict verdict;
  if (leads()) verdict = open_here();
  return share(verdict);
}

dl_result OuterSites::join(bool& moved) {
  moved = false;
  if (joined_) return DL_OK;
  pending_.reset();
  if (const auto done = open_endpoint(); done != DL_OK) return done;
  const std::uint64_t steps = state_.counts().steps;
  while (true) {
    Verdict verdict;
    if (const auto done = hear(true, verdict); done != DL_OK) return done;
    if (verdict.kind == SiteNews::Kind::synced) {
      const std::lock_guard lock(sites_.mutex);
      sites_.last = verdict.id;
      break;
    }
    if (const auto done = follow(verdict, 0); done != DL_OK) return done;
    moved |= verdict.kind != SiteNews::Kind::adopted;
  }
  joined_ = true;
  if (moved) jump(steps);
  return DL_OK;
}

// The steps are those of the last merge now.
void OuterSites::jump(std::uint64_t steps_before) {
  OuterCounts& counts = state_.counts();
  counts.steps = counts.merged;
  if (counts.steps == steps_before) return;
  const std::lock_guard lock(sites_.mutex);
  ++sites_.jumps;
}

// gradient = the mean of (anchor - tensors) over the ranks of this site
dl_result OuterSites::take_mean_gradient(int fragment) {
  state_.take_gradient(fragment);
  const std::span<float> gradient = state_.gradient(fragment);
  if (dl_size(sites_.comm) == 1) return DL_OK;
  return dl_all_reduce(sites_.comm, gradient.data(), gradient.data(), gradient.size(), DL_FLOAT32,
                       DL_AVG);
}

dl_result OuterSites::keep_work(int fragment) {
  if (sites_.late != DL_SITES_CARRY) return DL_OK;
  const std::span<float> gradient = state_.gradient(fragment);
  const std::vector<float> average(gradient.begin(), gradient.end());
  const dl_result done = take_mean_gradient(fragment);
  float* const residual = state_.residual(fragment);
  for (std::size_t i = 0; done == DL_OK && leads() && i < gradient.size(); ++i) {
    residual[i] += finite_or_0(gradient[i]);
  }
  std::ranges::copy(average, gradient.begin());
  return done;
}

dl_result OuterSites::send(MergeHead head) {
  if (const auto done = check_open(); done != DL_OK) return done;
  head.common = common_;
  const auto fragment = static_cast<int>(head.fragment);
  if (const auto done = take_mean_gradient(fragment); done != DL_OK) return done;
  const std::span<float> gradient = state_.gradient(fragment);
  pending_ = Pending{.head = head, .payload = {}, .lost = {}, .late = {}};
  if (!leads()) return DL_OK;
  const float* const residual = state_.residual(fragment);
  std::vector<float> exact(gradient.begin(), gradient.end());
  for (std::size_t i = 0; residual != nullptr && i < exact.size(); ++i) exact[i] += residual[i];
  if (codec_ != WireCodec::none) pending_->lost.resize(exact.size());
  pending_->payload = std::make_shared<std::string>(encode_payload(
      head, codec_, exact, pending_->lost.empty() ? nullptr : pending_->lost.data()));
  if (sites_.late == DL_SITES_CARRY) {
    std::ranges::transform(exact, exact.begin(), finite_or_0);
    pending_->late = std::move(exact);
  }
  const OuterCounts& counts = state_.counts();
  sites_.endpoint->contribute(MergeId{counts.epoch, counts.merges}.next(), pending_->payload);
  return DL_OK;
}

dl_result OuterSites::take(MergeHead head, float mixing, bool& moved) {
  moved = false;
  head.common = common_;
  if (!pending_) {  // it was sent before the state was restored
    if (const auto done = send(head); done != DL_OK) return done;
  }
  if (pending_->head != head) {
    return say({.code = Errc::usage,
                .what = "the state of the outer optimizer has changed since it sent a fragment: "
                        "call dl_outer_restored() after you have restored it"});
  }
  const std::uint64_t steps = state_.counts().steps;
  while (true) {
    Verdict verdict;
    if (const auto done = hear(false, verdict); done != DL_OK) return done;
    moved |= verdict.more || verdict.kind == SiteNews::Kind::state;
    if (const auto done = follow(verdict, moved ? 0 : mixing); done != DL_OK) return done;
    if (verdict.kind != SiteNews::Kind::adopted && !verdict.more) break;
  }
  if (moved) jump(steps);
  return DL_OK;
}

dl_result OuterSites::follow(const Verdict& verdict, float mixing) {
  if (verdict.kind == SiteNews::Kind::state) return take_whole(verdict);
  if (verdict.kind == SiteNews::Kind::merge) return apply(verdict, mixing);
  // A new epoch with this state: what was contributed is for it now.
  state_.counts().epoch = verdict.id.epoch;
  note_merge(verdict);
  if (pending_ && leads()) sites_.endpoint->contribute(verdict.id.next(), pending_->payload);
  return DL_OK;
}

void OuterSites::note_carried() {
  const std::lock_guard lock(sites_.mutex);
  ++sites_.carried;
}

void OuterSites::note_merge(const Verdict& verdict) {
  const std::lock_guard lock(sites_.mutex);
  sites_.last = verdict.id;
  sites_.contributed = verdict.contributed;
  sites_.members = verdict.members;
}

// Until a merge shows where the contribution went, the residual has what it had before: a state
// that is saved meanwhile must not lack it.
void OuterSites::settle_residual(const Verdict& verdict) {
  const auto fragment = static_cast<int>(verdict.head.fragment);
  float* const residual = state_.residual(fragment);
  if (residual == nullptr || !leads()) return;
  if (!verdict.ours) {
    std::ranges::copy(pending_->late, residual);
    return;
  }
  std::fill_n(residual, state_.gradient(fragment).size(), 0.0F);
  // What the codec lost in an earlier life is not known.
  if (pending_ && !verdict.earlier) std::ranges::copy(pending_->lost, residual);
}

dl_result OuterSites::apply(const Verdict& verdict, float mixing) {
  const auto fragment = static_cast<int>(verdict.head.fragment);
  if (pending_) {
    if (pending_->head != verdict.head) {
      return say(
          {.code = Errc::mismatch,
           .what = fmt::format(
               "merge {} of the other sites is of fragment {} after {} steps, and this "
               "site is at fragment {} after {}: call the outer optimizer alike at all sites",
               verdict.id.number, verdict.head.fragment, verdict.head.steps,
               pending_->head.fragment, pending_->head.steps)});
    }
    if (!verdict.ours) note_carried();
  }
  if (pending_ || verdict.ours) {
    settle_residual(verdict);
    pending_.reset();
  } else if (const auto done = keep_work(fragment); done != DL_OK) {
    return done;
  }
  const std::span<float> average = state_.gradient(fragment);
  if (const auto done = share(average.data(), average.size_bytes()); done != DL_OK) return done;
  apply_merge(state_, verdict.id, verdict.head);
  state_.take_anchor(fragment, mixing);
  note_merge(verdict);
  if (leads()) sites_.endpoint->holds(state_now());
  return DL_OK;
}

dl_result OuterSites::take_whole(const Verdict& verdict) {
  std::string others;
  if (!leads()) others.resize(verdict.bytes);
  const SharedBytes whole = std::exchange(whole_, nullptr);
  if (const auto done =
          share(leads() ? const_cast<char*>(whole->data()) : others.data(), verdict.bytes);
      done != DL_OK) {
    return done;
  }
  const std::string& copy = leads() ? *whole : others;
  if (auto ok = take_state(state_, copy, common_); !ok) {
    return say(
        {.code = ok.error().code, .what = "the state of the other sites: " + ok.error().what});
  }
  OuterCounts& counts = state_.counts();
  counts.epoch = verdict.id.epoch;
  pending_.reset();
  std::ranges::fill(state_.residual(), 0.0F);
  for (int f = 0; f < state_.fragments(); ++f) state_.take_anchor(f, 0);
  {
    const std::lock_guard lock(sites_.mutex);
    sites_.last = verdict.id;
  }
  if (leads()) sites_.endpoint->holds(state_now());
  return DL_OK;
}

}  // namespace dlaunch
