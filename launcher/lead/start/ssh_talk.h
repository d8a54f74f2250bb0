// SshTalk: the dialogue over ssh, or over a scheduler's launcher, that starts the dlaunch of
// another host, and how its lines are judged. Pure; SshStarter has the processes.
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
// We send the order before the host asks for it, so that a host which has our binary costs no round
// trip beyond the login.
//
// Afterwards the dlaunch there joins the job by TCP, its stdout and stderr carry its output, and it
// ends when its stdin closes. Neither secrets nor the environment are in an argument.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

// The word before the arguments: dlaunch takes its order from stdin; and the folder to remove, if
// any.
inline constexpr const char* kSshNodeWord = "--ssh-node";

// The order to the dlaunch of one host.
struct OrderFrame {
  std::string secret;
  std::string endpoint;     // host:port of the leader
  std::int32_t number = 0;  // of the node
  std::int32_t nproc = 0;   // 0: the host decides
  std::int32_t login = 0;   // the number of this start of a dlaunch, from 1
  bool calls = false;       // it opens an OutputLink to the leader (launcher/wire/output_link.h)
  std::string order;        // the same for all: cli/ssh_order.h
};
inline constexpr std::uint32_t kMaxOrder = 64 << 20;
// encode: with its size in front; decode: without it.
std::string encode(const OrderFrame& frame);
Result<OrderFrame> decode_order_frame(std::string_view bytes);

// A file is the same if it has our own binary's path, its size and, at the same offset, its build
// ID.
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

// The same for the srun that starts a step on that node of our allocation: with all resources that
// Slurm gave to the job there, beside other steps, and not bound to a part of them.
std::vector<std::string> srun_arguments(const HostPlan& host, const SameBinary& binary,
                                        std::size_t order_size);
// The same for LSF's blaunch and Grid Engine's qrsh -inherit, `words`, which may hand the command
// to a shell: dlaunch must be at the same path on each host. Error: the path has characters that a
// shell would interpret.
Result<std::vector<std::string>> plain_arguments(std::vector<std::string> words,
                                                 const HostPlan& host, const SameBinary& binary);

// The same for Flux, whose broker rank is the host's place; without a shell.
std::vector<std::string> flux_arguments(const HostPlan& host, const SameBinary& binary);

// Whether srun would read the variable as an option for the step; such variables are left out.
bool asks_srun(std::string_view variable);

// The lines that an ordered dlaunch prints.
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
    std::string begun;  // the text behind the line, not ours to judge
  };
  struct Failed {
    int exit_code;
    std::string what;
  };
  using Action = std::variant<Push, Order, Ready, Failed>;

  // starter: "ssh", "srun", for messages.
  explicit SshTalk(std::string starter = "ssh") : starter_(std::move(starter)) {}

  // Text from its stdout. Ignores other programs' output, such as a login script's.
  std::vector<Action> heard(std::string_view bytes);
  // Text from its stderr.
  void said(std::string_view bytes);
  // The process ended before Ready or Failed: `how` describes its end; the words are those of ssh
  // or of the program it ran.
  Failed ended(const std::string& how) const;

 private:
  std::optional<Action> judge(std::string_view line) const;

  std::string starter_, line_, words_, errors_;
  bool pushed_ = false;
};

// The hosts whose newest login has failed.
class LoginFailures {
 public:
  void failed(HostFailure failure) { by_node_[failure.node] = std::move(failure); }
  void ready(int node) { by_node_.erase(node); }
  std::vector<HostFailure> all() const;

 private:
  std::map<int, HostFailure> by_node_;
};

// One line for each host that could not be started on, in the order of the hosts.
std::vector<std::string> failure_table(std::vector<HostFailure> failures,
                                       const std::vector<HostPlan>& hosts);
// The exit code of the first of them in that order.
int exit_code_of(const std::vector<HostFailure>& failures);

}  // namespace dlaunch
