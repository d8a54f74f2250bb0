#include "launcher/node/mpi/relay.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <memory>
#include <utility>

#include <asio/buffer.hpp>
#include <asio/write.hpp>
#include <fmt/format.h>

#include "base/log.h"
#include "launcher/node/mpi/loopback_owner.h"

namespace dlaunch {
namespace {

using asio::ip::tcp;

constexpr Duration kRetry = std::chrono::milliseconds(100);

}  // namespace

// The pending handlers keep it alive.
struct Relay::Pair : std::enable_shared_from_this<Pair> {
  explicit Pair(tcp::socket accepted)
      : near(std::move(accepted)), far(near.get_executor()), unanswered(near.get_executor()) {}

  void begin(const tcp::endpoint& there, Duration patience) {
    unanswered.expires_after(patience);
    unanswered.async_wait([pair = weak_from_this()](asio::error_code ec) {
      const auto self = pair.lock();
      if (!ec && self) self->close();
    });
    near.async_read_some(asio::buffer(bytes[0]),
                         [self = shared_from_this(), there](asio::error_code ec, std::size_t n) {
                           if (!ec) self->connect(there, n);
                         });
  }

  void connect(const tcp::endpoint& there, std::size_t heard) {
    far.async_connect(there, [self = shared_from_this(), heard](asio::error_code ec) {
      if (ec == asio::error::operation_aborted) return;
      if (ec) return log_warn("closed the connection of an MPI program: {}", ec.message());
      self->pass(self->near, self->far, self->bytes[0], heard);
      self->carry(self->far, self->near, self->bytes[1]);
    });
  }

  using Bytes = std::array<char, 16384>;
  void carry(tcp::socket& from, tcp::socket& to, Bytes& held) {
    from.async_read_some(asio::buffer(held), [this, self = shared_from_this(), &from, &to, &held](
                                                 asio::error_code ec, std::size_t n) {
      asio::error_code ignored;
      if (ec) return void(to.shutdown(tcp::socket::shutdown_send, ignored));
      if (&from == &far) unanswered.cancel();
      pass(from, to, held, n);
    });
  }
  void pass(tcp::socket& from, tcp::socket& to, Bytes& held, std::size_t n) {
    asio::async_write(
        to, asio::buffer(held, n),
        [this, self = shared_from_this(), &from, &to, &held](asio::error_code ec, std::size_t) {
          asio::error_code ignored;
          if (ec) return void(from.shutdown(tcp::socket::shutdown_receive, ignored));
          carry(from, to, held);
        });
  }

  void close() {
    asio::error_code ignored;
    near.close(ignored);
    far.close(ignored);
  }

  tcp::socket near, far;
  asio::steady_timer unanswered;
  Bytes bytes[2];
};

Relay::Relay(asio::io_context& loop, UniqueFd listener, std::uint16_t port, Duration patience)
    : listener_(loop, tcp::v4(), listener.release()),
      retry_(loop),
      there_(asio::ip::address_v4::loopback(), port),
      patience_(patience) {
  accept();
}

void Relay::accept() {
  listener_.async_accept([this](asio::error_code ec, tcp::socket accepted) {
    if (ec == asio::error::operation_aborted) return;
    if (ec) return accept_later();
    take(std::move(accepted));
    accept();
  });
}

// The client may have left, or descriptors are short.
void Relay::accept_later() {
  retry_.expires_after(kRetry);
  retry_.async_wait([this](asio::error_code ec) {
    if (!ec) accept();
  });
}

void Relay::take(tcp::socket accepted) {
  if (doorman_.lets_in(accepted)) {
    std::make_shared<Pair>(std::move(accepted))->begin(there_, patience_);
  }
}

bool Doorman::lets_in(const tcp::socket& accepted) {
  asio::error_code ec;
  const auto from = accepted.remote_endpoint(ec).port(), to = accepted.local_endpoint(ec).port();
  const auto owner = owner_of_loopback(from, to);
  if (!owner) return false;  // the client has left, or was killed
  if (owner == ::geteuid()) return true;
  if (std::has_single_bit(++refused_)) {
    log_warn("port {}, for the job's MPI programs: refused a connection of another user{}", to,
             refused_ > 1 ? fmt::format("; so were {} before", refused_ - 1) : "");
  }
  return false;
}

}  // namespace dlaunch
