// AnswerSession: a connection on which a program sends one request and gets one answer. The session
// closes it after the answer, and if the program does not finish its request or does not read the
// answer within 5 s. It lives as long as an operation of the loop is pending, or who answers keeps
// it. An asio shell; one thread, the loop's.
#pragma once

#include <array>
#include <memory>
#include <string>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>

#include "base/unique_fd.h"

namespace dlaunch {

class AnswerSession : public std::enable_shared_from_this<AnswerSession> {
 public:
  // fd: a non-blocking socket. count: of the sessions that exist.
  AnswerSession(asio::io_context& loop, UniqueFd fd, std::shared_ptr<int> count);
  virtual ~AnswerSession() { --*count_; }
  AnswerSession(const AnswerSession&) = delete;
  AnswerSession& operator=(const AnswerSession&) = delete;

  void start();

 protected:
  // request() has grown, or (ended) the program sends no more. Calls close(), read(), or complete()
  // and then, now or later, answer().
  virtual void received(bool ended) = 0;

  const std::string& request() const { return request_; }
  void read();
  // The request is there: the answer may take its time.
  void complete() { timer_.cancel(); }
  void answer(std::string text);
  void close();

 private:
  void limit_time();

  asio::posix::stream_descriptor socket_;
  asio::steady_timer timer_;
  const std::shared_ptr<int> count_;
  std::array<char, 1024> bytes_{};
  std::string request_, answer_;
};

}  // namespace dlaunch
