// What the files of the C API share: what a dl_comm is, and how errors and exceptions become a code
// and a text.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>

#include "dlaunch/ring.h"
#include "ring/communicator.h"
#include "ring/device/device_copy.h"
#include "ring/membership.h"
#include "ring/next_round.h"

struct dl_comm {
  // The membership of an elastic process: created before and destroyed after the round's
  // communicator.
  std::unique_ptr<dlaunch::Membership> membership;
  dlaunch::JobView job;  // what does not change from round to round
  // Memory of dl_alloc(); stays when dl_rejoin() replaces `impl`, and outlives it: calls in the
  // background may use the memory until `impl` ends them.
  std::map<void*, std::shared_ptr<void>> memory;
  std::unique_ptr<dlaunch::Communicator> impl;
  // How often dl_rejoin() has replaced `impl`: calls begun before the last time do not use the new
  // one.
  std::uint64_t rejoined = 0;
  // Stays, too: the stream of dl_set_stream(), and the copier of dl_copy().
  void* stream = nullptr;
  bool stream_ordered = false;
  std::optional<dlaunch::Duration> op_limit;  // of dl_set_op_timeout()
  std::unique_ptr<dlaunch::DeviceCopier> copier;
  ~dl_comm() {
    if (membership) membership->on_over({});
  }
  // The last failure of each thread, by thread_number().
  std::mutex mutex;
  std::map<std::uint64_t, std::string> errors;
};

namespace dlaunch {

dl_result code_of(Errc code);
// A number for the calling thread that is never reused: the system reuses thread ids.
std::uint64_t thread_number();
// Sets dl_last_error() of this thread; comm null: that of dl_last_error(NULL).
void keep_error(dl_comm* comm, const std::string& what) noexcept;

// seconds must not be negative.
inline Duration duration_of(double seconds) {
  constexpr double kLongest = 1e9;
  return Duration(static_cast<std::int64_t>(std::min(seconds, kLongest) * 1e9));
}

// Runs body(), which returns a Result<void>; third-party exceptions (memory) end here.
template <class Body>
dl_result guarded(dl_comm* comm, Body body) noexcept {
  try {
    const Result<void> done = body();
    if (done) return DL_OK;
    if (comm != nullptr && comm->impl) comm->impl->wind_up();
    keep_error(comm, done.error().what);
    return code_of(done.error().code);
  } catch (const std::bad_alloc&) {
    keep_error(comm, "out of memory");
  } catch (const std::exception& e) {
    keep_error(comm, e.what());
  }
  return DL_ERR_IO;
}

// Runs body(communicator) if there is a communicator.
template <class Body>
dl_result with(dl_comm* comm, Body body) {
  return guarded(comm, [&]() -> Result<void> {
    if (comm == nullptr) return Error{.code = Errc::usage, .what = "the communicator is null"};
    return body(*comm->impl);
  });
}

// dl_compressed_average(), or dl_icompressed_average() if request is not null, of an outer
// optimizer: `common` is a hash that must be equal on all ranks, too.
dl_result average_in_common(dl_comm* comm, std::span<float> values, dl_codec codec, float* residual,
                            std::uint64_t common, dl_request** request);

}  // namespace dlaunch
