// SshTalk: what is said over ssh, or over the launcher of a scheduler, to start the dlaunch of
// another host, and how it is judged. Pure; SshStarter has the processes.
//
//   we     ssh HOST "exec sh -c '…' …"           with the path of our own binary, how to know it
//                                                (SameBinary), and the order's size
//   we     u32 size, order                       on ssh's stdin: everything else, see OrderFrame
//   there  dlaunch-ssh here\n                    it is the same there, or else
//   there  dlaunch-ssh push\n                    after it has thrown the order away
//   we     the binary                            it goes into a private folder
//   there  dlaunch-ssh here\n
//   we     u32 size, order
//   there  dlaunch-ssh ready | error CODE …\n    all is there that the job needs
//
// We send the order before anybody asks for it, so that a host which has our binary costs no round
// trip beyond the login.
//
// Afterwards the dlaunch there joins the job by TCP, its stdout and stderr are what it shows, and
// the end of its stdin ends it. Neither secrets nor the environment stand in an argument.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

// The word after which dlaunch takes its orders from stdin, and the folder to remove, if one is.
inline constexpr const char* kSshNodeWord = "--ssh-node";

// What the dlaunch of one host is told.
struct OrderFrame {
  std::string secret;
  std::string endpoint;     // host:port of the dlaunch that leads
  std::int32_t number = 0;  // of the node
  std::int32_t nproc = 0;   // 0: as many as it says itself
  std::int32_t login = 0;   // which of all that start a dlaunch, from 1
  std::string order;        // the same for all: cli/ssh_order.h
};
inline constexpr std::uint32_t kMaxOrder = 64 << 20;
// With its size in front; decode takes it without.
std::string encode(const OrderFrame& frame);
Result<OrderFrame> decode_order_frame(std::string_view bytes);

// A file that has our own binary's path, has its size and, at the same place, its build ID.
struct SameBinary {
  std::string path;
  std::size_t size = 0;
  std::string build_id;  // empty: no file is the same
  std::size_t build_id_at = 0;
};

// The arguments of the ssh for a host: `ssh` is the command with the user's own options, which come
// first and so win.
std::vector<std::string> ssh_arguments(const std::vector<std::string>& ssh, const HostPlan& host,
                                       const SameBinary& binary, std::size_t order_size);

// The same of the srun that starts a step on that node of the allocation we are in; with all that
// Slurm has given to the job there, beside other steps, and not bound to a part of it.
std::vector<std::string> srun_arguments(const HostPlan& host, const SameBinary& binary,
                                        std::size_t order_size);
// The same of LSF's blaunch and of Grid Engine's qrsh -inherit, `words`, which may hand the command
// to a shell: dlaunch has to be at the same path on each host. Error: the path has what a shell
// would take for its own.
Result<std::vector<std::string>> plain_arguments(std::vector<std::string> words,
                                                 const HostPlan& host, const SameBinary& binary);

// The same of Flux, whose broker there is the host's place; without a shell.
std::vector<std::string> flux_arguments(const HostPlan& host, const SameBinary& binary);

// What of our environment srun would take as options for the step is left out.
bool asks_srun(std::string_view variable);

// The lines that a dlaunch says when it was ordered.
std::string here_line();
std::string ready_line();
std::string error_line(int exit_code, const std::string& what);

struct HostFailure {
  int node = 0;
  int exit_code = 0;
  std::string what;
};

class SshTalk {
 public:
  struct Push {};   // send the binary
  struct Order {};  // send the order once more
  struct Ready {
    std::string begun;  // what had come behind it, not ours to judge
  };
  struct Failed {
    int exit_code;
    std::string what;
  };
  using Action = std::variant<Push, Order, Ready, Failed>;

  // starter: "ssh", "srun", for messages.
  explicit SshTalk(std::string starter = "ssh") : starter_(std::move(starter)) {}

  // Of its stdout. What other programs print there, a login script say, is passed over.
  std::vector<Action> heard(std::string_view bytes);
  // Of its stderr.
  void said(std::string_view bytes);
  // Before Ready or Failed: `how` is what became of the process, the words are ssh's own or of
  // whatever it ran.
  Failed ended(const std::string& how) const;

 private:
  std::optional<Action> judge(std::string_view line) const;

  std::string starter_, line_, words_, errors_;
  bool pushed_ = false;
};

// The lines that tell of hosts that cannot be started on, one each, in the order of the hosts.
std::vector<std::string> failure_table(std::vector<HostFailure> failures,
                                       const std::vector<HostPlan>& hosts);
// Of the first of them in that order.
int exit_code_of(const std::vector<HostFailure>& failures);

}  // namespace dlaunch
