#include "elastic/admission.h"

#include <fmt/format.h>

#include "base/version.h"

namespace dlaunch {
namespace {

// "": there is no reason.
std::string reason_to_refuse(const JoinRequest& request, const JoinState& state) {
  if (request.job != state.job) {
    return fmt::format("host {} was started with {}; here it is {}", request.host, request.job,
                       state.job);
  }
  if (request.build != state.build) {
    return fmt::format(
        "host {} runs another build of dlaunch {}: install the same build on all hosts",
        request.host, DLAUNCH_VERSION);
  }
  if (state.drained) {
    return fmt::format(
        "host {0} is drained: 'dlaunchctl undrain {0}' on host {1} lets it come back", request.host,
        state.leader);
  }
  if (state.starter_gone) {
    return fmt::format("what started this dlaunch on host {} has ended", request.host);
  }
  // Where hosts elect the leader, this is another job of the same name.
  if (state.elects && !request.run.empty() && request.run != state.run) {
    return fmt::format("the job that host {} was in is over", request.host);
  }
  return "";
}

}  // namespace

Admission admit(const JoinRequest& request, const JoinState& state) {
  using Answer = Admission::Answer;
  std::string why = reason_to_refuse(request, state);
  if (!why.empty()) return {Answer::refuse, std::move(why)};
  const bool fresh = request.run.empty();
  if (!fresh && request.run != state.run) return {Answer::clear, ""};
  if (fresh && state.awaits_earlier) return {Answer::wait, ""};
  // This leader has no place for workers of before.
  if (request.has_workers && (!state.continues || state.begun)) return {Answer::clear, ""};
  return {state.begun ? Answer::test : Answer::take_in, ""};
}

}  // namespace dlaunch
