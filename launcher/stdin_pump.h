// StdinPump hands our standard input to the workers that are to have it. It reads only while
// somebody takes, and no faster than the slowest taker; its end is theirs. A worker that has closed
// its stdin, or has ended, is no taker any more: then nothing is read that nobody gets.
//
// In a terminal's background a job may not read the terminal. With SIGTTIN ignored that read fails
// with EIO; we then wait for the SIGCONT that comes with the shell's `fg`.
#pragma once

#include <list>
#include <memory>
#include <string>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/signal_set.hpp>

#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

class StdinPump {
 public:
  // `source` stays open and keeps its flags.
  StdinPump(asio::io_context& loop, int source);

  // The reading end for a worker's descriptor 0. A newcomer starts with what is read next.
  Result<UniqueFd> add_taker();
  // The end for all takers; nothing is read any more.
  void close();

 private:
  struct Taker {
    explicit Taker(asio::io_context& loop) : pipe(loop) {}
    asio::posix::stream_descriptor pipe;
    std::size_t sent = 0;  // of chunk_
  };
  using TakerPtr = std::shared_ptr<Taker>;

  void read_more();
  void on_readable();
  void drop_takers_that_left();
  bool all_served() const;
  void wait_for_foreground();
  void hand_out();
  void hand_out_to(const TakerPtr& taker);

  asio::io_context& loop_;
  int source_;
  bool pollable_ = false;  // terminals and pipes; files are always ready
  bool reading_ = false;
  bool ended_ = false;
  asio::posix::stream_descriptor descriptor_;
  asio::signal_set continued_;
  std::list<TakerPtr> takers_;
  std::string chunk_;
};

}  // namespace dlaunch
