#include "worker_death.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

namespace {

constexpr int kHighestFd = 1024;

// The volatile array keeps the compiler from turning the recursion into a loop.
int overflow(int depth) {
  volatile char frame[4096];
  frame[0] = static_cast<char>(depth);
  return depth < 0 ? 0 : overflow(depth + 1) + frame[0];
}

void throw_something() { throw std::runtime_error("nobody catches this"); }
void throw_uncaught() noexcept { throw_something(); }

void run_out_of_memory() {
  const rlimit limit{std::size_t{1} << 20, std::size_t{1} << 20};
  ::setrlimit(RLIMIT_AS, &limit);
  std::vector<std::vector<char>> all;
  for (;;) all.emplace_back(std::size_t{1} << 20, 'x');
}

[[noreturn]] void eat_memory() {
  for (;;) std::memset(std::malloc(std::size_t{8} << 20), 1, std::size_t{8} << 20);
}

[[noreturn]] void spin() {
  for (volatile bool spins = true; spins;) continue;
  std::abort();
}

void scribble() {
  std::minstd_rand random(static_cast<unsigned>(::getpid()));
  for (int fd = 3; fd < kHighestFd; ++fd) {
    char bytes[200];
    for (char& byte : bytes) byte = static_cast<char>(random());
    ::send(fd, bytes, 1 + random() % sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

}  // namespace

void die(const std::string& how) {
  if (how == "kill") {
    ::raise(SIGKILL);
  } else if (how == "exit") {
    std::fputs("a batch that nobody can read\n", stderr);
    std::exit(3);
  } else if (how == "abort") {
    std::abort();
  } else if (how == "segv") {
    *static_cast<volatile int*>(nullptr) = 1;
  } else if (how == "stack") {
    overflow(0);
  } else if (how == "throw") {
    throw_uncaught();
  } else if (how == "memory") {
    run_out_of_memory();
  } else if (how == "eat") {
    eat_memory();
  } else if (how == "spin") {
    spin();
  } else if (how == "close") {
    for (int fd = 3; fd < kHighestFd; ++fd) ::close(fd);
  } else if (how == "scribble") {
    scribble();
  } else {
    throw std::invalid_argument("no such death: " + how);
  }
}
