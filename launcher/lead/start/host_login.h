// HostLogin: one start of a dlaunch on another host: the ssh, or a scheduler's launcher, with its
// pipes, and our side of the dialogue that ssh_talk.h describes. The leader has one for each host
// to which it logs in, and so has a host that logs in to others. One thread, the loop's.
#pragma once

#include <sys/types.h>

#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include "launcher/lead/start/ssh_talk.h"
#include "launcher/output/line_prefix.h"
#include "launcher/plan/plan.h"
#include "launcher/process/own_binary.h"
#include "launcher/process/spawn.h"

namespace dlaunch {

// What all logins of a process share.
struct LoginTools {
  asio::io_context& loop;
  std::set<pid_t>& helpers;              // has their processes while they run
  std::optional<OwnBinary> binary = {};  // our own program's, set before the first login
  std::string pushed = {};               // its content, once a host needs it

  SameBinary same_binary(const std::string& path) const {
    return {path, binary->size(), binary->build_id(), binary->build_id_at()};
  }
};

class HostLogin : public std::enable_shared_from_this<HostLogin> {
 public:
  class User {
   public:
    virtual ~User() = default;
    // The dlaunch there is ready: take its outputs with release().
    virtual void on_ready(HostLogin& login, const SshTalk::Ready& ready) = 0;
    // Instead of on_ready(). reached: the dlaunch there says why.
    virtual void on_failed(HostLogin& login, const SshTalk::Failed& failed, bool reached) = 0;
    // Its process and all its outputs have ended, perhaps before on_ready().
    virtual void on_over(HostLogin& login) = 0;
  };
  // `tools` and `user` must outlive all its processes. starter: "ssh", for messages.
  HostLogin(LoginTools& tools, User& user, const std::string& starter, std::string host);

  // Runs the program, and sends the order.
  Result<void> start(SpawnRequest request, std::string order);
  // The reading end of one of its outputs; none: it has ended. Call output_ended() at its end.
  UniqueFd release(OutputStream kind);
  void output_ended();
  // The dlaunch there ends.
  void close_in();
  // Kills the program, and waits no longer for other processes that hold its outputs.
  void give_up();
  // It has failed for another reason.
  void fail() { state = State::failed; }

  enum class State { starting, ready, failed };
  State state = State::starting;
  bool running() const { return running_; }
  bool given_up() const { return given_up_; }
  bool over() const { return !running_ && (open_outputs_ == 0 || given_up_); }
  // Why it is over.
  const std::string& how() const { return how_; }
  SshTalk::Failed ended() const { return talk_.ended(how_); }

 protected:
  // For a dlaunch that another host has started: it runs until its outputs end, and has no process
  // here.
  void await_outputs();
  void have_input(UniqueFd fd);

 private:
  using Descriptor = asio::posix::stream_descriptor;
  using Self = std::shared_ptr<HostLogin>;
  Descriptor& output(OutputStream kind) { return outputs_[static_cast<std::size_t>(kind)]; }
  void watch(const Self& self);
  void read(const Self& self, OutputStream kind);
  void heard(std::string_view bytes);
  void act(const SshTalk::Ready& ready);
  void act(const SshTalk::Failed& failed);
  void act(const SshTalk::Push&);
  void act(const SshTalk::Order&) { send(order_); }
  void send(std::string_view bytes);
  void write(const Self& self);
  void tell_if_over();

  LoginTools& tools_;
  User& user_;
  const std::string host_;  // for messages
  pid_t pid_ = -1;
  Descriptor in_;                      // its stdin
  std::array<Descriptor, 2> outputs_;  // until they are released
  int open_outputs_ = 0;
  Descriptor exited_;  // the pidfd
  bool running_ = false, given_up_ = false;
  std::string how_;
  SshTalk talk_;
  std::string order_, unsent_;
  std::size_t sent_ = 0;
};

// ssh itself, from `path`, with our environment. ssh: the command's words.
SpawnRequest ssh_request(const std::string& path, const std::vector<std::string>& ssh,
                         const HostPlan& host, const SameBinary& binary, std::size_t order_size);
// The program in our PATH.
Result<std::string> find_starter(const std::string& program);

}  // namespace dlaunch
