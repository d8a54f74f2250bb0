#include "launcher/agent/follower.h"

#include <unistd.h>

#include <asio/post.hpp>
#include <fmt/format.h>

#include "base/exit_code.h"
#include "base/log.h"
#include "base/text.h"
#include "elastic/job_core.h"
#include "launcher/lead/control/control_request.h"
#include "launcher/process/process_tree.h"
#include "launcher/wire/nat.h"

namespace dlaunch {
namespace {

NodeSession::Config session_config(const Plan& plan, const WorkerPorts& ports) {
  const NodesPlan& nodes = plan.nodes;
  const bool started_by_leader = nodes.lifeline >= 0;
  return {.join = {.host = plan.host,
                   .number = nodes.rank,
                   .nproc = plan.nproc,
                   .job = what_must_agree(plan),
                   .build = wire_fingerprint(),
                   .master_port = ports.master.port,
                   .login = nodes.login,
                   .ports = ports.rank_numbers(),
                   .rack = nodes.rack},
          .search = {.elects = nodes.elects(),
                     .leader_returns = nodes.leader_returns,
                     .join_timeout = plan.join_timeout},
          .endpoint = nodes.endpoint,
          .key_file = plan.key_file,
          .leader_informs = started_by_leader || nodes.in_step(),
          .started_by_leader = started_by_leader,
          .steps_get_signals = nodes.step == NodesPlan::Step::slurm};
}

}  // namespace

Follower::Follower(const Plan& plan, const JobDir& job_dir, UniqueFd signals,
                   const OriginalSignals& original)
    : AgentBase(plan, job_dir, std::move(signals), original),
      lifeline_(loop_),
      login_helper_(loop_, plan, helpers_, [this](const NodeMessage& what) { send(what); }) {}

int Follower::run() {
  const TimePoint began = steady_now();
  if (!set_up()) return exit_code_;
  // The user's choice holds for the host that may have rank 0.
  const bool maybe = plan_.nodes.rank == 0 || (plan_.nodes.rank < 0 && plan_.nodes.elects());
  const int port = maybe ? plan_.master_port : 0;
  if (auto done = reserve_ports(port); !done) {
    return failed(kExitRendezvous, done.error()), exit_code_;
  }
  session_.emplace(began, session_config(plan_, ports_));
  open_output();
  hub_->stdin_pump().set_ask([this](bool wants) { feed(NodeSession::WantsInput{wants}); });
  watch_lifeline();
  elected_by_ ? watch_campaign() : follow({.endpoint = plan_.nodes.endpoint}, false);
  arm_timer(job_ends_at_);
  return run_loop();
}

// -- Events

void Follower::feed(const NodeSession::Event& event) {
  pump_.post([this, event] {
    for (const auto& action : session_->step(steady_now(), event)) {
      if (parted_at_) return;
      std::visit([this](const auto& what) { perform(what); }, action);
    }
  });
}

void Follower::on_signal(int signal) {
  if (!parted_at_) return feed(NodeSession::Signal{signal});
  // Only our output still waits, for a reader that does not read. The same wish may come twice.
  if (ends_the_job(signal) && steady_now() - *parted_at_ >= kSameWish) loop_.stop();
}

void Follower::follow(const Leader& leader, bool ours) {
  const auto endpoint = parse_endpoint(leader.endpoint);
  if (!endpoint)
    return log_warn("the job's leader is at '{}': {}", leader.endpoint, endpoint.error().what);
  if (link_) link_->stop();
  leader_ = to_string(*endpoint);
  feed(NodeSession::Follows{leader_, ours, shared_address_note(endpoint->host, host_addresses())});
  common_.store_url = "tcp://" + leader.endpoint;
  if (node_) node_->set_store(common_.store_url);
  HandshakeIdentity self{.purpose = Purpose::node,
                         .job_id = plan_.job_id,
                         .who = fmt::format("dlaunch of host {} (pid {})", plan_.host, ::getpid())};
  link_.emplace(loop_, *endpoint, std::move(self), secret_, plan_.nodes.host_timeout,
                LeaderLink::Handlers{
                    .opened = [this] { feed(NodeSession::Opened{link_->local_address()}); },
                    .message = [this](std::string_view frame) { on_frame(frame); },
                    .lost = [this](const std::string& why) { feed(NodeSession::Lost{why}); },
                    .failed = [this](const LeaderLink::Failure& failure) { feed(failure); }});
  link_->start();
}

void Follower::on_frame(std::string_view frame) {
  const auto message = decode_node_message(frame, link_->origin());
  if (!message) return log_warn("the leading dlaunch sent {}", message.error().what);
  if (const auto* ping = std::get_if<NodePing>(&*message)) {
    return send(NodePong{ping->sent, steady_now() - link_->origin()});
  }
  if (const auto* log_in = std::get_if<NodeLogIn>(&*message)) return login_helper_.take(*log_in);
  if (const auto* forget = std::get_if<NodeForgetLogIn>(&*message)) {
    return login_helper_.take(*forget);
  }
  feed(NodeSession::Heard{*message});
}

void Follower::watch_campaign() {
  helpers_.insert(elected_by_->pid);
  campaign_.emplace(
      loop_, std::move(*elected_by_),
      CampaignLink::Handlers{
          .leader =
              [this](const Leader& leader, bool ours) {
                if (link_) link_->hear_out();
                pump_.post([this, leader, ours] {
                  if (!session_->over()) follow(leader, ours);
                });
              },
          .nobody = [this](const std::string& why,
                           bool never) { feed(LeaderSearch::Failure{.why = why, .final = never}); },
          .ended =
              [this] {
                helpers_.erase(campaign_->pid());
                feed(NodeSession::CampaignGone{});
              }});
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
    feed(NodeSession::StarterGone{});
  });
}

void Follower::on_timer() { node_ ? node_->on_clock() : feed(NodeSession::TimedOut{}); }

void Follower::on_idle() {
  if (node_) arm_timer(node_->deadline().value_or(kNever));
}

// -- Actions

void Follower::perform(const NodeSession::Order& order) {
  if (const auto* input = std::get_if<NodeInput>(&order.what)) {
    return hub_->stdin_pump().feed(input->bytes);
  }
  node_->take(order.what);
}

void Follower::perform(const NodeSession::Joined& joined) {
  const NodeWelcome& welcome = joined.welcome;
  if (!node_) {
    auto node = open_node(welcome.slots,
                          [this](const NodeMessage& message) { feed(NodeSession::Says{message}); });
    if (!node) {
      failed(kExitCannotCreate, node.error());
      return part(kExitCannotCreate);
    }
    node_ = std::move(*node);
  } else if (joined.new_run) {
    node_->forget_rounds();
  }
  node_->grow(welcome.slots);
  node_->begin(welcome.still_after);
  open_redirect(welcome.led_by);
  hub_->stdin_pump().ask_again();
  log_info("joined the job as node {}", welcome.number);
}

// Tells dlaunchctl on this host who leads the job. The job goes on without it, too.
void Follower::open_redirect(const std::string& host) {
  redirect_.reset();
  const std::string path = job_dir_.path() + "/" + kControlSocket;
  ::unlink(path.c_str());  // of an earlier leader
  const std::string answer = refer_to(
      {.job_id = plan_.job_id, .host = escaped(host), .leader = leader_, .tls = plan_.tls});
  auto redirect = ControlServer::open(
      loop_, path, kMaxControlRequest,
      [answer](const std::string&, const ControlServer::Reply& reply) { reply(answer); });
  if (!redirect) return log_warn("{}", redirect.error().what);
  redirect_ = std::move(*redirect);
}

void Follower::perform(const NodeSession::Test&) {
  health_check_.emplace(loop_, plan_, job_dir_.path(), helpers_, [this](const std::string& why) {
    asio::post(loop_, [this, why] {  // the check ends there
      health_check_.reset();
      feed(NodeSession::Tested{why});
    });
  });
  health_check_->start();
}

void Follower::perform(const NodeSession::KillWorkers&) {
  if (node_) node_->kill_all();
}

void Follower::perform(const NodeSession::KillDescendants&) { kill_descendants(); }

void Follower::perform(const NodeSession::Finished&) {
  if (node_) node_->finish();
}

void Follower::perform(const NodeSession::Warn& warning) { log_warn("{}", warning.what); }

void Follower::perform(const NodeSession::Fail& failure) { log_error("{}", failure.what); }

void Follower::part(int exit_code) {
  parted_at_ = steady_now();
  if (link_) link_->stop();
  leave(exit_code);
}

}  // namespace dlaunch
