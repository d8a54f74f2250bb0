#include "launcher/follower.h"

#include <signal.h>
#include <unistd.h>

#include <type_traits>

#include <asio/post.hpp>
#include <fmt/format.h>

#include "base/exit_code.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "elastic/job_core.h"
#include "launcher/hosts/nat.h"
#include "launcher/process/process_tree.h"

namespace dlaunch {
namespace {

// Messages that every leader must get: they are kept for the next one.
bool is_report(const NodeMessage& message) {
  return std::visit(
      [](const auto& what) {
        using T = std::remove_cvref_t<decltype(what)>;
        return std::is_same_v<T, NodeEnded> || std::is_same_v<T, NodeStartFailed> ||
               std::is_same_v<T, NodeNotStarted> || std::is_same_v<T, NodeUnkillable> ||
               std::is_same_v<T, NodeReplace>;
      },
      message);
}

}  // namespace

Follower::Follower(const Plan& plan, const JobDir& job_dir, UniqueFd signals,
                   const OriginalSignals& original)
    : AgentBase(plan, job_dir, std::move(signals), original),
      lifeline_(loop_),
      search_({.elects = plan.nodes.elects(),
               .leader_returns = plan.nodes.leader_returns,
               .join_timeout = plan.join_timeout},
              steady_now()) {}

int Follower::run() {
  if (!set_up()) return exit_code_;
  // The user's choice holds for the host that may have rank 0.
  const bool maybe = plan_.nodes.rank == 0 || (plan_.nodes.rank < 0 && plan_.nodes.elects());
  const int port = maybe ? plan_.master_port : 0;
  if (auto done = reserve_ports(port); !done) {
    return failed(kExitRendezvous, done.error()), exit_code_;
  }
  open_output();
  hub_->stdin_pump().set_ask([this](bool wants) {
    if (joined_) send(NodeInputWanted{wants});
  });
  watch_lifeline();
  if (elected_by_) {
    watch_campaign();
  } else {
    follow({.endpoint = plan_.nodes.endpoint});
  }
  arm_timer(job_ends_at_);
  return run_loop();
}

void Follower::follow(const Leader& leader) {
  const auto endpoint = parse_endpoint(leader.endpoint);
  if (!endpoint)
    return log_warn("the job's leader is at '{}': {}", leader.endpoint, endpoint.error().what);
  if (link_) link_->stop();
  if (joined_) on_lost(to_string(*endpoint) + ": another one leads now");
  open_ = false;
  if (plan_.nodes.elects() && !leads_) {
    maybe_here_ = shared_address_note(endpoint->host, host_addresses());
  }
  common_.store_url = "tcp://" + leader.endpoint;
  if (node_) node_->set_store(common_.store_url);
  HandshakeIdentity self{.purpose = Purpose::node,
                         .job_id = plan_.job_id,
                         .who = fmt::format("dlaunch of host {} (pid {})", plan_.host, ::getpid())};
  link_.emplace(loop_, *endpoint, std::move(self), secret_, plan_.nodes.host_timeout,
                LeaderLink::Listener{
                    .opened = [this] { on_opened(); },
                    .message = [this](std::string_view frame) { on_frame(frame); },
                    .lost = [this](const std::string& why) { on_lost(why); },
                    .failed = [this](const LeaderLink::Failure& failure) { on_failed(failure); }});
  link_->start();
}

// -- The election

void Follower::watch_campaign() {
  helpers_.insert(elected_by_->pid);
  campaign_.emplace(
      loop_, std::move(*elected_by_),
      CampaignLink::Listener{
          .leader =
              [this](const Leader& leader, bool ours) {
                if (link_) link_->hear_out();
                pump_.post([this, leader, ours] {
                  if (parted_ || leave_with_) return;  // the job is over
                  leads_ = ours;
                  follow(leader);
                });
              },
          .nobody = [this](const std::string& why, bool never) { nobody_leads(why, never); },
          .ended = [this] { campaign_ended(); }});
}

void Follower::nobody_leads(const std::string& why, bool never) {
  if (open_) return;
  on_failed({.why = why, .final = never});
}

void Follower::part(int exit_code) {
  parted_ = true;
  if (link_) link_->stop();
  leave(exit_code);
}

void Follower::campaign_ended() {
  helpers_.erase(campaign_->pid());
  if (leave_with_) return part(*leave_with_);
  if (parted_) return;
  log_error("lost the process that takes part in the election of the job's leader");
  kill_descendants();
  part(kExitInternal);
}

void Follower::watch_lifeline() {
  if (plan_.nodes.lifeline < 0) return;
  asio::error_code error;
  if (!lifeline_.is_open()) lifeline_.assign(::dup(plan_.nodes.lifeline), error);
  lifeline_.async_wait(asio::posix::stream_descriptor::wait_read, [this](asio::error_code ec) {
    char unused[64];
    if (!ec && ::read(lifeline_.native_handle(), unused, sizeof unused) > 0) {
      return watch_lifeline();
    }
    if (any_runs()) log_warn("lost the dlaunch that started this one; ending this host's workers");
    kill_descendants();
    part(kExitRendezvous);
  });
}

// -- The connection

void Follower::on_opened() {
  open_ = true;
  join();
}

// Offers workers of an earlier time only if the leader may know of them.
void Follower::join() {
  const bool alone = clearing_ || !goes_on();
  if (!open_ || joined_ || (alone && any_runs())) return;
  clearing_ = false;
  NodeJoin asks{plan_.host,
                plan_.nodes.rank,
                plan_.nproc,
                what_must_agree(plan_),
                link_->local_address(),
                ports_.master.port,
                {},
                {},
                plan_.nodes.login,
                ports_.rank_numbers()};
  if (goes_on()) {
    if (asks.number < 0) asks.number = number_;
    asks.run = run_;
    for (const auto& [slot, found] : found_) asks.found.push_back(found);
  }
  send(asks);
}

// The leader does not know this host's workers: kills them, and joins as a fresh host.
void Follower::clear() {
  clearing_ = true;
  // There was nothing left to clear: the leader has forgotten that run.
  if (!plan_.nodes.elects() && found_.empty() && !any_runs()) run_.clear();
  found_.clear();
  unsent_.clear();
  if (any_runs()) log_warn("the job went on without this host; ending its workers");
  if (node_) node_->kill_all();
  join();
}

void Follower::test() {
  if (joined_ || health_check_) return;
  health_check_.emplace(loop_, plan_, job_dir_.path(), helpers_, [this](const std::string& why) {
    asio::post(loop_, [this, why] { tested(why); });  // it ends there
  });
  health_check_->start();
}

void Follower::tested(const std::string& why) {
  if (!health_check_) return;  // the leader that asked is lost
  health_check_.reset();
  send(NodeTested{why});
  // Our starter gets the reason from the leader.
  if (plan_.nodes.lifeline >= 0 || std::exchange(unhealthy_, why) == why || why.empty()) return;
  log_warn("this host gets no workers, it failed its health check: {}; it is tested again later",
           why);
}

void Follower::on_lost(const std::string& why) {
  open_ = false;
  health_check_.reset();
  const bool was_in = std::exchange(joined_, false);
  search_.lost(steady_now(), goes_on());
  if (!was_in) return;
  if (plan_.nodes.elects()) return log_warn("lost the leading dlaunch at {}", why);
  if (goes_on()) {
    return log_warn(
        "lost the leading dlaunch at {}; this host's workers stay for {} "
        "(--join-timeout), for the case that it is started again",
        why, format_duration(plan_.join_timeout));
  }
  log_warn("lost the leading dlaunch at {}; ending this host's workers", why);
  pump_.post([this] {
    if (node_) node_->kill_all();
  });
}

void Follower::on_failed(const LeaderLink::Failure& failure) {
  switch (search_.failed(steady_now(), failure, goes_on())) {
    case LeaderSearch::Next::wait:
      return;
    case LeaderSearch::Next::warn:
      return log_warn("waiting for the leading dlaunch at {}{}", failure.why, maybe_here_);
    case LeaderSearch::Next::not_restarted:
      log_error(
          "the leading dlaunch at {}: it was not started again within {} (--join-timeout); "
          "ending this host's workers",
          failure.why, format_duration(plan_.join_timeout));
      kill_descendants();
      break;
    case LeaderSearch::Next::cannot_join:
      const bool by_key = failure.final && !plan_.key_file.empty();
      log_error(
          "cannot join the job at {}{}{}", failure.why, maybe_here_,
          by_key ? "; its hosts have to share " + plan_.key_file + ", or a --secret-file" : "");
  }
  part(kExitRendezvous);
}

void Follower::on_frame(std::string_view frame) {
  const auto message = decode_node_message(frame, link_->origin());
  if (!message) return log_warn("the leading dlaunch sent {}", message.error().what);
  if (const auto* ping = std::get_if<NodePing>(&*message)) {
    return send(NodePong{ping->sent, steady_now() - link_->origin()});
  }
  pump_.post([this, what = *message] { take(what); });
}

void Follower::send(const NodeMessage& message) { link_->send(encode(message, link_->origin())); }

// -- The leader's orders

void Follower::take(const NodeMessage& message) {
  if (const auto* refused = std::get_if<NodeRefused>(&message)) {
    log_error("the leading dlaunch refused this host: {}", escaped(refused->why));
    return part(kExitRendezvous);
  }
  if (const auto* finish = std::get_if<NodeFinish>(&message)) return finished(*finish);
  if (const auto* welcome = std::get_if<NodeWelcome>(&message)) return welcomed(*welcome);
  if (std::holds_alternative<NodeClear>(message)) return clear();
  if (std::holds_alternative<NodeTest>(message)) return test();
  if (!joined_) return;
  if (const auto* input = std::get_if<NodeInput>(&message)) {
    return hub_->stdin_pump().feed(input->bytes);
  }
  note(message);
  node_->take(message);
}

void Follower::welcomed(const NodeWelcome& welcome) {
  if (!node_) {
    auto node =
        open_node(welcome.slots, [this](const NodeMessage& message) { node_says(message); });
    if (!node) {
      failed(kExitCannotCreate, node.error());
      return part(kExitCannotCreate);
    }
    node_ = std::move(*node);
  }
  joined_ = true;
  node_->grow(welcome.slots);
  node_->begin(welcome.still_after);
  open_redirect(welcome.led_by);
  run_ = welcome.run;
  number_ = welcome.number;
  hub_->stdin_pump().ask_again();
  for (const NodeMessage& message : std::exchange(unsent_, {})) report(message);
  // A worker that has asked for a round since we asked to join was not among the workers we
  // reported.
  for (const auto& [slot, process] : found_) {
    if (process.ready) send(NodeReady{slot, process.in_round, process.version, {}});
  }
  log_info("joined the job as node {}", welcome.number);
}

// For dlaunchctl. The job goes on without it, too.
void Follower::open_redirect(const std::string& leader) {
  redirect_.reset();
  auto redirect = Redirect::open(loop_, job_dir_.path(), plan_.job_id, escaped(leader));
  if (!redirect) return log_warn("{}", redirect.error().what);
  redirect_ = std::move(*redirect);
}

void Follower::finished(const NodeFinish& finish) {
  if (node_) node_->finish();
  // Our starter, the leader, or our own campaign has already told the same user.
  const bool said = plan_.nodes.lifeline >= 0 || plan_.nodes.in_step() || leads_;
  if (!finish.why.empty() && !said) log_error("{}", escaped(finish.why));
  if (!leads_) return part(finish.exit_code);
  link_->stop();
  leave_with_ = finish.exit_code;
}

// -- What happens here

void Follower::node_says(const NodeMessage& message) {
  if (const auto* ready = std::get_if<NodeReady>(&message)) {
    if (clearing_) return;
    NodeFound& process = found(ready->slot);
    process.linked = process.ready = true;
    process.version = ready->version;
    if (joined_) send(message);
  } else if (const auto* progress = std::get_if<NodeProgress>(&message)) {
    if (clearing_) return;
    found(progress->slot).version = progress->version;
    if (joined_) send(message);
  } else if (is_report(message)) {
    report(message);
    if (std::holds_alternative<NodeEnded>(message)) node_->end_leftovers();
    join();
  } else if (joined_) {
    send(message);
  }
}

NodeFound& Follower::found(Slot slot) {
  NodeFound& process = found_[slot];
  process.slot = slot;
  return process;
}

// Keeps an ended worker in the list for a leader that does not know of its end yet; it waits for
// no round.
void Follower::report(const NodeMessage& message) {
  const auto* ended = std::get_if<NodeEnded>(&message);
  if (!joined_) {
    if (!goes_on() || clearing_) return;
    if (ended != nullptr) {
      found(ended->slot).ready = false;
      std::erase_if(unsent_, [&](const NodeMessage& earlier) {
        const auto* stuck = std::get_if<NodeUnkillable>(&earlier);
        return stuck != nullptr && stuck->slot == ended->slot;
      });
    }
    return unsent_.push_back(message);
  }
  if (ended != nullptr) {
    const bool well = ended->end.signal == 0 && ended->end.exit_code == 0;
    well ? void(found(ended->slot).done = true) : void(found_.erase(ended->slot));
  } else if (const auto* failed = std::get_if<NodeStartFailed>(&message)) {
    found_.erase(failed->slot);
  } else if (const auto* not_started = std::get_if<NodeNotStarted>(&message)) {
    found_.erase(not_started->slot);
  }
  send(message);
}

// Notes the orders that the next leader must know.
void Follower::note(const NodeMessage& message) {
  if (const auto* start = std::get_if<NodeStart>(&message)) {
    for (const auto& place : start->places) {
      found_[place.slot] = {.slot = place.slot, .round = start->round};
    }
  } else if (const auto* announce = std::get_if<NodeAnnounce>(&message)) {
    for (const auto& place : announce->places) {
      NodeFound& process = found(place.slot);
      process.in_round = process.round = announce->round;
      process.ready = false;
    }
  }
}

// The leader gets the signal for the whole job; we act at once if alone, or if the user insists.
void Follower::on_signal(int signal) {
  const bool ends = ends_the_job(signal);
  if (plan_.nodes.step == NodesPlan::Step::slurm && !ends)
    return;  // Slurm gave it to the workers, too
  if (ends && signal == stop_signal_ && steady_now() - stopped_at_ < kSameWish) return;
  const bool again = ends && std::exchange(stop_signal_, signal) != 0;
  if (ends) stopped_at_ = steady_now();
  if (joined_ && !again) return send(NodeSignal{signal});
  if (!ends) return;
  kill_descendants();
  part(128 + signal);
}

void Follower::on_timer() {
  if (node_) return node_->on_clock();
  if (joined_ || parted_) return;  // the leader handles it
  std::string what = "not all of its hosts are there";
  if (!open_) what = "nobody leads it";
  if (!open_ && !plan_.nodes.elects()) what += " at " + plan_.nodes.endpoint;
  log_error("the job's --timeout passed: {}", what);
  part(kExitTimeout);
}

void Follower::on_idle() {
  if (node_) arm_timer(node_->deadline().value_or(kNever));
}

}  // namespace dlaunch
