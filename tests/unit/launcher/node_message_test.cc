#include "launcher/node_message.h"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

const TimePoint kHere(1000s), kThere(5000s);  // the clocks of two hosts

// What arrives on the other host.
template <class Message>
Message over(const Message& message) {
  const std::string frame = encode(message, kHere);
  const auto got = decode_node_message(std::string_view(frame).substr(4), kThere);
  REQUIRE_MESSAGE(got, got.error().what);
  REQUIRE(std::holds_alternative<Message>(*got));
  return std::get<Message>(*got);
}

}  // namespace

TEST_CASE("the end of a worker is told whole, with times as ages") {
  NodeEnded ended{.slot = 3, .end = {}};
  WorkerEnd& end = ended.end;
  end.rank = 5;
  end.local_rank = 3;
  end.pid = 4711;
  end.started = kHere - 10s;
  end.ended = kHere - 1ms;
  end.signal = 11;
  end.core_dumped = true;
  end.hung = "hung";
  end.signal_we_sent = 15;
  end.oom_evidence = true;
  end.oom_text = "oom";
  end.stderr_tail = {"one", "two"};
  end.error_file = "{}";
  end.flight = {{"all_reduce #1", FlightState::failed, kHere - 2s, kHere - 1s}};
  end.peer_lost = 7;
  const WorkerEnd got = over(ended).end;
  CHECK(got.rank == 5);
  CHECK(got.pid == 4711);
  CHECK(got.started == kThere - 10s);
  CHECK(got.ended == kThere - 1ms);
  CHECK(got.signal == 11);
  CHECK(got.core_dumped);
  CHECK(got.hung == "hung");
  CHECK(got.signal_we_sent == 15);
  CHECK(got.oom_evidence);
  CHECK(got.stderr_tail == end.stderr_tail);
  CHECK(got.error_file == "{}");
  REQUIRE(got.flight.size() == 1);
  CHECK(got.flight[0].what == "all_reduce #1");
  CHECK(got.flight[0].state == FlightState::failed);
  CHECK(got.flight[0].ended == kThere - 1s);
  CHECK(got.peer_lost == 7);
}

TEST_CASE("orders and answers survive the way") {
  const auto join = over(NodeJoin{"host", 2, 8, "job"});
  CHECK(join.host == "host");
  CHECK(join.number == 2);
  CHECK(join.nproc == 8);
  CHECK(join.job == "job");
  const auto start = over(NodeStart{3, 8, 2, 1, 4, "10.0.0.1", 99, {{0, 2, 0}, {2, -1, -1}}});
  CHECK(start.round == 3);
  CHECK(start.size == 8);
  CHECK(start.local_size == 2);
  CHECK(start.node_rank == 1);
  CHECK(start.nodes == 4);
  CHECK(start.master_addr == "10.0.0.1");
  CHECK(start.master_port == 99);
  REQUIRE(start.places.size() == 2);
  CHECK(start.places[1].slot == 2);
  CHECK(start.places[1].rank == -1);
  CHECK(over(NodeStop{{1, 2}, 9}).slots == std::vector<Slot>{1, 2});
  CHECK(over(NodeStartFailed{1, {Stage::exec, 2, "exec 'x'"}}).error.stage == Stage::exec);
  CHECK(over(NodeReady{1, 4, 77}).version == 77);
  CHECK(over(NodeFence{4, 1}).lost == 1);
  NodeJoin again{"host", 2, 8, "job", "10.0.0.1", 7, "4f", {}};
  again.found.push_back(
      {.slot = 3, .linked = true, .ready = true, .in_round = 4, .round = 4, .version = 9});
  const auto back = over(again);
  CHECK(back.run == "4f");
  REQUIRE(back.found.size() == 1);
  CHECK(back.found[0].slot == 3);
  CHECK_FALSE(back.found[0].done);
  CHECK(back.found[0].linked);
  CHECK(back.found[0].ready);
  CHECK(back.found[0].in_round == 4);
  CHECK(back.found[0].version == 9);
  (void)over(NodeClear{});
  CHECK(over(NodeWelcome{1, 3, "4f"}).run == "4f");
  CHECK(over(NodeWelcome{1, 3, ""}).slots == 3);
  CHECK(over(NodeFinish{7, "why"}).exit_code == 7);
  CHECK(over(NodeInputWanted{true}).wants);
  CHECK(over(NodeInput{std::string("a\0b", 3)}).bytes == std::string("a\0b", 3));
}

TEST_CASE("what makes no sense is refused") {
  const auto refused = [](std::string_view frame) {
    const auto got = decode_node_message(frame, kHere);
    return !got && got.error().code == Errc::protocol;
  };
  CHECK(refused(""));
  CHECK(refused("\xff"));
  const std::string whole = encode(NodeStart{3, 8, 2, 1, 4, "a", 1, {{0, 2, 0}}}, kHere).substr(4);
  CHECK(refused(std::string_view(whole).substr(0, whole.size() - 1)));
  CHECK(refused(whole + "x"));
  CHECK(refused(encode(NodeStart{0, 8, 2, 1, 4, "a", 1, {}}, kHere).substr(4)));
  CHECK(refused(encode(NodeWelcome{1, 0, ""}, kHere).substr(4)));
  CHECK(refused(encode(NodeJoin{"h", 1, 0, ""}, kHere).substr(4)));
  // A list that claims to be longer than the frame costs nothing.
  std::string stop = encode(NodeStop{{1}, 9}, kHere).substr(4);
  stop[1] = stop[2] = '\x7f';
  CHECK(refused(stop));
}
