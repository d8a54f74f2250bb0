// StdinPump hands our standard input to the workers that are to have it. It reads only while
// somebody takes, and no faster than the slowest taker; its end is theirs. A job in a terminal's
// background, where reading is not allowed, simply gets nothing.
#pragma once

#include <list>
#include <memory>
#include <string>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

class StdinPump {
 public:
  StdinPump(asio::io_context& loop, int source);

  // The reading end for a worker's descriptor 0.
  Result<UniqueFd> add_taker();
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
  void hand_out();
  void hand_out_to(const TakerPtr& taker);

  asio::io_context& loop_;
  int source_;
  bool pollable_ = false;  // terminals and pipes; files are always ready
  bool reading_ = false;
  bool ended_ = false;
  asio::posix::stream_descriptor descriptor_;
  std::list<TakerPtr> takers_;
  std::string chunk_;
};

}  // namespace dlaunch
