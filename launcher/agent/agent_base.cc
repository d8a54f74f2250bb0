#include "launcher/agent/agent_base.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <thread>

#include <asio/post.hpp>
#include <fmt/format.h>

#include "base/check.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "launcher/process/installed_file.h"
#include "launcher/process/process_tree.h"
#include "rendezvous/tls_channel.h"

namespace dlaunch {
namespace {

// --horovod: the package of this name that a worker's Python finds before an installed Horovod.
constexpr std::string_view kInPlaceOfHorovod =
    R"py("""dlaunch --horovod: dlaunch.horovod in Horovod's place."""
import sys
try:
    from dlaunch.horovod import _in_place
except ImportError as error:
    raise ImportError(
        f"dlaunch --horovod: {sys.executable} cannot import dlaunch.horovod ({error}): install "
        "the package dlaunch into this Python, or leave out --horovod") from error
_in_place.take(__name__)
)py";

Result<void> check_kernel() {
  const UniqueFd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (self || errno != ENOSYS) return {};
  return Error{.code = Errc::unsupported,
               .what = "this kernel has no pidfds: dlaunch needs Linux 5.3 or later",
               .os_errno = ENOSYS};
}

// The same on each host with the user's folder: no need to copy it.
Result<Secret> secret_of_key(const std::string& file, const std::string& job_id) {
  auto key = Secret::load_or_make(file);
  if (!key) return key.error();
  const Mac mac = key->mac("dlaunch job " + job_id);
  return Secret(sha256_hex({mac.data(), mac.size()}));
}

// Hosts that are started by hand share a secret file. Without one the job's name keeps jobs apart.
Result<Secret> secret_of(const Plan& plan) {
  if (!plan.secret.empty()) return Secret(plan.secret);
  if (!plan.secret_file.empty()) return Secret::load(plan.secret_file);
  if (!plan.key_file.empty()) return secret_of_key(plan.key_file, plan.job_id);
  if (plan.nodes.several() && plan.nodes.hosts.empty()) return Secret();
  return Secret::random();
}

}  // namespace

AgentBase::AgentBase(const Plan& plan, const JobDir& job_dir, UniqueFd signals,
                     const OriginalSignals& original)
    : plan_(plan),
      job_dir_(job_dir),
      job_ends_at_(plan.timeout > Duration::zero() ? deadline_after(steady_now(), plan.timeout)
                                                   : kNever),
      original_(original),
      keeper_(loop_, signals.release()),
      timer_(loop_, [this] { on_timer(); }) {}

bool AgentBase::failed(int exit_code, const Error& error) {
  log_error("{}", error.what);
  exit_code_ = exit_code;
  return false;
}

bool AgentBase::set_up() {
  auto kernel = check_kernel();
  if (!kernel) return failed(kExitSystem, kernel.error());
  auto starter = WorkerStarter::make(plan_, original_);
  if (!starter) return failed(kExitSystem, starter.error());
  starter_ = std::move(*starter);
  auto secret = secret_of(plan_);
  if (!secret) return failed(kExitNoInput, secret.error());
  secret_ = *secret;
  secret_.set_encrypts(plan_.tls);
  if (plan_.tls) {
    DL_ASSERT(!secret_.empty());
    if (auto ok = TlsChannel::prepare(); !ok) return failed(kExitSystem, ok.error());
  }
  common_.nccl_profiler = find_installed(kNcclProfilerFile, "ring/profiler");
  if (plan_.in_place_of_horovod) {
    auto folder = job_dir_.write_package("horovod", kInPlaceOfHorovod);
    if (!folder) return failed(kExitCannotCreate, folder.error());
    common_.python_folder = *folder;
  }
  if (secret_.empty()) return true;
  auto file = job_dir_.write_secret(secret_);
  if (!file) return failed(kExitCannotCreate, file.error());
  common_.secret_file = *file;
  return true;
}

void AgentBase::open_output() {
  hub_ = std::make_unique<OutputHub>(loop_, plan_);
  set_log_sink([this, ours = std::this_thread::get_id()](LogLevel, std::string_view line) {
    if (std::this_thread::get_id() == ours) return hub_->own_line(line);
    asio::post(loop_, [this, text = std::string(line)] { hub_->own_line(text); });
  });
}

Result<void> AgentBase::reserve_ports(int master_port) {
  auto ports = reserve_worker_ports(plan_, master_port);
  if (!ports) return ports.error();
  ports_ = std::move(*ports);
  return {};
}

Result<std::unique_ptr<Node>> AgentBase::open_node(int slots, Node::Say say) {
  PmixOrder pmix;
  pmix.host = plan_.host;
  pmix.folder = job_dir_.path();
  pmix.job_id = plan_.job_id;
  pmix.secret_file = common_.secret_file;
  pmix.tls = plan_.tls;
  for (const JobProgram& program : plan_.programs) {
    pmix.programs.push_back(format_rank_set(program.ranks));
  }
  mpi_.emplace(loop_, helpers_,
               StoreOptions{.job_id = plan_.job_id,
                            .secret = secret_,
                            .who = fmt::format("the ranks on {}", plan_.host)},
               std::move(pmix));
  return Node::open({loop_, job_dir_, *starter_, *hub_, pump_, helpers_, *mpi_}, slots, plan_.grace,
                    common_, std::move(say));
}

// Signals come as bytes; the pipe closes when the keeper was killed.
void AgentBase::watch_keeper() {
  keeper_.async_read_some(asio::buffer(&signal_byte_, 1),
                          [this](asio::error_code ec, std::size_t n) {
                            if (ec || n == 0) {
                              kill_descendants();
                              job_dir_.remove();
                              ::_exit(128 + SIGKILL);
                            }
                            on_signal(signal_byte_);
                            watch_keeper();
                          });
}

int AgentBase::run_loop() {
  watch_keeper();
  loop_.run();
  set_log_sink({});
  return exit_code_;
}

void AgentBase::leave(int exit_code) {
  exit_code_ = exit_code;
  hub_->close_stdin();
  hub_->flush(Duration::max(), [this] { loop_.stop(); });
}

}  // namespace dlaunch
