// The record of NCCL's operations: what is known of each, with kernel events and without.
#include "ring/profiler/recorder.h"

#include <memory>
#include <random>
#include <string>

#include <doctest/doctest.h>

#include "ring/profiler/words.h"

using namespace dlaunch;

namespace {

constexpr std::uint8_t kAllReduce = 0, kBroadcast = 3, kFloat = 8;

struct Recorded {
  explicit Recorded(bool kernels) : recorder(*file, kernels) {}

  std::string bytes() const {
    return std::string(reinterpret_cast<const char*>(file.get()), kNcclBytes);
  }
  NcclProgress comm() const { return read_nccl(bytes()).at(0); }
  FlightEntry last() const { return read_nccl_flight(bytes()).back(); }

  std::unique_ptr<NcclFile> file = std::make_unique<NcclFile>();
  NcclRecorder recorder;
};

TimePoint at(int ms) { return TimePoint(std::chrono::milliseconds(ms)); }

NcclRecorder::Operation all_reduce(int channels = 2) {
  return {.what = kAllReduce, .dtype = kFloat, .count = 1024, .peer = 0, .channels = channels};
}

}  // namespace

TEST_CASE("nccl record: without kernel events operations are enqueued, and no more is known") {
  Recorded r(false);
  const int comm = r.recorder.add(0xabcd, 4, 2, "tensor_parallel");
  CHECK(r.comm().enqueued == 0);
  r.recorder.enqueue(at(1), comm, all_reduce());
  r.recorder.enqueue(at(2), comm, {.what = kBroadcast, .dtype = 1, .count = 7, .peer = 3});
  r.recorder.enqueue(at(3), comm, {.what = kFlightSend, .dtype = 1, .count = 9, .peer = 1});
  const NcclProgress comm_now = r.comm();
  CHECK(comm_now.comm == 0xabcd);
  CHECK(comm_now.ranks == 4);
  CHECK(comm_now.rank == 2);
  CHECK_FALSE(comm_now.kernels);
  CHECK(in_words(comm_now) == "NCCL communicator tensor_parallel");
  CHECK(comm_now.enqueued == 2);  // messages are not numbered: both ends need not have the same
  CHECK(comm_now.begun == 0);
  REQUIRE(comm_now.last.size() == 2);
  CHECK(in_words(comm_now.last[0]) == "all_reduce (count 1024, float)");
  CHECK(in_words(comm_now.last[1]) == "broadcast (count 7, uint8, root 3)");
  const auto flight = read_nccl_flight(r.bytes());
  REQUIRE(flight.size() == 3);
  CHECK(flight[0].what == "all_reduce #1 (count 1024, float) on NCCL communicator tensor_parallel");
  CHECK(flight[0].state == FlightState::enqueued);
  CHECK(flight[0].started == at(1));
  CHECK(flight[2].what ==
        "send to rank 1 (tag 0, count 9, uint8) on NCCL communicator "
        "tensor_parallel");
}

TEST_CASE("nccl record: an operation runs from its first channel's begin to its last one's end") {
  Recorded r(true);
  const int comm = r.recorder.add(0xabcd, 2, 0, "");
  const auto first = r.recorder.enqueue(at(1), comm, all_reduce());
  const auto second = r.recorder.enqueue(at(2), comm, all_reduce());
  CHECK(r.comm().begun == 0);
  CHECK(r.comm().kernels);
  CHECK(in_words(r.comm()) == "NCCL communicator 000000000000abcd");
  r.recorder.channel_began(at(3), first);
  CHECK(r.comm().begun == 1);
  CHECK(r.comm().open == 1);
  r.recorder.channel_ended(at(4), first);  // the other channel has not begun yet
  CHECK(r.comm().open == 1);
  r.recorder.channel_began(at(5), second);
  CHECK(r.comm().begun == 2);
  CHECK(r.comm().open == 1);
  r.recorder.channel_began(at(6), first);
  r.recorder.channel_ended(at(7), first);
  CHECK(r.comm().open == 2);
  const auto flight = read_nccl_flight(r.bytes());
  CHECK(flight[0].state == FlightState::done);
  CHECK(flight[0].started == at(3));
  CHECK(flight[0].ended == at(7));
  CHECK(flight[1].state == FlightState::running);
  const auto tallies = read_tallies(r.bytes());
  REQUIRE(tallies.size() == 1);
  CHECK(tallies[0].ns == 4'000'000);
  CHECK(tallies[0].bytes == 4096);
}

TEST_CASE("nccl record: an operation whose channels are not counted may run again") {
  Recorded r(true);
  const int comm = r.recorder.add(0xabcd, 2, 0, "");
  const auto ticket = r.recorder.enqueue(at(1), comm, all_reduce(0));
  r.recorder.channel_began(at(2), ticket);
  r.recorder.channel_ended(at(3), ticket);
  CHECK(r.last().state == FlightState::done);
  CHECK(r.comm().open == 0);
  r.recorder.channel_began(at(4), ticket);
  CHECK(r.last().state == FlightState::running);
  CHECK(r.last().started == at(2));
  CHECK(r.comm().open == 1);
  r.recorder.channel_ended(at(5), ticket);
  CHECK(r.last().ended == at(5));
  CHECK(read_tallies(r.bytes())[0].ns == 1'000'000);  // counted once
}

TEST_CASE("nccl record: the first unfinished of thousands is known, and events of old ones pass") {
  Recorded r(true);
  const int comm = r.recorder.add(0xabcd, 2, 0, "");
  const auto first = r.recorder.enqueue(at(0), comm, all_reduce(1));
  r.recorder.channel_began(at(0), first);
  for (int i = 1; i <= 1000; ++i) r.recorder.enqueue(at(i), comm, all_reduce(1));
  CHECK(r.comm().enqueued == 1001);
  CHECK(r.comm().open == 1);
  const auto last = r.recorder.enqueue(at(1001), comm, all_reduce(1));
  r.recorder.channel_began(at(1002), last);
  for (int i = 0; i < 4000; ++i) r.recorder.enqueue(at(i), comm, all_reduce(1));
  CHECK(r.comm().open == 1002);  // #1 is not known any more
  r.recorder.channel_ended(at(1003), last);
  CHECK(r.comm().open == 0);
  r.recorder.channel_ended(at(9), first);
  r.recorder.channel_ended(at(9), 1'000'000);
  r.recorder.channel_began(at(9), 0);
  CHECK(r.comm().begun == 1002);
}

TEST_CASE("nccl record: events of a communicator do not concern the next one in its place") {
  Recorded r(true);
  std::vector<int> comms;
  for (int i = 0; i < kNcclComms; ++i) comms.push_back(r.recorder.add(100, 2, 0, ""));
  const auto old = r.recorder.enqueue(at(1), comms[0], all_reduce(1));
  r.recorder.channel_began(at(2), old);
  r.recorder.remove(comms[0]);
  REQUIRE(r.recorder.add(200, 2, 0, "") == comms[0]);
  r.recorder.channel_began(at(4), r.recorder.enqueue(at(3), comms[0], all_reduce(1)));
  r.recorder.channel_ended(at(5), old);
  CHECK(r.comm().open == 1);
}

TEST_CASE("nccl record: a destroyed communicator stays until its place is needed") {
  Recorded r(false);
  std::vector<int> comms;
  for (int i = 0; i < kNcclComms; ++i) {
    comms.push_back(r.recorder.add(100 + static_cast<std::uint64_t>(i), 2, 0, ""));
  }
  CHECK(r.recorder.add(999, 2, 0, "") == -1);
  r.recorder.remove(comms[7]);
  r.recorder.enqueue(at(1), comms[8], all_reduce());
  r.recorder.remove(comms[3]);
  CHECK(read_nccl(r.bytes()).size() == kNcclComms);
  CHECK(read_nccl(r.bytes())[7].destroyed);
  CHECK_FALSE(read_nccl(r.bytes())[8].destroyed);
  CHECK(r.recorder.add(1000, 2, 0, "new") == comms[7]);
  CHECK(r.recorder.add(1001, 2, 0, "new") == comms[3]);
  CHECK(read_nccl(r.bytes())[3].comm == 1001);
  CHECK_FALSE(read_nccl(r.bytes())[3].destroyed);
}

TEST_CASE("nccl record: whether the last operation is a message that may wait") {
  const NcclRecorder::Operation message = {
      .what = kFlightRecv, .dtype = 1, .count = 9, .peer = 1, .channels = 0};
  Recorded r(true);
  const int comm = r.recorder.add(0xabcd, 2, 0, "");
  const auto ticket = r.recorder.enqueue(at(1), comm, message);
  CHECK(r.comm().message);
  CHECK(r.comm().last_operation == ticket);
  r.recorder.channel_began(at(2), ticket);
  CHECK(r.comm().message);
  r.recorder.channel_ended(at(3), ticket);
  CHECK_FALSE(r.comm().message);
  r.recorder.enqueue(at(4), comm, message);
  CHECK(r.comm().message);
  const auto collective = r.recorder.enqueue(at(5), comm, all_reduce());
  CHECK_FALSE(r.comm().message);
  CHECK(r.comm().last_operation == collective);
}

TEST_CASE("nccl record: what is senseless or being written is skipped") {
  Recorded r(true);
  r.recorder.enqueue(at(1), r.recorder.add(5, 2, 0, "x"), all_reduce());
  CHECK(read_nccl(r.bytes()).size() == 1);
  CHECK(read_nccl(r.bytes().substr(0, kFlightBytes + 10)).empty());
  r.file->comms[0].next_version = 77;
  CHECK(read_nccl(r.bytes()).empty());
  r.file->comms[0].next_version = r.file->comms[0].version.load();
  r.file->comms[0].enqueued = UINT64_MAX;
  CHECK(read_nccl(r.bytes()).empty());
  r.file->comms[0].enqueued = 1;
  CHECK(read_nccl(r.bytes()).size() == 1);
  r.file->comms[0].calls[1].what = 200;
  CHECK(read_nccl(r.bytes()).empty());
  std::mt19937 random(1);
  std::string garbage(kNcclBytes, '\0');
  for (char& c : garbage) c = static_cast<char>(random());
  CHECK(read_nccl(garbage).size() <= kNcclComms);
  CHECK(read_nccl_flight(garbage).size() <= kFlightRecords);
}

TEST_CASE("nccl record: NCCL's words") {
  CHECK(operation_of("AllReduce") == 0);
  CHECK(operation_of("ReduceScatter") == 1);
  CHECK(operation_of("AlltoAll") == 8);
  CHECK(operation_of("Recv") == kFlightRecv);
  CHECK_FALSE(operation_of("Unknown").has_value());
  CHECK(kDtypeNames[dtype_of("ncclBfloat16")] == "bfloat16");
  CHECK(kDtypeNames[dtype_of("ncclFloat8e4m3")] == "f8e4m3");
  CHECK(kDtypeNames[dtype_of("ncclUnknown")] == "uint8");
}
