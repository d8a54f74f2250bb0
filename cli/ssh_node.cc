#include "cli/ssh_node.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <variant>

#include <fmt/format.h>

#include "base/endpoint.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/secret.h"
#include "cli/plan_builder.h"
#include "cli/ssh_order.h"
#include "launcher/agent/agent.h"
#include "launcher/lead/report/report.h"
#include "launcher/lead/start/ssh_talk.h"
#include "launcher/node/workers/worker_starter.h"
#include "launcher/wire/output_link.h"
#include "rendezvous/tls_channel.h"

namespace dlaunch {
namespace {

void send_line(const std::string& line) {
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, line.data(), line.size());
}

// Reads exactly so many bytes of stdin; later bytes belong to another reader.
Result<std::string> read_exactly(std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t got = 0; got < size;) {
    const ssize_t n = ::read(STDIN_FILENO, bytes.data() + got, size - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("read the order", errno);
    if (n == 0) return Error{.code = Errc::peer_lost, .what = "no order has come"};
    got += static_cast<std::size_t>(n);
  }
  return bytes;
}

Result<OrderFrame> read_order() {
  auto head = read_exactly(sizeof(std::uint32_t));
  if (!head) return head.error();
  std::uint32_t size = 0;
  std::memcpy(&size, head->data(), sizeof size);
  if (size > kMaxOrder) return Error{.code = Errc::protocol, .what = "a malformed order"};
  auto body = read_exactly(size);
  return body ? decode_order_frame(*body) : Result<OrderFrame>(body.error());
}

// Keeps stdin only to see its end; workers read nothing there.
Result<int> keep_lifeline() {
  const int lifeline = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (lifeline < 0 || null < 0 || ::dup2(null, STDIN_FILENO) < 0) {
    return errno_error("set up stdin", errno);
  }
  ::close(null);
  return lifeline;
}

struct Refusal {
  int exit_code;
  std::string what;
};

// Connects stdout and stderr to the leader, where another host than the leader's has started us.
// The leader ends us by the same connection, and no longer that host by stdin.
Result<int> call_leader(const Plan& plan) {
  const auto leader = parse_endpoint(plan.nodes.endpoint);
  if (!leader) return leader.error();
  Secret secret(plan.secret);
  secret.set_encrypts(plan.tls);
  if (plan.tls) {
    if (auto ok = TlsChannel::prepare(); !ok) return ok.error();
  }
  auto link = open_output_link(*leader, secret, plan.job_id, plan.nodes.login,
                               fmt::format("dlaunch of host {} (pid {})", plan.host, ::getpid()));
  if (!link) return link.error();
  const int lifeline = ::fcntl(link->out.get(), F_DUPFD_CLOEXEC, 3);
  if (lifeline < 0 || ::dup2(link->out.get(), STDOUT_FILENO) < 0 ||
      ::dup2(link->err.get(), STDERR_FILENO) < 0) {
    return errno_error("set up stdout and stderr", errno);
  }
  return lifeline;
}

// Makes the plan from the order.
std::variant<BuiltPlan, Refusal> prepare(const OrderFrame& frame) {
  auto order = decode_ssh_order(frame.order);
  if (!order) return Refusal{kExitInternal, order.error().what};
  for (const std::string& item : order->environment) {
    const auto equals = item.find('=');
    if (equals != item.npos) {
      ::setenv(item.substr(0, equals).c_str(), item.c_str() + equals + 1, 1);
    }
  }
  if (::chdir(order->folder.c_str()) != 0) {
    return Refusal{kExitSystem, errno_error("chdir to '" + order->folder + "'", errno).what};
  }
  ::setenv("PWD", order->folder.c_str(), 1);
  Options& options = order->options;
  if (frame.nproc > 0) options.nproc = {std::to_string(frame.nproc), "--nproc"};
  set_log_level(log_level_of(options));
  Machine machine = this_machine();
  machine.stdout_is_terminal = order->stdout_is_terminal;
  machine.stderr_is_terminal = order->stderr_is_terminal;
  NodesPlan nodes;
  nodes.min = order->min_nodes;
  nodes.max = order->max_nodes;
  nodes.total = order->total;
  nodes.rank = frame.number;
  nodes.login = frame.login;
  nodes.lead = NodesPlan::Lead::no;
  // For every scheduler: the leader has judged its signals.
  if (order->by_scheduler) nodes.starter = Starter::srun;
  nodes.endpoint = frame.endpoint;
  auto built = build_plan(options, machine, &nodes);
  if (!built) return Refusal{exit_code_of(built.error()), built.error().what};
  built->plan.secret = frame.secret;
  // For hosts to which this one logs in.
  built->plan.nodes.order = frame.order;
  built->plan.nodes.ssh = std::move(order->tree_ssh);
  built->plan.output.passed_on = true;
  built->plan.output.color &= machine.stderr_is_terminal;
  if (const auto error = WorkerStarter::foresee_failure(built->plan); error.stage != Stage::none) {
    return Refusal{start_exit_code(error.stage, error.os_errno), error.what};
  }
  return std::move(*built);
}

int refuse_order(const Refusal& why) {
  send_line(error_line(why.exit_code, why.what));
  return why.exit_code;
}

}  // namespace

int run_ssh_node(const std::string& folder) {
  if (!folder.empty()) {
    ::unlink((folder + "/dlaunch").c_str());
    ::rmdir(folder.c_str());
  }
  send_line(here_line());
  auto frame = read_order();
  if (!frame) return refuse_order({kExitRendezvous, frame.error().what});
  auto prepared = prepare(*frame);
  if (const auto* refusal = std::get_if<Refusal>(&prepared)) return refuse_order(*refusal);
  auto& built = std::get<BuiltPlan>(prepared);
  auto lifeline = keep_lifeline();
  if (!lifeline) return refuse_order({kExitSystem, lifeline.error().what});
  if (frame->calls) {
    ::close(*lifeline);
    lifeline = call_leader(built.plan);
    if (!lifeline) {  // the host that has started us tells the leader
      std::fprintf(stderr, "the dlaunch there cannot call the leader: %s\n",
                   lifeline.error().what.c_str());
      return kExitRendezvous;
    }
  } else {
    send_line(ready_line());
  }
  built.plan.nodes.lifeline = *lifeline;
  // The leader has printed all other remarks on the options.
  for (const auto& line : built.bindings) {
    std::fprintf(stderr, "%s: %s\n", built.plan.host.c_str(), line.c_str());
  }
  const int code = run_job(built.plan);
  return built.plan.nodes.by_scheduler() ? kExitOk : code;
}

}  // namespace dlaunch
