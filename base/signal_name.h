// Names of signals for people.
#pragma once

#include <string>

namespace dlaunch {

// "SIGSEGV"
std::string signal_name(int signal);

// "SIGSEGV (segmentation fault)"
std::string describe_signal(int signal);

}  // namespace dlaunch
