// monitored_barrier: each rank reports its arrival to rank 0, which then sends all of them a go, or
// the missing ranks. It uses messages, which do no harm if they come too late: a rank that arrives
// late is in the barrier that it came for.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <climits>

#include "ring/torch/torch_work.h"

namespace dlring_torch {

class MonitoredBarrier {
 public:
  MonitoredBarrier(Comm& comm, std::chrono::milliseconds timeout, bool name_all)
      : comm_(comm),
        timeout_(timeout),
        name_all_(name_all),
        deadline_(std::chrono::steady_clock::now() + timeout) {}

  void run() {
    if (size() == 1) return;
    if (dl_rank(comm_.get()) == 0) {
      lead();
    } else {
      follow();
    }
  }

 private:
  using Message = std::unique_ptr<Pending>;
  // A message that is not done when this ends goes to the communicator, because its memory is still
  // in use.
  class Messages {
   public:
    explicit Messages(Comm& comm) : comm_(comm) {}
    ~Messages() {
      for (auto& message : all) {
        if (message) comm_.leave(std::move(message));
      }
    }
    Messages(const Messages&) = delete;
    Messages& operator=(const Messages&) = delete;
    std::vector<Message> all;

   private:
    Comm& comm_;
  };
  static constexpr int kTag = INT_MAX - 1;
  // The other ranks wait a little longer than rank 0, because its error is better.
  static constexpr std::chrono::milliseconds kGrace{500};

  int size() const { return dl_size(comm_.get()); }

  void lead() {
    Messages arrivals(comm_);
    for (int rank = 1; rank < size(); ++rank) arrivals.all.push_back(receive(rank, 1));
    std::vector<int> missing;
    for (int rank = 1; rank < size(); ++rank) {
      if (!is_over(arrivals.all[at(rank - 1)], deadline_)) missing.push_back(rank);
    }
    tell(missing);
    if (!missing.empty()) throw std::runtime_error(sentence(missing));
  }

  // Sends to all, because a late rank takes the next word for its own: a byte for each rank, 1 if
  // it is missing.
  void tell(const std::vector<int>& missing) {
    auto word = at::zeros({size()}, at::kByte);
    for (const int rank : missing) word.data_ptr<std::uint8_t>()[rank] = 1;
    Messages words(comm_);
    for (int rank = 1; rank < size(); ++rank) words.all.push_back(send(rank, word));
    for (auto& sent : words.all) end(sent);
  }

  void follow() {
    Messages both(comm_);
    both.all.push_back(send(0, at::ones({1}, at::kByte)));
    end(both.all[0]);
    both.all.push_back(receive(0, size()));
    const auto buffer = both.all[1]->tensor;
    if (!is_over(both.all[1], deadline_ + kGrace)) {
      throw std::runtime_error(reached() + ": rank 0 has sent nothing");
    }
    std::vector<int> missing;
    for (int rank = 1; rank < size(); ++rank) {
      if (buffer.data_ptr<std::uint8_t>()[rank] != 0) missing.push_back(rank);
    }
    if (!missing.empty()) throw std::runtime_error(reached() + ": " + sentence(missing));
  }

  // The text that PyTorch's users look for in Gloo's.
  std::string reached() const {
    return "dlring: Rank " + std::to_string(dl_rank(comm_.get())) +
           " successfully reached monitoredBarrier, but received errors while waiting for "
           "send/recv "
           "from rank 0. Please check rank 0 logs for faulty rank";
  }
  std::string sentence(const std::vector<int>& missing) const {
    const std::string time = std::to_string(timeout_.count()) + " ms";
    std::string all;
    for (const int rank : missing) all += (all.empty() ? "" : ", ") + std::to_string(rank);
    const std::string start = "[Rank 0]: Rank";
    if (timeout_.count() <= 0) {
      return start + " 0 timed out in monitoredBarrier after " + time + ". Missing: " + all;
    }
    const std::string end = " failed to pass monitoredBarrier in " + time;
    if (missing.size() == 1) return start + " " + all + end;
    if (name_all_) return start + "s " + all + end;
    return start + " " + std::to_string(missing[0]) + end + ". Missing: " + all;
  }

  void end(Message& message) {
    const auto result = dl_wait(&message->request);
    message.reset();
    comm_.check(result);
  }
  // Takes the message if it is done.
  bool is_over(Message& message, Deadline deadline) {
    int done = 0;
    const auto result = dl_wait_for(&message->request, seconds_until(deadline), &done);
    if (done != 0) message.reset();
    comm_.check(result);
    return done != 0;
  }

  Message receive(int from, int bytes) {
    auto message = std::make_unique<Pending>();
    message->tensor = at::zeros({bytes}, at::kByte);
    const std::lock_guard lock(comm_.starting);
    comm_.check(dl_irecv(comm_.get(), message->tensor.data_ptr(), at(bytes), DL_UINT8, from, kTag,
                         &message->request));
    return message;
  }
  Message send(int to, const at::Tensor& bytes) {
    auto message = std::make_unique<Pending>();
    message->tensor = bytes;
    const std::lock_guard lock(comm_.starting);
    comm_.check(dl_isend(comm_.get(), bytes.data_ptr(), at(bytes.numel()), DL_UINT8, to, kTag,
                         &message->request));
    return message;
  }
  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

  Comm& comm_;
  const std::chrono::milliseconds timeout_;
  const bool name_all_;
  const Deadline deadline_;
};

}  // namespace dlring_torch
