// Events and actions of JobCore in words, for a transcript.
#pragma once

#include <string>

#include "elastic/job_core.h"

namespace dlaunch::sim {

std::string words(const JobCore::Event& event);
std::string words(const JobCore::Action& action);
std::string words(JobEnding end);

}  // namespace dlaunch::sim
