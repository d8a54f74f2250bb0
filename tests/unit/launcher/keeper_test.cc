#include "launcher/process/keeper.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

// The wait status of a process that keeps this agent.
int kept(const std::function<int(UniqueFd, const OriginalSignals&)>& agent) {
  const pid_t keeper = ::fork();
  REQUIRE(keeper >= 0);
  if (keeper == 0) ::_exit(run_kept(agent, [] {}));
  int status = 0;
  REQUIRE(::waitpid(keeper, &status, 0) == keeper);
  return status;
}

}  // namespace

TEST_CASE("a signal while the agent ends does not change its exit code") {
  const int status = kept([](UniqueFd signals, const OriginalSignals&) {
    signals.reset();
    ::kill(::getppid(), SIGTERM);
    return 143;
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 143);
}

TEST_CASE("the keeper reports signals to the agent") {
  const int status = kept([](UniqueFd signals, const OriginalSignals&) {
    ::kill(::getppid(), SIGUSR1);
    unsigned char told = 0;
    return ::read(signals.get(), &told, 1) == 1 ? int{told} : 1;
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == SIGUSR1);
}
