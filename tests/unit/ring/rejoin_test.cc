// The requests, keys and groups of a round when its processes continue with the next round. An
// agent forms the rounds.
#include <malloc.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "base/clock.h"
#include "base/socket.h"
#include "process_world.h"
#include "rendezvous/worker_message.h"

using namespace dlaunch;

namespace {

// What a process says next; Goodbye, too, where it just ends.
WorkerMessage said(const UniqueFd& process) {
  char packet[kMaxWorkerMessage];
  const ssize_t n = ::recv(process.get(), packet, sizeof packet, 0);
  if (n <= 0) return Goodbye{};
  const auto message = decode_worker_message({packet, static_cast<std::size_t>(n)});
  return message ? *message : Goodbye{};
}

// Each round is formed when all processes have asked for it; the ranks are as they came.
int serve_rounds(const UniqueFd& listener, const std::string& folder, int ranks, int rounds) {
  std::vector<UniqueFd> members(static_cast<std::size_t>(ranks));
  for (int round = 1; round <= rounds; ++round) {
    for (UniqueFd& member : members) {
      if (round == 1) member.reset(::accept(listener.get(), nullptr, nullptr));
      if (!std::holds_alternative<Ready>(said(member))) return 1;
    }
    const std::string place = folder + "/" + std::to_string(round);
    std::filesystem::create_directory(place);
    for (int r = 0; r < ranks; ++r) {
      const std::string notice = encode(
          RoundNotice{.round = round, .rank = r, .size = ranks, .store_url = "file://" + place});
      ::send(members[static_cast<std::size_t>(r)].get(), notice.data(), notice.size(), 0);
    }
  }
  for (const auto& member : members) {
    // No further round: all see the agent's end.
    if (std::holds_alternative<Ready>(said(member))) return 0;
  }
  return 0;
}

dl_result join_elastic(const std::string& agent, int worker, const char* transport,
                       dl_comm*& comm) {
  ::setenv("DLAUNCH_AGENT", agent.c_str(), 1);
  ::setenv("DLAUNCH_WORKER", std::to_string(worker).c_str(), 1);
  dl_options options;
  dl_options_init(&options);
  options.elastic = 1;
  options.transport = transport;
  options.init_timeout_s = options.op_timeout_s = 30;
  return dl_init("env://", &options, &comm);
}

// Runs body in so many processes of an elastic job of so many rounds.
void all_well_elastic(int ranks, int rounds, const char* transport, const Body& body) {
  CAPTURE(transport);
  const TempFolder folder;
  const std::string socket = folder.path / "agent";
  auto listener = listen_unix_path(socket, SOCK_SEQPACKET);
  REQUIRE(listener);
  std::vector<pid_t> pids = {
      start([&] { return serve_rounds(*listener, folder.path, ranks, rounds); })};
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(start([&] {
      dl_comm* comm = nullptr;
      const dl_result joined = join_elastic(socket, rank, transport, comm);
      const int code = joined == DL_OK ? body(dl_rank(comm), comm) : 100 + joined;
      dl_finalize(comm);
      return code;
    }));
  }
  for (const pid_t pid : pids) CHECK(end_of(pid) == 0);
}

}  // namespace

TEST_CASE("rejoin: requests of the old round end with it and do not disturb the new one") {
  for (const char* transport : kTransports) {
    Together<2> started;
    all_well_elastic(2, 2, transport, [&](int rank, dl_comm*& comm) {
      int never = 0, sum = 1, got = 0;
      dl_request *receive = nullptr, *receive_any = nullptr, *reduce = nullptr, *sent = nullptr;
      EXPECT(dl_isend(comm, &rank, 1, DL_INT32, 1 - rank, 8, &sent) == DL_OK);
      EXPECT(dl_recv(comm, &got, 1, DL_INT32, 1 - rank, 8) == DL_OK);
      EXPECT(dl_irecv(comm, &never, 1, DL_INT32, 1 - rank, 9, &receive) == DL_OK);
      EXPECT(dl_irecv_any(comm, &never, 1, DL_INT32, 9, nullptr, &receive_any) == DL_OK);
      if (rank == 0) {
        EXPECT(dl_iall_reduce(comm, &sum, &sum, 1, DL_INT32, DL_SUM, &reduce) == DL_OK);
      }
      started.come(rank);  // who leaves with something under way ends the round
      EXPECT(dl_rejoin(comm, 1) == DL_OK);
      EXPECT(dl_round(comm) == 2);
      dl_request* next = nullptr;
      EXPECT(dl_irecv(comm, &got, 1, DL_INT32, 1 - rank, 9, &next) == DL_OK);
      EXPECT(dl_barrier(comm) == DL_OK);

      int done = 0;
      EXPECT(dl_test(&receive, &done) != DL_OK);
      EXPECT((done == 1 && receive == nullptr));
      EXPECT(std::string(dl_last_error(comm)) != "");
      EXPECT(dl_wait(&receive_any) != DL_OK);
      EXPECT((rank == 1 || dl_wait(&reduce) != DL_OK));
      EXPECT(dl_wait(&sent) == DL_OK);  // this one was done
      EXPECT(dl_peer_lost(comm) == -1);

      EXPECT(dl_send(comm, &rank, 1, DL_INT32, 1 - rank, 9) == DL_OK);
      EXPECT(dl_wait(&next) == DL_OK);
      EXPECT((got == 1 - rank && never == 0));
      EXPECT(dl_barrier(comm) == DL_OK);
      return 0;
    });
  }
}

TEST_CASE("rejoin: ends a batch, and persistent calls of the old round") {
  all_well_elastic(2, 2, "auto", [](int rank, dl_comm*& comm) {
    int x = 1;
    dl_persistent* call = nullptr;
    EXPECT(dl_all_reduce_init(comm, &x, &x, 1, DL_INT32, DL_SUM, &call) == DL_OK);
    EXPECT(dl_batch_start(comm) == DL_OK);
    EXPECT(dl_persistent_run(call) == DL_OK);
    EXPECT(dl_rejoin(comm, 1) == DL_OK);
    EXPECT(dl_batch_end(comm) == DL_ERR_INVALID);
    EXPECT(dl_persistent_run(call) == DL_ERR_INVALID);
    EXPECT(std::string(dl_last_error(comm)) ==
           "the persistent call is of an earlier round: make one in each round");
    EXPECT(dl_batch_start(comm) == DL_OK);
    EXPECT(dl_persistent_run(call) == DL_ERR_INVALID && dl_batch_end(comm) == DL_ERR_INVALID);
    dl_persistent_free(call);
    EXPECT(x == 1 && dl_all_reduce(comm, &x, &x, 1, DL_INT32, DL_SUM) == DL_OK && x == 2);
    return 0;
  });
}

TEST_CASE("rejoin: the new round does not see keys of the old one") {
  all_well_elastic(2, 2, "auto", [](int rank, dl_comm*& comm) {
    char text[2];
    std::size_t bytes = 0;
    EXPECT(dl_key_set(comm, "k", "1", 1) == DL_OK);
    EXPECT(dl_barrier(comm) == DL_OK);
    EXPECT(dl_rejoin(comm, 1) == DL_OK);
    EXPECT(dl_key_get(comm, "k", 0, text, sizeof text, &bytes) == DL_ERR_TIMEOUT);
    EXPECT(dl_barrier(comm) == DL_OK);
    if (rank == 1) EXPECT(dl_key_set(comm, "k", "2", 1) == DL_OK);
    EXPECT(dl_key_get(comm, "k", -1, text, sizeof text, &bytes) == DL_OK);
    EXPECT((bytes == 1 && text[0] == '2'));
    EXPECT(dl_barrier(comm) == DL_OK);
    return 0;
  });
}

TEST_CASE("rejoin: a forked child leaves its parent's place in the job alone") {
  for (const int ranks : {1, 2}) {
    all_well_elastic(ranks, 2, "auto", [](int rank, dl_comm*& comm) {
      const pid_t child = start([&] {
        EXPECT(dl_rejoin(comm, 0) == DL_ERR_INVALID);
        dl_finalize(comm);
        return 0;
      });
      EXPECT(end_of(child) == 0);
      EXPECT(dl_barrier(comm) == DL_OK);
      EXPECT(dl_rejoin(comm, 1) == DL_OK);
      EXPECT(dl_round(comm) == 2);
      EXPECT(dl_barrier(comm) == DL_OK);
      return 0;
    });
  }
}

TEST_CASE(
    "rejoin: late ranks get their results of the old round, and calls begin again in the next") {
  for (const char* transport : kTransports) {
    for (const bool catches_up : {true, false}) {
      Gate gate;
      all_well_elastic(2, 2, transport, [&](int rank, dl_comm*& comm) {
        dl_some_options options;
        dl_some_options_init(&options);
        options.need = 1;
        std::vector<float> values(300'000, 1), out(values.size());
        const auto call = [&] {
          return dl_all_reduce_some(comm, values.data(), out.data(), out.size(), DL_FLOAT32, DL_SUM,
                                    &options, nullptr, nullptr);
        };
        if (rank == 1) gate.pass();
        for (int i = 0; i < 3 && (rank == 0 || catches_up); ++i) {
          EXPECT(call() == DL_OK);
          EXPECT(out.back() == 1);
        }
        if (rank == 0) gate.open();
        EXPECT(dl_rejoin(comm, 1) == DL_OK);
        EXPECT(dl_some_behind(comm) == 0);
        options.need = 2;
        EXPECT(call() == DL_OK);
        EXPECT(out.back() == 2);
        return 0;
      });
    }
  }
}

TEST_CASE("rejoin: the end of the round ends the wait for late ranks") {
  const TempFolder folder;
  const std::string socket = folder.path / "agent";
  auto listener = listen_unix_path(socket, SOCK_SEQPACKET);
  REQUIRE(listener);
  Gate over, settled;
  const pid_t agent = start([&] {
    UniqueFd members[2];
    const auto give_round = [&](int round, int ranks) {
      const std::string place = folder.path / std::to_string(round);
      std::filesystem::create_directory(place);
      for (int r = 0; r < ranks; ++r) {
        const std::string notice = encode(
            RoundNotice{.round = round, .rank = r, .size = ranks, .store_url = "file://" + place});
        ::send(members[r].get(), notice.data(), notice.size(), 0);
      }
    };
    for (UniqueFd& member : members) {
      member.reset(::accept(listener->get(), nullptr, nullptr));
      if (!std::holds_alternative<Ready>(said(member))) return 1;
    }
    give_round(1, 2);
    over.pass();
    const std::string fence = encode(FenceNotice{.round = 2, .lost = 1});
    ::send(members[0].get(), fence.data(), fence.size(), 0);
    if (!std::holds_alternative<Ready>(said(members[0]))) return 2;
    give_round(2, 1);
    return std::holds_alternative<Goodbye>(said(members[0])) ? 0 : 3;
  });
  const auto member = [&](int worker) {
    return start([&, worker] {
      dl_comm* comm = nullptr;
      if (join_elastic(socket, worker, "tcp", comm) != DL_OK) return 100;
      const int rank = dl_rank(comm);
      if (rank == 1) {  // it stands still
        settled.pass();
        dl_finalize(comm);
        return 0;
      }
      dl_some_options options;
      dl_some_options_init(&options);
      options.need = 1;
      std::vector<float> values(3'000'000, 1);
      EXPECT(dl_all_reduce_some(comm, values.data(), values.data(), values.size(), DL_FLOAT32,
                                DL_SUM, &options, nullptr, nullptr) == DL_OK);
      std::atomic<bool> rejoins = false, waits = false;
      std::thread ends([&] {
        while (!rejoins) ::usleep(1000);
        waits = falls_asleep(::getpid());
        over.open();
      });
      const TimePoint begun = steady_now();
      rejoins = true;
      const dl_result joined = dl_rejoin(comm, 1);
      ends.join();
      EXPECT(joined == DL_OK);
      EXPECT(waits);
      EXPECT(dl_size(comm) == 1);
      EXPECT(steady_now() - begun < std::chrono::seconds(20));  // the time limit is 30 s
      dl_finalize(comm);
      return 0;
    });
  };
  const pid_t pids[] = {member(0), member(1)};
  CHECK(end_of(agent) == 0);
  settled.open();
  for (const pid_t pid : pids) CHECK(end_of(pid) == 0);
}

TEST_CASE("rejoin: a group of the old round returns an error that says so") {
  all_well_elastic(2, 1, "auto", [](int rank, dl_comm*& comm) {
    dl_comm* group = nullptr;
    EXPECT(dl_split(comm, 0, 0, &group) == DL_OK);
    EXPECT(dl_rejoin(group, 1) == DL_ERR_UNSUPPORTED);
    EXPECT(std::string(dl_last_error(group)).find("this is a group") != std::string::npos);
    EXPECT(dl_barrier(group) == DL_OK);
    dl_finalize(group);
    return 0;
  });
}

namespace {

// A processor that adds wrongly, on this rank.
int add_one_more(const void* in, void* inout, std::size_t count, dl_dtype, void* wrong) {
  const auto* from = static_cast<const int*>(in);
  auto* to = static_cast<int*>(inout);
  for (std::size_t i = 0; i < count; ++i) to[i] += from[i] + (wrong != nullptr ? 1 : 0);
  return 0;
}

}  // namespace

TEST_CASE(
    "rejoin: a rank with corrupt data is in no further round, and later news do not hurt it") {
  ::setenv("DLAUNCH_VERIFY", "full", 1);
  Gate refused;
  Together<3> found;
  all_well_elastic(3, 1, "shm", [&](int rank, dl_comm*& comm) {
    ::mallopt(M_PERTURB, 0x5a);  // freed memory holds nonsense
    dl_op op{};
    EXPECT(dl_op_create(add_one_more, 1, rank == 2 ? &rank : nullptr, &op) == DL_OK);
    int sum = 1;
    EXPECT(dl_all_reduce(comm, &sum, &sum, 1, DL_INT32, op) == DL_OK);
    const dl_result verified = dl_verify(comm);
    found.come(rank);
    EXPECT(verified == DL_ERR_CORRUPT);
    EXPECT(dl_peer_lost(comm) == (rank == 2 ? -1 : 2));
    if (rank == 2) {
      EXPECT(dl_rejoin(comm, 1) == DL_ERR_ABORTED);
      refused.open();
      for (int ms = 0; ms < 20'000 && dl_round_over(comm) == 0; ++ms) ::usleep(1000);
      EXPECT(dl_round_over(comm) == 1);
    } else if (rank == 0) {
      refused.pass();
      EXPECT(dl_rejoin(comm, 1) == DL_ERR_IO);
    }
    return 0;
  });
  ::unsetenv("DLAUNCH_VERIFY");
}
