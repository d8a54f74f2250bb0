#include "launcher/process/answer_session.h"

#include <utility>

#include <asio/buffer.hpp>
#include <asio/write.hpp>

#include "base/clock.h"

namespace dlaunch {
namespace {

constexpr Duration kAskedWithin = std::chrono::seconds(5);

}  // namespace

AnswerSession::AnswerSession(asio::io_context& loop, UniqueFd fd, std::shared_ptr<int> count)
    : socket_(loop, fd.release()), timer_(loop), count_(std::move(count)) {
  ++*count_;
}

void AnswerSession::start() {
  limit_time();
  read();
}

void AnswerSession::limit_time() {
  timer_.expires_after(kAskedWithin);
  timer_.async_wait([self = shared_from_this()](asio::error_code ec) {
    if (!ec) self->close();
  });
}

void AnswerSession::read() {
  socket_.async_read_some(asio::buffer(bytes_),
                          [self = shared_from_this()](asio::error_code ec, std::size_t n) {
                            self->request_.append(self->bytes_.data(), n);
                            const bool ended = ec == asio::error::eof;
                            if (ec && !ended) return self->close();
                            self->received(ended);
                          });
}

void AnswerSession::answer(std::string text) {
  answer_ = std::move(text);
  limit_time();
  asio::async_write(socket_, asio::buffer(answer_),
                    [self = shared_from_this()](asio::error_code, std::size_t) { self->close(); });
}

void AnswerSession::close() {
  timer_.cancel();
  asio::error_code ignored;
  socket_.close(ignored);
}

}  // namespace dlaunch
