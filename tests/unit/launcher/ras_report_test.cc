// The texts are those of NCCL 2.28.9 and of NCCL 2.24.3, whose functions have one count together.
#include "launcher/node/watch/ras_report.h"

#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

const std::string kRasTitle =
    "SERVER PROTOCOL 2\n"
    "NCCL version 2.28.9 compiled with CUDA 13.0\n"
    "CUDA runtime version 13000, driver version 13000\n\n"
    "Job summary\n"
    "===========\n\n"
    "  Nodes  Processes         GPUs  Processes     GPUs\n"
    "(total)   per node  per process    (total)  (total)\n"
    "      1          4            1          4        4\n\n"
    "Communicators... (0.000s)\n"
    "=============\n\n"
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
    "    #  in group  per comm  per node  per comm  in group\n";
const std::string kRasBehind =
    kRasTitle +
    "    0         1         1         4         4         4   RUNNING  MISMATCH\n\n"
    "Errors\n"
    "======\n\n"
    "Warnings\n"
    "========\n\n"
    "#0-0 (27a079b828ff1a75) MISMATCH\n"
    "  Communicator ranks have different AllReduce operation counts\n"
    "  3 ranks have launched up to operation 42\n"
    "  Rank 1 has launched up to operation 41 -- GPU 1 managed by process "
    "101 on node 10.0.0.7\n\n";

bool is_at_10_0_0_7(std::string_view host, pid_t) { return host == "10.0.0.7"; }
RasReport report_in(const std::string& text) {
  const auto report = read_ras_report(text, is_at_10_0_0_7);
  REQUIRE(report);
  return *report;
}

}  // namespace

TEST_CASE("RAS report: the rank that is behind, and the count of the others") {
  const auto report = report_in(kRasBehind);
  CHECK(report.silent.empty());
  REQUIRE(report.named.size() == 1);
  REQUIRE(report.named.at(101).size() == 1);
  const NcclProgress& at = report.named.at(101)[0];
  CHECK(at.comm == 0x27a079b828ff1a75);
  CHECK((at.ranks == 4 && at.rank == 1));
  CHECK(at.function == "AllReduce");
  CHECK(at.enqueued == 41);
  CHECK(at.others == 42);
}

TEST_CASE("RAS report: without a difference it names nothing") {
  const auto report =
      report_in(kRasTitle +
                "    0         8         4         1         4        32   RUNNING      OK\n\n"
                "Errors\n======\n\nWarnings\n========\n\n");
  CHECK((report.named.empty() && report.silent.empty()));
}

TEST_CASE("RAS report: NCCL 2.24, several ranks with one count; communicators not to be compared") {
  const auto report = report_in(
      "SERVER PROTOCOL 2\nOK\n"
      "NCCL version 2.24.3 compiled with CUDA 12.6\n"
      "CUDA runtime version 12060, driver version 12060\n\n"
      "Job summary\n===========\n\n"
      "  Nodes  Processes         GPUs  Processes     GPUs\n"
      "(total)   per node  per process    (total)  (total)\n"
      "      4          8            1         32       32\n\n"
      "Communicators... (0.01s)\n=============\n\n"
      "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
      "    #  in group  per comm  per node  per comm  in group\n"
      "    0         1         4         8        32        32   RUNNING  MISMATCH\n"
      "    1         3         1         8         8        24   RUNNING  MISMATCH\n"
      "    2         1         1         3         8         8   RUNNING  INCOMPLETE,MISMATCH\n"
      "    3         1         1         8         8         8     ABORT  MISMATCH\n\n"
      "Errors\n======\n\nWarnings\n========\n\n"
      "#0-0 (27a079b828ff1a75) MISMATCH\n"
      "  Communicator ranks have different collective operation counts\n"
      "  26 ranks have launched up to operation 6650\n"
      "  5 ranks have launched up to operation 6649\n"
      "  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210\n"
      "  Rank 2 -- GPU 2 (NVML 6) managed by process 483074 on node 10.0.0.7\n"
      "  Rank 3 -- GPU 3 managed by process 483075 on node 10.0.0.7\n"
      "  Rank 4 -- [process information not found]\n"
      "  Rank 5 -- GPU 5 managed by process 483077 on node 172.16.64.210\n"
      "  Rank 7 has launched up to operation 6600 -- GPU 7 managed by process 483079 on node "
      "10.0.0.7\n\n"
      "#1-1 (00000000000000ff) MISMATCH\n"
      "  Communicator ranks have different collective operation counts\n"
      "  7 ranks have launched up to operation 5\n"
      "  Rank 3 has launched up to operation 0 -- GPU 3 managed by process 483075 on node "
      "10.0.0.7\n\n"
      "#1-2 (00000000000000fe) MISMATCH\n"
      "  Communicator ranks have different status\n"
      "  7 ranks have status RUNNING\n"
      "  Rank 2 has status ABORT -- GPU 2 managed by process 483074 on node 10.0.0.7\n"
      "  Communicator ranks have different collective operation counts\n"
      "  7 ranks have launched up to operation 5\n"
      "  Rank 3 has launched up to operation 0 -- GPU 3 managed by process 1 on node "
      "10.0.0.7\n\n"
      "#2-0 (00000000000000fd) MISMATCH\n"
      "  Communicator ranks have different collective operation counts\n"
      "  7 ranks have launched up to operation 5\n"
      "  Rank 3 has launched up to operation 0 -- GPU 3 managed by process 2 on node "
      "10.0.0.7\n\n"
      "#3-0 (00000000000000fc) MISMATCH\n"
      "  Communicator ranks have different collective operation counts\n"
      "  7 ranks have launched up to operation 5\n"
      "  Rank 3 has launched up to operation 0 -- GPU 3 managed by process 3 on node "
      "10.0.0.7\n\n");
  REQUIRE(report.named.size() == 3);
  REQUIRE(report.named.at(483074).size() == 1);
  const NcclProgress& two = report.named.at(483074)[0];
  CHECK((two.ranks == 32 && two.rank == 2 && two.enqueued == 6649 && two.others == 6650));
  CHECK(two.function == "collective");
  REQUIRE(report.named.at(483075).size() == 2);
  const NcclProgress& three = report.named.at(483075)[1];
  CHECK((three.comm == 0xff && three.ranks == 8 && three.enqueued == 0 && three.others == 5));
  CHECK(report.named.at(483079)[0].enqueued == 6600);
}

TEST_CASE("RAS report: the counts end where some ranks have left the communicator") {
  const auto end = kRasBehind.find("  3 ranks");
  const auto report =
      report_in(kRasBehind.substr(0, end) + "  Communicator ranks have different status\n" +
                kRasBehind.substr(end));
  CHECK(report.named.empty());
}

TEST_CASE("RAS report: each function has its own count, and one that no rank has launched") {
  const auto report =
      report_in(kRasTitle +
                "    0         1         1         4         4         4   RUNNING  MISMATCH\n\n"
                "Errors\n======\n\nWarnings\n========\n\n"
                "#0-0 (27a079b828ff1a75) MISMATCH\n"
                "  Communicator ranks have different AllGather operation counts\n"
                "  3 ranks have not launched any operations\n"
                "  Rank 1 has launched up to operation 1 -- GPU 1 managed by process 101 on "
                "node 10.0.0.7\n\n"
                "  Communicator ranks have different AllReduce operation counts\n"
                "  2 ranks have launched up to operation 42\n"
                "  2 ranks have launched up to operation 41\n\n");
  REQUIRE(report.named.at(101).size() == 1);
  CHECK(report.named.at(101)[0].function == "AllGather");
  CHECK(report.named.at(101)[0].others == 0);
}

TEST_CASE("RAS report: processes that do not answer, and dead ones") {
  const auto report =
      report_in(kRasTitle +
                "    0         1         1         3         4         3   RUNNING  "
                "INCOMPLETE,MISMATCH\n\n"
                "Errors\n======\n\n"
                "INCOMPLETE\n"
                "  Missing communicator data from 2 job processes\n"
                "  Process 102 on node 10.0.0.7 managing GPU 2\n"
                "  Process 102 on node 10.0.0.8 managing GPU 2\n\n"
                "DEAD\n"
                "  1 job process is considered dead (unreachable via the RAS network)\n"
                "  Process 103 on node 10.0.0.7 managing GPUs 3,4 (NVML 5,6)\n\n"
                "#0-0 (27a079b828ff1a75) INCOMPLETE\n"
                "  Missing communicator data from 1 rank\n"
                "  Rank 2 -- GPU 2 managed by process 104 on node 10.0.0.7\n\n"
                "#0-0 (27a079b828ff1a75) ERROR\n"
                "  Asynchronous error on 1 rank\n"
                "  Rank 3 reported Remote process error -- GPU 3 managed by process 105 on "
                "node 10.0.0.7\n\n"
                "Warnings\n========\n\n"
                "TIMEOUT\n"
                "  Encountered 2 communication timeouts while gathering communicator "
                "data\n\n");
  CHECK(report.silent == std::set<pid_t>{102, 103});
  CHECK(report.named.empty());
}

TEST_CASE("RAS report: other processes, and texts that are no whole report") {
  CHECK(read_ras_report(kRasBehind, [](auto, pid_t pid) { return pid != 101; })->named.empty());
  CHECK_FALSE(read_ras_report(kRasBehind.substr(0, kRasBehind.find("Warnings")), is_at_10_0_0_7));
  CHECK_FALSE(read_ras_report(kRasBehind.substr(18), is_at_10_0_0_7));
  CHECK_FALSE(read_ras_report("", is_at_10_0_0_7));
}
