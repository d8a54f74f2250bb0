#include "launcher/follower.h"

#include <signal.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/exit_code.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "launcher/process_tree.h"

namespace dlaunch {
namespace {

constexpr Duration kNobodyListens = std::chrono::seconds(10);
constexpr Duration kTellAfter = std::chrono::seconds(5);

}  // namespace

Follower::Follower(const Plan& plan, const JobDir& job_dir, UniqueFd signals,
                   const OriginalSignals& original)
    : AgentBase(plan, job_dir, std::move(signals), original),
      lifeline_(loop_),
      give_up_at_(deadline_after(steady_now(), plan.join_timeout)),
      refused_until_(give_up_at_),
      tell_at_(steady_now() + kTellAfter) {}

int Follower::run() {
  if (!set_up()) return exit_code_;
  // What the user chose holds for the host that is sure to have rank 0.
  const int port = plan_.nodes.rank == 0 ? plan_.master_port : 0;
  auto master = reserve_port(plan_.host, static_cast<std::uint16_t>(port));
  if (!master) return failed(kExitRendezvous, master.error()), exit_code_;
  master_port_ = std::move(*master);
  open_output();
  watch_lifeline();
  const auto endpoint = parse_endpoint(plan_.nodes.endpoint);
  common_.store_url = "tcp://" + plan_.nodes.endpoint;
  HandshakeIdentity self{.purpose = Purpose::node,
                         .job_id = plan_.job_id,
                         .who = fmt::format("dlaunch of host {} (pid {})", plan_.host, ::getpid())};
  link_.emplace(loop_, *endpoint, std::move(self), secret_,
                LeaderLink::Listener{
                    .opened = [this] { on_opened(); },
                    .message = [this](std::string_view frame) { on_frame(frame); },
                    .lost = [this](const std::string& why) { on_lost(why); },
                    .failed = [this](const LeaderLink::Failure& failure) { on_failed(failure); }});
  link_->start();
  return run_loop();
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
    link_->stop();
    leave(kExitRendezvous);
  });
}

// -- The connection

void Follower::on_opened() {
  open_ = true;
  join();
}

// Not while workers of an earlier time are there.
void Follower::join() {
  if (!open_ || joined_ || any_runs()) return;
  send(NodeJoin{plan_.host, plan_.nodes.rank, plan_.nproc, what_must_agree(plan_),
                link_->local_address(), master_port_.port});
}

void Follower::on_lost(const std::string& why) {
  open_ = false;
  const bool was_in = std::exchange(joined_, false);
  const auto now = steady_now();
  give_up_at_ = deadline_after(now, plan_.join_timeout);
  refused_until_ = give_up_at_;
  if (!plan_.nodes.leader_returns) refused_until_ = std::min(give_up_at_, now + kNobodyListens);
  told_.clear();
  tell_at_ = now + kTellAfter;
  if (!was_in) return;
  log_warn("lost the leading dlaunch at {}; ending this host's workers", why);
  pump_.post([this] {
    std::vector<Slot> all;
    for (Slot slot = 0; slot < slots_; ++slot) all.push_back(slot);
    node_->driver().stop(all, SIGKILL);
  });
}

void Follower::on_failed(const LeaderLink::Failure& failure) {
  const auto now = steady_now();
  const bool over = now > (failure.nobody_listens ? refused_until_ : give_up_at_);
  if (failure.final || over) {
    const bool by_key = failure.final && !plan_.key_file.empty();
    log_error("cannot join the job at {}{}", failure.why,
              by_key ? "; its hosts have to share " + plan_.key_file + ", or a --secret-file" : "");
    link_->stop();
    return leave(kExitRendezvous);
  }
  if (now < tell_at_ || failure.why == told_) return;
  log_warn("waiting for the leading dlaunch at {}", failure.why);
  told_ = failure.why;
  tell_at_ = now + kTellAfter;
}

void Follower::on_frame(std::string_view frame) {
  const auto message = decode_node_message(frame, steady_now());
  if (!message) return log_warn("the leading dlaunch sent {}", message.error().what);
  pump_.post([this, what = *message] { take(what); });
}

void Follower::send(const NodeMessage& message) { link_->send(encode(message, steady_now())); }

// -- What the job wants

void Follower::take(const NodeMessage& message) {
  if (const auto* refused = std::get_if<NodeRefused>(&message)) {
    log_error("the leading dlaunch refused this host: {}", escaped(refused->why));
    link_->stop();
    return leave(kExitRendezvous);
  }
  if (const auto* finish = std::get_if<NodeFinish>(&message)) return finished(*finish);
  if (const auto* welcome = std::get_if<NodeWelcome>(&message)) return welcomed(*welcome);
  if (!joined_) return;
  if (const auto* start = std::get_if<NodeStart>(&message)) {
    node_->drop_old_round_dirs();
    node_->start(*start);
  } else if (const auto* stop = std::get_if<NodeStop>(&message)) {
    node_->driver().stop(stop->slots, stop->signal);
  } else if (const auto* pass = std::get_if<NodeHandOn>(&message)) {
    node_->driver().hand_on(pass->signal);
  } else if (const auto* fence = std::get_if<NodeFence>(&message)) {
    node_->fence(fence->round, fence->lost);
  } else if (const auto* announce = std::get_if<NodeAnnounce>(&message)) {
    (void)node_->announce(*announce);
  }
}

void Follower::welcomed(const NodeWelcome& welcome) {
  if (!node_) {
    slots_ = welcome.slots;
    auto node = open_node(
        slots_, {.tell = [this](const JobCore::Event& event) { tell(event); },
                 .ended =
                     [this](Slot slot, const WorkerEnd& end) {
                       if (joined_) send(NodeEnded{slot, end});
                       node_->kill_leftovers();
                       join();
                     },
                 .start_failed = [this](Slot slot,
                                        const SpawnError& error) { start_errors_[slot] = error; },
                 .child_changed = [] {}});
    if (!node) {
      failed(kExitCannotCreate, node.error());
      link_->stop();
      return leave(kExitCannotCreate);
    }
    node_ = std::move(*node);
  }
  joined_ = true;
  log_info("joined the job as node {}", welcome.number);
}

void Follower::finished(const NodeFinish& finish) {
  link_->stop();
  if (node_) node_->kill_leftovers();
  // By the one that started us, or by the leading one, to the same user.
  const bool said = plan_.nodes.lifeline >= 0 || plan_.nodes.in_step;
  if (!finish.why.empty() && !said) log_error("{}", escaped(finish.why));
  leave(finish.exit_code);
}

// -- What happens here

void Follower::tell(const JobCore::Event& event) {
  if (!joined_) return join();
  if (const auto* spawned = std::get_if<JobCore::Spawned>(&event)) {
    send(NodeSpawned{spawned->slot});
  } else if (const auto* failed = std::get_if<JobCore::SpawnFailed>(&event)) {
    send(NodeStartFailed{failed->slot, start_errors_[failed->slot]});
  } else if (const auto* not_started = std::get_if<JobCore::Ended>(&event)) {
    send(NodeNotStarted{not_started->slot});
  } else if (const auto* stuck = std::get_if<JobCore::Unkillable>(&event)) {
    send(NodeUnkillable{stuck->slot});
  } else if (const auto* ready = std::get_if<JobCore::Ready>(&event)) {
    send(NodeReady{ready->slot, ready->left, ready->version});
  } else if (const auto* progress = std::get_if<JobCore::Progress>(&event)) {
    send(NodeProgress{progress->slot, progress->version});
  } else if (const auto* replace = std::get_if<JobCore::Replace>(&event)) {
    send(NodeReplace{replace->slot, replace->kind});
  }
}

// The whole job's, by way of the leader; alone, or when it is pressed, at once.
void Follower::on_signal(int signal) {
  const bool ends = ends_the_job(signal);
  if (plan_.nodes.in_step && !ends) return;  // Slurm gave it to the workers, too
  const bool again = ends && std::exchange(stop_signal_, signal) != 0;
  if (joined_ && !again) return send(NodeSignal{signal});
  if (!ends) return;
  kill_descendants();
  link_->stop();
  leave(128 + signal);
}

void Follower::on_timer() { node_->driver().on_clock(); }

void Follower::on_idle() {
  if (node_) arm_timer(node_->driver().deadline().value_or(kNever));
}

}  // namespace dlaunch
