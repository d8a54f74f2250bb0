#include "base/result.h"

#include <cstring>

namespace dlaunch {

Error errno_error(std::string context, int err) {
  char text[128];
  // The GNU strerror_r returns the text, which may or may not be in the buffer.
  context += ": ";
  context += strerror_r(err, text, sizeof text);
  return Error{.code = Errc::io, .what = std::move(context), .os_errno = err, .rank = -1};
}

}  // namespace dlaunch
