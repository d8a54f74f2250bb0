#include "base/signal_name.h"

#include <cctype>
#include <cstring>

#include <fmt/format.h>

namespace dlaunch {

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : fmt::format("signal {}", signal);
}

std::string describe_signal(int signal) {
  const char* text = ::sigabbrev_np(signal) != nullptr ? ::sigdescr_np(signal) : nullptr;
  if (text == nullptr || *text == '\0') return signal_name(signal);
  std::string meaning = text;
  meaning[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(meaning[0])));
  return fmt::format("{} ({})", signal_name(signal), meaning);
}

}  // namespace dlaunch
