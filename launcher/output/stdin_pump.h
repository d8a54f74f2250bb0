// StdinPump hands our standard input to the workers that should get it.
//
// A single worker on this host gets a pipe or a file itself (hand_over): we read nothing, and input
// that the worker does not read is left for other programs on our stdin, such as the loop of a
// shell. A worker that replaces it continues where it stopped.
//
// Where that is impossible (a terminal, several workers, a worker of another host), the pump reads
// and copies. It reads a line or at most kFirstPiece ahead, and the next piece only when all takers
// have taken the last one. For takers that go on reading, pieces grow to kLargestPiece. A worker
// that has closed its stdin, or has ended, is removed from the takers. At the end of the job the
// pump sets a file back to where the workers have read it, and knows how much else it has read that
// no worker took, even if the input ended before.
//
// Workers of other hosts get it through the dlaunch there, which asks for one piece after the
// other. Here it is a taker like others; there its pump has no source of its own and is fed.
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

#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

class StdinPump {
 public:
  static constexpr std::size_t kFirstPiece = 4 << 10;
  static constexpr std::size_t kLargestPiece = 64 << 10;

  // `source` stays open and keeps its flags. -1: another dlaunch feeds it.
  StdinPump(asio::io_context& loop, int source);

  // Whether one worker can read the source itself: it is here and no terminal.
  bool can_hand_over() const { return can_hand_over_; }
  // The source itself, for a worker's descriptor 0.
  Result<UniqueFd> hand_over() const;

  // The reading end for a worker's descriptor 0. It starts with the next piece that is read.
  Result<UniqueFd> add_taker();
  // Ends the input of all takers; the pump stops reading.
  void close();
  // After close(): how many bytes were read that no worker has taken. Bytes sent to another host
  // count as taken: the dlaunch there knows better.
  std::uint64_t unread() const { return unread_; }
  // Called after each piece that is read.
  void on_read(std::function<void()> call) { on_read_ = std::move(call); }

  // -- Where other hosts have takers
  // give: sends a host a piece; "": the end.
  void set_give(std::function<void(int host, const std::string& bytes)> give);
  // The host has takers: the pump reads nothing before the host asks, or says that it has none.
  void expect(int host);
  // The host asks for the next piece; or no longer wants any, until it asks again.
  void host_asks(int host, bool wants);

  // -- Where it is fed
  // ask: requests the next piece; false: no worker takes it here.
  void set_ask(std::function<void(bool wants)> ask);
  void feed(std::string bytes);  // "": the end
  // Another dlaunch feeds it from now on: asks again.
  void ask_again();

 private:
  struct Taker {
    explicit Taker(asio::io_context& loop) : pipe(loop) {}
    asio::posix::stream_descriptor pipe;
    std::uint64_t begun = 0;         // how much had been read when it was added
    std::size_t sent = 0;            // of chunk_
    std::size_t room = kFirstPiece;  // of its pipe
    bool ready = true;               // it has taken all it was given
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
  const int given_;  // the source as given to us
  int source_;       // the same, or reopened
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
  // After the end of the input: what a taker's pipe still holds; the taker may read it to the end.
  struct Rest {
    UniqueFd pipe;  // a reading end, for its count only
    std::uint64_t begun, given;
  };
  std::vector<Rest> rests_;
  bool accounts_open_ = true;
  std::map<int, bool> hosts_;  // hosts with takers: whether it has asked
  std::function<void()> on_read_ = [] {};
  std::function<void(int, const std::string&)> give_;
  std::function<void(bool)> ask_;
  bool asked_ = false;
};

}  // namespace dlaunch
