// Tunnel: one connection of rendezvous/tls_tunnel.h. `outer` is the TCP socket; `inner` is our end
// of the pair of sockets whose other end the program uses. Non-blocking; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "rendezvous/tls_channel.h"

namespace dlaunch {

class Tunnel {
 public:
  // used: the program's end.
  Tunnel(UniqueFd outer, UniqueFd inner, int used, std::unique_ptr<TlsChannel> channel,
         TlsChannel::Side side);
  ~Tunnel();
  Tunnel(const Tunnel&) = delete;
  Tunnel& operator=(const Tunnel&) = delete;

  int outer() const { return outer_.get(); }
  int inner() const { return inner_.get(); }
  // For a forked child; the object is unusable afterwards.
  void close();

  enum class State { waits, goes_on, over };
  // Moves bytes as far as both sockets allow, or for a fair time.
  State carry();
  // No byte that the program has written can be sent now.
  bool idle() const { return !shaken_ || load_out_.empty(); }

 private:
  // Bytes that came in and have not gone out.
  class Load {
   public:
    bool empty() const { return begin_ == end_; }
    char* room();
    void came(std::size_t bytes) { end_ = bytes; }
    const char* data() const { return bytes_.data() + begin_; }
    std::size_t size() const { return end_ - begin_; }
    void gone(std::size_t bytes) { begin_ += bytes; }
    void drop() { begin_ = end_; }

   private:
    std::vector<char> bytes_;
    std::size_t begin_ = 0, end_ = 0;
  };

  void shake_hands();
  bool speaks_tls();
  void refuse();
  void drop_all();
  bool carry_out();
  bool carry_in();
  bool hung_up() const;
  void outlive_program();
  bool over() const;

  UniqueFd outer_, inner_;
  const std::uint64_t key_;
  const std::unique_ptr<TlsChannel> channel_;
  Load load_out_, load_in_;
  bool accepts_;  // an acceptor that has not seen yet whether the peer speaks TLS
  bool shaken_ = false, refused_ = false, out_ended_ = false, in_ended_ = false, over_ = false,
       outlives_ = false;
};

}  // namespace dlaunch
