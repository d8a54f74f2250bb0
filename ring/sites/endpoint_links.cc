// SiteEndpoint: its connections, and what comes over them.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/address.h"
#include "base/log.h"
#include "base/socket.h"
#include "base/text.h"
#include "rendezvous/handshake.h"
#include "ring/sites/endpoint.h"

namespace dlaunch {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(100);
constexpr Duration kLongPause = std::chrono::seconds(2);
constexpr std::size_t kMostUnproven = 16;
constexpr Duration kNoDescriptors = std::chrono::seconds(1);  // until it lets the next one in
constexpr std::uint64_t kStateAsked = 16 << 20;  // bytes of a state that are on their way

}  // namespace

// What both ends of a connection must share: the list of sites.
HandshakeIdentity SiteEndpoint::identity() const {
  const std::string list = to_string(config_.sites);
  return {.purpose = Purpose::site,
          .job_id = "of sites " + sha256_hex(list).substr(0, 16),
          .from_rank = config_.me,
          .who = fmt::format("site {} on {}", name(config_.me), config_.host)};
}

void SiteEndpoint::let_in() {
  SocketAddress from;
  UniqueFd fd(::accept4(listener_.get(), from.get(), &from.size, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd && lacks_descriptors(errno)) {
    accepts_at_ = steady_now() + kNoDescriptors;
    return complaints_.warn("", fmt::format("site {} can let no other site in: {}",
                                            name(config_.me), std::strerror(errno)));
  }
  if (!fd) return;
  drop_oldest_stranger();
  HandshakeIdentity expected = identity();
  expected.to_rank = config_.me;
  expected.from_rank = -1;
  auto made =
      SiteConnection::accepted(std::move(fd), config_.secret, std::move(expected), greeting());
  if (!made) return complaints_.warn("", "a site cannot be let in: " + made.error().what);
  links_.emplace_back(std::move(*made), open_fds_).address = numeric_host(from);
}

// Where too many have not proven to be sites, the next one takes the place of the first.
void SiteEndpoint::drop_oldest_stranger() {
  const auto is_stranger = [](const Link& link) { return link.site < 0 && !link.over; };
  if (static_cast<std::size_t>(std::ranges::count_if(links_, is_stranger)) < kMostUnproven) return;
  std::ranges::find_if(links_, is_stranger)->over = Error{.what = "others have come after it"};
}

void SiteEndpoint::begin_attempts(TimePoint now) {
  for (auto& [site, attempt] : attempts_) {
    const bool due = now >= attempt.next;
    if (due) lookup_.ask(site, config_.sites[static_cast<std::size_t>(site)].endpoint);
    auto found = lookup_.take(site);
    if (found && *found) attempt.addresses = std::move(**found);
    if (!due && !(found && attempt.waits)) continue;
    attempt.waits = attempt.addresses.empty() && !found;
    attempt.next = kNever;  // until that connection ends, or the addresses are there
    if (attempt.waits) continue;
    const Result<void> begun =
        attempt.addresses.empty() ? Result<void>(found->error()) : connect(site, attempt);
    if (!begun) failed(site, attempt, begun.error().what, now);
  }
}

Result<void> SiteEndpoint::connect(int site, Attempt& attempt) {
  const SocketAddress& address = attempt.addresses[attempt.turn++ % attempt.addresses.size()];
  auto fd = begin_to_connect(address.get(), address.size, "connect to " + numeric_host(address));
  if (!fd) return fd.error();
  HandshakeIdentity claims = identity();
  claims.to_rank = site;
  auto made =
      SiteConnection::connecting(std::move(*fd), config_.secret, std::move(claims), greeting());
  if (!made) return made.error();
  links_.emplace_back(std::move(*made), open_fds_).site = site;
  return {};
}

// The user hears of it when it has gone on for a while.
void SiteEndpoint::failed(int site, Attempt& attempt, const std::string& why, TimePoint now) {
  attempt.pause = std::clamp(2 * attempt.pause, kFirstPause, kLongPause);
  attempt.next = now + attempt.pause;
  attempt.fails_since = std::min(attempt.fails_since, now);
  if (attempt.complained || now < attempt.fails_since + config_.missing_after()) return;
  attempt.complained = true;
  log_warn("site {} cannot reach site {} at {}: {}", name(config_.me), name(site),
           to_string(config_.sites[static_cast<std::size_t>(site)].endpoint), why);
}

void SiteEndpoint::move_links(TimePoint now) {
  std::size_t next = 2;
  for (Link& link : links_) {
    const short events = polled_[next++].revents;
    if (link.over) continue;
    const auto moved = link.connection.move(
        events, now, [&](std::string_view frame) { return on_frame(link, frame); });
    link.open.note(link.connection.fd());
    if (!moved) link.over = moved.error();
    const std::uint64_t sent = link.connection.take_sent();
    const std::uint64_t received = link.connection.take_received();
    if (link.site < 0) continue;
    if (link.up && received > 0) happen(SiteCore::Heard{link.site});
    const auto site = static_cast<std::size_t>(link.site);
    const std::lock_guard lock(mutex_);
    traffic_.sent[site] += sent;
    traffic_.received[site] += received;
  }
}

TimePoint SiteEndpoint::ends_at(const Link& link) const {
  const TimePoint silent = link.connection.heard() + config_.timeout;
  return link.site < 0 ? std::min(silent, link.since + kHandshakeTimeout) : silent;
}

void SiteEndpoint::end_silent(TimePoint now) {
  for (Link& link : links_) {
    if (link.over || now < ends_at(link)) continue;
    link.over = Error{.code = Errc::timeout, .what = "it is silent"};
  }
}

// Removes the links that are over.
void SiteEndpoint::bury(TimePoint now) {
  for (auto it = links_.begin(); it != links_.end();) {
    if (it->over) mourn(*it, now);
    it = it->over ? links_.erase(it) : std::next(it);
  }
}

void SiteEndpoint::mourn(const Link& link, TimePoint now) {
  if (link.up && link_of(link.site) == nullptr) {
    const bool lost = link.over->code != Errc::aborted;
    if (!lingers_ && lost) {
      log_warn("site {} has lost site {}: {}", name(config_.me), name(link.site), link.over->what);
    }
    if (lost) held_by_[link.site] = {};
    give_fetch_up(link.site);
    happen(SiteCore::PeerDown{link.site});
  } else if (!link.up && link.over->code == Errc::auth) {
    const std::string whom = link.site >= 0 ? "site " + name(link.site) : link.address;
    complaints_.warn(whom, fmt::format("site {}: no connection with {}: {}; all sites need the "
                                       "same list of sites and the same secret",
                                       name(config_.me), whom, link.over->what));
  }
  const auto attempt = attempts_.find(link.site);
  if (attempt == attempts_.end()) return;
  if (!link.up || attempt->second.denied_since != kNever) {
    return failed(link.site, attempt->second, link.over->what, now);
  }
  attempt->second.pause = kFirstPause;
  attempt->second.next = now + kFirstPause;
}

SiteEndpoint::Link* SiteEndpoint::link_of(int site) {
  for (Link& link : links_) {
    if (link.up && link.site == site && !link.over) return &link;
  }
  return nullptr;
}

// One read may bring several frames: the core must know of those before this one. The other thread
// learns of them together, in settle().
Result<void> SiteEndpoint::on_frame(Link& link, std::string_view frame) {
  run_core();
  if (!link.up) return greeted(link);
  if (frame.empty()) return Error{.code = Errc::aborted, .what = "it has left"};
  auto message = decode_site_message(frame);
  if (!message) return message.error();
  return take(link, std::move(*message));
}

Result<void> SiteEndpoint::greeted(Link& link) {
  const SiteMember peer = *link.connection.peer();
  const bool calls_us = link.site < 0;
  if (calls_us &&
      (peer.site <= config_.me || peer.site >= static_cast<int>(config_.sites.size()))) {
    return Error{.code = Errc::protocol, .what = "it is no site that connects to this one"};
  }
  if (link.connection.common() != config_.common) {
    const auto why = fmt::format(
        "sites {} and {} have outer optimizers with other options or tensors, or another grace or "
        "time-out",
        name(config_.me), name(peer.site));
    if (core_.newest() != nullptr) return deny(link, why);
    fail({.code = Errc::mismatch, .what = why});
    return Error{.code = Errc::mismatch, .what = why};
  }
  if (Link* const older = link_of(peer.site)) {
    if (peer.incarnation < older->connection.peer()->incarnation) {
      return deny(link, fmt::format("site {} is there twice: {}, and {}", name(peer.site),
                                    older->connection.who(), link.connection.who()));
    }
    older->over = Error{.what = "it has connected once more"};
    older->up = false;
    give_fetch_up(peer.site);
  }
  link.site = peer.site;
  link.up = true;
  held_by_[peer.site] = {};
  happen(SiteCore::PeerUp{peer});
  return {};
}

// This site trains with others: what is wrong with the peer must not end that.
Error SiteEndpoint::deny(Link& link, const std::string& why) {
  complaints_.warn(why, why);
  link.connection.say_last(encode(SiteDenial{why}));
  return {.code = Errc::aborted, .what = why};
}

// An older life of this site may only seem to be there, until its silence is noticed.
Error SiteEndpoint::denied(const Link& link, const std::string& why) {
  const Error error{.code = Errc::aborted, .what = why};
  const auto attempt = attempts_.find(link.site);
  if (attempt == attempts_.end()) return error;
  TimePoint& since = attempt->second.denied_since;
  since = std::min(since, steady_now());
  if (steady_now() >= since + 3 * config_.timeout) fail({.code = Errc::usage, .what = why});
  return error;
}

// The peer talks to this site.
void SiteEndpoint::welcomed(int site) {
  const auto attempt = attempts_.find(site);
  if (attempt == attempts_.end()) return;
  attempt->second.denied_since = attempt->second.fails_since = kNever;
  attempt->second.complained = false;
}

Result<void> SiteEndpoint::take(Link& link, SiteMessage message) {
  if (const auto* block = std::get_if<SiteBlock>(&message)) {
    take_block(link, *block);
  } else if (const auto* ask = std::get_if<SiteStateAsk>(&message)) {
    give_state(link, *ask);
  } else if (const auto* part = std::get_if<SiteStateBlock>(&message)) {
    take_state_block(link, *part);
  } else if (const auto* denial = std::get_if<SiteDenial>(&message)) {
    return denied(link, denial->why);
  } else {
    if (const auto* status = std::get_if<SiteStatus>(&message)) {
      held_by_[link.site] = status->held;
      welcomed(link.site);
    }
    happen(SiteCore::Received{link.site, std::move(message)});
  }
  return {};
}

void SiteEndpoint::take_block(Link& link, const SiteBlock& block) {
  const auto found = payloads_.find(block.payload);
  if (found == payloads_.end() || !core_.expects(block.payload, block.offset, block.data.size())) {
    return;
  }
  found->second->resize(block.offset);  // it may come once more
  found->second->append(block.data);
  PayloadDigest& digest = digests_[block.payload];
  if (block.offset == 0) digest = {};
  digest.add(block.data);
  happen(SiteCore::Arrived{link.site, block.payload, block.offset,
                           static_cast<std::uint32_t>(block.data.size())});
}

// -- Whole states

// A peer that has begun to take a state takes that one to its end.
void SiteEndpoint::give_state(Link& link, const SiteStateAsk& ask) {
  const bool goes_on =
      link.giving && ask.offset > 0 && ask.id == link.giving_id && ask.hash == link.giving_hash;
  if (!goes_on) {
    link.giving = state_.copy;
    link.giving_id = state_.id;
    link.giving_hash = state_.hash;
  }
  const std::uint64_t offset = goes_on ? ask.offset : 0;
  link.connection.send_later([&link, state = link.giving, id = link.giving_id,
                              hash = link.giving_hash, offset,
                              count = std::min(ask.count, kSiteBlock)] {
    if (offset + count >= state->size() && link.giving == state) link.giving = nullptr;
    return encode(SiteStateBlock{
        .id = id,
        .hash = hash,
        .total = state->size(),
        .offset = offset,
        .data = offset < state->size() ? state->substr(offset, count) : std::string()});
  });
}

void SiteEndpoint::ask_state() {
  Link* const link = link_of(fetch_->from);
  if (link == nullptr) return give_fetch_up(fetch_->from);
  Fetch& it = *fetch_;
  const auto ask = [&](std::uint64_t offset) {
    link->connection.send(
        encode(SiteStateAsk{.id = it.id, .hash = it.hash, .offset = offset, .count = kSiteBlock}));
  };
  if (it.total == 0) return ask(0);
  while (it.asked < it.total && it.asked < it.bytes.size() + kStateAsked) {
    ask(it.asked);
    it.asked += kSiteBlock;
  }
}

void SiteEndpoint::take_state_block(Link& link, const SiteStateBlock& block) {
  if (!fetch_ || fetch_->from != link.site) return;
  Fetch& it = *fetch_;
  if (block.total == 0 || block.id < it.at_least) return give_fetch_up(link.site);
  if (block.id != it.id || block.hash != it.hash || it.total == 0) {
    if (block.offset != 0) return;  // of a state that it gave before
    it.id = block.id;
    it.hash = block.hash;
    it.total = block.total;
    it.bytes.clear();
    it.asked = block.data.size();
  }
  if (block.offset != it.bytes.size()) return;
  it.bytes += block.data;
  if (it.bytes.size() < it.total) return ask_state();
  SiteNews news{.kind = SiteNews::Kind::state, .id = it.id};
  news.state = std::make_shared<std::string>(std::move(it.bytes));
  fetch_.reset();
  applying_ = news;
  tell(std::move(news));
  happen(SiteCore::StateArrived{link.site});
}

// A state of this site will not come to its end.
void SiteEndpoint::give_fetch_up(int from) {
  if (!fetch_ || fetch_->from != from) return;
  fetch_.reset();
  happen(SiteCore::StateFailed{from});
}

}  // namespace dlaunch
