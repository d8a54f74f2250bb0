// StdinPump hands our standard input to the workers that are to have it. It reads only while
// somebody takes, and no faster than the slowest taker; its end is theirs. A worker that has closed
// its stdin, or has ended, is no taker any more: then nothing is read that nobody gets.
//
// Workers of other hosts take it through the dlaunch there, which asks for one piece after the
// other: it is a taker like others here, and there a pump that is fed. So nothing is on its way
// that is not wanted, and the slowest taker of all hosts is the measure.
//
// In a terminal's background a job may not read the terminal. With SIGTTIN ignored that read fails
// with EIO; we then try again every 250 ms.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

class StdinPump {
 public:
  // `source` stays open and keeps its flags. -1: another dlaunch feeds it.
  StdinPump(asio::io_context& loop, int source);

  // The reading end for a worker's descriptor 0. A newcomer starts with what is read next.
  Result<UniqueFd> add_taker();
  // The end for all takers; nothing is read any more.
  void close();
  // Called after each piece that was read.
  void on_read(std::function<void()> call) { on_read_ = std::move(call); }

  // -- Where other hosts have takers
  // Gives a host what was read; "": the end.
  void set_give(std::function<void(int host, const std::string& bytes)> give);
  // Nothing is read until it has asked, or nobody takes it there.
  void expect(int host);
  // It wants the next piece; or nobody takes it there any more, until it asks again.
  void host_asks(int host, bool wants);

  // -- Where it is fed
  // Asks for the next piece; false: nobody takes it here.
  void set_ask(std::function<void(bool wants)> ask);
  void feed(std::string bytes);  // "": the end
  // The one that feeds it is another one now.
  void ask_again();

 private:
  struct Taker {
    explicit Taker(asio::io_context& loop) : pipe(loop) {}
    asio::posix::stream_descriptor pipe;
    std::size_t sent = 0;  // of chunk_
  };
  using TakerPtr = std::shared_ptr<Taker>;

  bool fed() const { return source_ < 0; }
  bool nobody() const { return takers_.empty() && hosts_.empty(); }
  void ask();
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
  asio::steady_timer again_;
  std::list<TakerPtr> takers_;
  std::string chunk_;
  std::map<int, bool> hosts_;  // with takers: whether it has asked
  std::function<void()> on_read_ = [] {};
  std::function<void(int, const std::string&)> give_;
  std::function<void(bool)> ask_;
  bool asked_ = false;
};

}  // namespace dlaunch
