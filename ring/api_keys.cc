// The C API of the keys that ranks share.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "ring/api.h"

using dlaunch::Communicator;
using dlaunch::Duration;
using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::Result;
using dlaunch::SharedKeys;

namespace {

template <class Body>
dl_result with_keys(dl_comm* comm, bool arguments, Body body) {
  return dlaunch::with(comm, [&](Communicator& impl) -> Result<void> {
    if (impl.forked()) return Communicator::forked_error();
    if (!arguments) return Error{.code = Errc::usage, .what = "a key call: an argument is null"};
    return body(impl);
  });
}

Duration patience(const Communicator& impl, double timeout_s) {
  if (!(timeout_s >= 0)) return impl.op_timeout();
  return dlaunch::duration_of(timeout_s);
}

}  // namespace

dl_result dl_key_set(dl_comm* comm, const char* key, const void* value, size_t bytes) {
  return with_keys(comm, key != nullptr && (value != nullptr || bytes == 0),
                   [&](Communicator& impl) {
                     return impl.keys().set(key, {static_cast<const char*>(value), bytes});
                   });
}

dl_result dl_key_get(dl_comm* comm, const char* key, double timeout_s, void* value, size_t room,
                     size_t* bytes) {
  return with_keys(comm, key != nullptr && bytes != nullptr && (value != nullptr || room == 0),
                   [&](Communicator& impl) -> Result<void> {
                     const auto got = impl.keys().get(key, patience(impl, timeout_s));
                     if (!got) return got.error();
                     *bytes = got->size();
                     if (room > 0) std::memcpy(value, got->data(), std::min(room, got->size()));
                     return {};
                   });
}

dl_result dl_key_add(dl_comm* comm, const char* key, int64_t delta, int64_t* sum) {
  return with_keys(comm, key != nullptr && sum != nullptr, [&](Communicator& impl) -> Result<void> {
    const auto added = impl.keys().add(key, delta);
    if (added) *sum = *added;
    return added ? Result<void>() : added.error();
  });
}
