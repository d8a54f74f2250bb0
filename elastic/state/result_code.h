// Maps dl_result, which crosses the C interfaces, and Errc, which is used inside, both ways in one
// table.
#pragma once

#include <array>
#include <utility>

#include <dlaunch/ring.h>

#include "base/result.h"

namespace dlaunch {

inline constexpr std::array<std::pair<Errc, dl_result>, 11> kResultCodes = {{
    {Errc::usage, DL_ERR_INVALID},
    {Errc::io, DL_ERR_IO},  // first of its code: DL_ERR_IO becomes this inside
    {Errc::not_found, DL_ERR_IO},
    {Errc::timeout, DL_ERR_TIMEOUT},
    {Errc::protocol, DL_ERR_PROTOCOL},
    {Errc::auth, DL_ERR_AUTH},
    {Errc::peer_lost, DL_ERR_PEER_LOST},
    {Errc::mismatch, DL_ERR_MISMATCH},
    {Errc::aborted, DL_ERR_ABORTED},
    {Errc::unsupported, DL_ERR_UNSUPPORTED},
    {Errc::corrupt, DL_ERR_CORRUPT},
}};

inline dl_result result_code(Errc code) {
  for (const auto& [inside, outside] : kResultCodes) {
    if (inside == code) return outside;
  }
  return DL_ERR_PROTOCOL;
}

inline Errc error_code(dl_result result) {
  for (const auto& [inside, outside] : kResultCodes) {
    if (outside == result) return inside;
  }
  return Errc::protocol;
}

}  // namespace dlaunch
