// Result<T>: the value or an Error. For operating failures: a peer that went away, a port in use, a
// bad option. Bugs are DL_ASSERTs; this code throws nothing but Thrown. The member names are
// std::expected's.
#pragma once

#include <exception>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace dlaunch {

// The kind of failure; cli/exit_code.h and ring.h map each one to a documented number.
enum class Errc {
  usage,        // the caller asked for something impossible or malformed
  io,           // the system refused: open, bind, fork, mmap …
  not_found,    // a named thing (file, program, key) does not exist
  timeout,      // a deadline passed
  protocol,     // bytes from outside do not fit the format
  auth,         // the other side does not hold the job's secret, or is of another job or round
  peer_lost,    // another rank died or closed its connection
  mismatch,     // ranks called different collectives, or one with different arguments
  aborted,      // code in this process aborted the communicator
  unsupported,  // valid, but not available in this build or on this machine
  corrupt,      // ranks hold different bytes where all must hold the same ones
};
// For decoders: no code is greater.
inline constexpr Errc kLastErrc = Errc::corrupt;

// `what` is a sentence fragment for people, with the object in it: "connect to 10.0.0.7:29400:
// connection refused". The code that knows the context adds it, once.
struct Error {
  Errc code = Errc::io;
  std::string what;
  int os_errno = 0;  // 0 if no system call was the cause
  int rank = -1;     // the rank at fault, if known (peer_lost, mismatch, corrupt)
};

inline Error usage_error(std::string what) {
  return {.code = Errc::usage, .what = std::move(what)};
}
inline Error protocol_error(std::string what) {
  return {.code = Errc::protocol, .what = std::move(what)};
}

// An Errc::io Error that reads "<context>: <strerror(err)>".
Error errno_error(std::string context, int err);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  T& value() {
    DL_ASSERT(has_value());
    return *std::get_if<0>(&state_);
  }
  const T& value() const {
    DL_ASSERT(has_value());
    return *std::get_if<0>(&state_);
  }
  const Error& error() const {
    DL_ASSERT(!has_value());
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), failed_(true) {}  // NOLINT: implicit

  bool has_value() const { return !failed_; }
  explicit operator bool() const { return has_value(); }
  const Error& error() const {
    DL_ASSERT(failed_);
    return error_;
  }

 private:
  Error error_;
  bool failed_ = false;
};

// An error that leaves code without a Result. Only a reduction throws it, when a function of the
// program fails within.
class Thrown : public std::exception {
 public:
  explicit Thrown(Error error) : error_(std::move(error)) {}
  const char* what() const noexcept override { return error_.what.c_str(); }
  const Error& error() const { return error_; }

 private:
  Error error_;
};

// For code in which only the standard library throws, when it is out of memory, or a Thrown.
template <class Body>
Result<void> without_exceptions(Body body) {
  try {
    return body();
  } catch (const Thrown& thrown) {
    return thrown.error();
  } catch (const std::exception& e) {
    return Error{.code = Errc::io, .what = e.what()};
  }
}

}  // namespace dlaunch
