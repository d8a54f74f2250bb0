// Communicator: what a dl_comm is. It joins the job, checks and numbers calls, picks the plane that
// moves the data, and turns the first failure into the error of every later call.
//
// One thread at a time; abort() from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "ring/abort_flag.h"
#include "ring/bootstrap.h"
#include "ring/links.h"
#include "ring/plane.h"
#include "ring/process_hooks.h"
#include "ring/stream_plane.h"

namespace dlaunch {

class Communicator : private ProcessEvents {
 public:
  // Meets all ranks; blocks until they have come or job.init_timeout has passed.
  static Result<std::unique_ptr<Communicator>> join(const JobView& job);
  ~Communicator() override;

  int rank() const { return job_.rank; }
  int size() const { return job_.size; }
  const char* transport() const;
  int peer_lost() const;  // -1: nobody
  // This process was forked from the one that joined: nothing works here, and the object must not
  // be destroyed, because the parent still uses what it would close.
  bool forked() const { return forked_; }

  // `call` lacks its number and deadline. Errc::usage and Errc::unsupported leave the communicator
  // as it was; any other error is final.
  Result<void> collective(Call call);
  Result<void> transfer(Message message);
  void abort();

 private:
  explicit Communicator(JobView job) : job_(std::move(job)) {}

  Result<void> connect();
  Result<void> check(const Call& call) const;
  Result<void> check(const Message& message) const;
  Result<void> finish(Result<void> done);
  TimePoint op_deadline() const;
  void on_forked() override;
  void on_exit() override;

  JobView job_;
  // Destroyed from the bottom up: links first (their thread raises the flag), then the planes
  // (their wakers are called by the flag), the flag last.
  AbortFlag abort_;
  std::unique_ptr<Plane> shm_;
  std::unique_ptr<StreamPlane> stream_;
  std::unique_ptr<Links> links_;
  std::vector<int> data_sockets_;  // the stream plane's
  std::uint64_t seq_ = 0;
  bool noted_ = false;
  bool forked_ = false;
};

}  // namespace dlaunch
