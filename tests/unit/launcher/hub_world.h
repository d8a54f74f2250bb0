// The hub with real pipes: the test acts as the workers and as the reader of dlaunch's output.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <string>
#include <utility>

#include <asio/io_context.hpp>
#include <doctest/doctest.h>

#include "base/log.h"
#include "launcher/output/output_hub.h"
#include "launcher/output/own_descriptor.h"

namespace dlaunch {

struct Pipe {
  Pipe() {
    int ends[2] = {-1, -1};
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    reading.reset(ends[0]);
    writing.reset(ends[1]);
  }
  UniqueFd reading, writing;
};

// What is there now, without waiting for more.
inline std::string available(const UniqueFd& fd) {
  std::string text;
  const UniqueFd own = open_anew(fd.get(), O_RDONLY);
  std::array<char, 65536> buffer;
  for (ssize_t n; (n = ::read(own.get(), buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return text;
}

template <class Condition>
void turn_until(asio::io_context& loop, Condition condition) {
  const auto end = steady_now() + std::chrono::seconds(30);
  while (!condition()) {
    REQUIRE(steady_now() < end);
    loop.restart();
    loop.run_one_for(std::chrono::milliseconds(10));
  }
}

// `own` are the hub's descriptors 0, 1 and 2.
struct Hub {
  explicit Hub(int nproc = 2) { plan.nproc = nproc; }
  void start() {
    hub.emplace(
        loop, plan,
        OutputHub::OwnDescriptors{in.reading.get(), out_fd >= 0 ? out_fd : out.writing.get(),
                                  err_fd >= 0 ? err_fd : err.writing.get()});
    set_log_sink([this](LogLevel, std::string_view line) { hub->own_line(line); });
  }
  ~Hub() { set_log_sink({}); }
  OutputHub::WorkerStdio open(int rank, int round = 1) {
    auto stdio = hub->open_worker(round, rank, rank);
    REQUIRE(stdio);
    return std::move(*stdio);
  }
  void turn() {
    loop.restart();
    loop.poll();
  }
  template <class Condition>
  void turn_until(Condition condition) {
    dlaunch::turn_until(loop, condition);
  }
  std::string shown() { return available(out.reading); }

  Plan plan;
  Pipe in, out, err;
  int out_fd = -1, err_fd = -1;
  asio::io_context loop;
  std::optional<OutputHub> hub;
};

}  // namespace dlaunch
