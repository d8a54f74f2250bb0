// The process that serves MPI programs, alone.
#include "launcher/node/mpi/pmix_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "base/codec.h"
#include "base/unique_fd.h"
#include "base/write_all.h"
#include "launcher/node/mpi/pmix_finder.h"
#include "launcher/node/mpi/pmix_job.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;

TEST_CASE("pmix program: the end of its stdin ends it, also while it waits for another node") {
  if (!find_pmix()) {
    MESSAGE("skipped: this host has no libpmix");
    return;
  }
  const TempFolder folder;
  PmixOrder order;
  order.nspace = "n";
  order.size = order.nodes = 2;
  order.host = "host1";
  order.ranks = {0};
  order.folder = (folder.path / "mpi.1").string();
  order.job_id = "j";
  order.store_url = "file://" + (folder.path / "store").string();
  Writer bytes;
  bytes.put_string(encode_order(order));

  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  UniqueFd reading(ends[0]), writing(ends[1]);
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    ::dup2(reading.get(), STDIN_FILENO);
    writing.reset();
    ::_exit(run_pmix_server());
  }
  const UniqueFd exited(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  REQUIRE(write_all(writing.get(), bytes.bytes()).os_errno == 0);
  const auto waits = [&] {
    // Its node has said what it has.
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path)) {
      if (entry.is_regular_file()) return true;
    }
    return false;
  };
  pollfd over{.fd = exited.get(), .events = POLLIN, .revents = 0};
  for (int i = 0; i < 3000 && !waits(); ++i) REQUIRE(::poll(&over, 1, 10) == 0);
  writing.reset();
  const bool ended = ::poll(&over, 1, 30'000) == 1;
  CHECK(ended);
  if (!ended) ::kill(pid, SIGKILL);
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  CHECK(status == 0);
}
