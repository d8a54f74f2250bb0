// Membership: an elastic process's connection to the agent of its node. The agent sends it the
// rounds: its rank in the next one, and when one is over. A thread reads them, and sleeps until the
// agent sends something.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "rendezvous/worker_message.h"

namespace dlaunch {

class Membership {
 public:
  // socket: a path of any length; worker: what the agent calls this process. A process may connect
  // again after an earlier connection has ended: it is then in the round after its last one.
  static Result<std::unique_ptr<Membership>> connect(const std::string& socket, int worker);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Leaves its round, and blocks until the next one with this process has formed, however long: the
  // agent knows whom it waits for. version: the newest state that this process holds. why: as
  // Ready's. Error: the agent has gone (Errc::io).
  Result<RoundNotice> next_round(std::uint64_t version, std::string why);

  // Reports to the agent, at most ten times a second after the first time in a round, the newest
  // state that this process holds. Call it on the thread that calls next_round().
  void progress(std::uint64_t version);

  // Whether the round that next_round() returned last is over.
  bool over() const;
  // Calls `tell` on the reading thread as soon as the loss of a member ends the round, or at once
  // if it already has. Replaces the earlier `tell`, which no longer runs when this returns. `tell`
  // must not block nor call back.
  using Tell = std::function<void(const Error& why)>;
  enum class Ends { by_loss, all };  // all: also by a change that waits for the next commit
  void on_over(Tell tell, Ends ends = Ends::by_loss);

 private:
  Membership(UniqueFd socket, UniqueFd stop, int worker);
  void read();
  bool take_packet();
  void take(const WorkerMessage& message);
  void close(std::string why);
  std::optional<Error> why_over() const;  // under mutex_
  void tell_if_over();                    // under mutex_

  const UniqueFd socket_;
  const UniqueFd stop_;
  const int worker_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  RoundNotice current_;  // round 0: none yet
  std::optional<RoundNotice> next_;
  FenceNotice fence_;   // the latest
  std::string closed_;  // the reason; empty: it is open
  TimePoint told_{};    // the last progress() in this round
  Tell tell_;
  Ends told_ends_ = Ends::by_loss;
  std::thread thread_;
};

}  // namespace dlaunch
