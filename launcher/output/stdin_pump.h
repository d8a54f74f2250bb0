// StdinPump hands our standard input to the workers that are to have it.
//
// One worker of this host gets a pipe or a file itself (hand_over): we read nothing, and what the
// worker does not read is left for whoever shares our stdin, such as the loop of a shell. A worker
// that takes its place goes on where it stopped.
//
// Where that is impossible (a terminal, several workers, a worker of another host), the pump reads
// and copies. It reads a line or at most kFirstPiece ahead, and the next piece only when all takers
// have taken the last one. For takers that go on reading, pieces grow to kLargestPiece. A worker
// that has closed its stdin, or has ended, is no taker any more. At the end of the job the pump
// sets a file back to where the workers have read it, and knows what else it has read that no
// worker took, also where the input ended before.
//
// Workers of other hosts take it through the dlaunch there, which asks for one piece after the
// other: it is a taker like others here, and there a pump that is fed.
//
// In a terminal's background a job may not read the terminal. With SIGTTIN ignored that read fails
// with EIO; we then try again every 250 ms.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

class StdinPump {
 public:
  static constexpr std::size_t kFirstPiece = 4 << 10;
  static constexpr std::size_t kLargestPiece = 64 << 10;

  // `source` stays open and keeps its flags. -1: another dlaunch feeds it.
  StdinPump(asio::io_context& loop, int source);

  // Whether the source is something that one worker can read itself: no terminal, and here.
  bool can_hand_over() const { return can_hand_over_; }
  // The source itself, for a worker's descriptor 0.
  Result<UniqueFd> hand_over() const;

  // The reading end for a worker's descriptor 0. A newcomer starts with what is read next.
  Result<UniqueFd> add_taker();
  // The end for all takers; nothing is read any more.
  void close();
  // After close(): how many bytes were read that no worker has taken. Bytes that went to another
  // host count as taken: the dlaunch there knows better.
  std::uint64_t unread() const { return unread_; }
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
    std::uint64_t begun = 0;         // how much had been read when it came
    std::size_t sent = 0;            // of chunk_
    std::size_t room = kFirstPiece;  // of its pipe
    bool ready = true;               // it has taken what it was given
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
  void await_room(const TakerPtr& taker, std::function<void()> then);
  void leave(const TakerPtr& taker);
  void read_soon();
  void grow();
  std::uint64_t given_to(const Taker& taker) const;
  void note_taken(Taker& taker);
  void note_taken(std::uint64_t from, std::uint64_t to);
  void settle_accounts();
  void end_of_input();
  void end();

  asio::io_context& loop_;
  const int given_;  // the source as it was given to us
  int source_;       // the same, or opened anew
  bool can_hand_over_ = false;
  bool pollable_ = false;  // terminals and pipes; files are always ready
  bool reading_ = false;
  bool ended_ = false;
  asio::posix::stream_descriptor descriptor_;
  asio::steady_timer again_;
  std::list<TakerPtr> takers_;
  std::string chunk_;
  std::size_t piece_ = kFirstPiece;
  std::uint64_t read_ = 0;                                      // bytes of the source so far
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken_;  // from, to
  std::uint64_t unread_ = 0;
  // After the end of the input: what a taker's pipe still holds, which it may read until the end.
  struct Rest {
    UniqueFd pipe;  // a reading end, for its count only
    std::uint64_t begun, given;
  };
  std::vector<Rest> rests_;
  bool accounts_open_ = true;
  std::map<int, bool> hosts_;  // with takers: whether it has asked
  std::function<void()> on_read_ = [] {};
  std::function<void(int, const std::string&)> give_;
  std::function<void(bool)> ask_;
  bool asked_ = false;
};

}  // namespace dlaunch
