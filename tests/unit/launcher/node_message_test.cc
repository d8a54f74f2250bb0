#include "launcher/wire/node_message.h"

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

TEST_CASE("the end of a worker arrives completely, with times as ages") {
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
  end.by_chaos = true;
  end.oom_evidence = true;
  end.oom_text = "oom";
  end.stderr_tail = {"one", "two"};
  end.error_file = "{}";
  end.stderr_log = "logs/1/5/stderr";
  end.silent_since_traceback = 12s;
  end.traceback =
      Traceback{kHere - 2ms, {"Traceback", "E: x"}, {"more"}, "E: x", {"E: y"}, "E: y", 3};
  end.flight = {{"all_reduce #1", FlightState::failed, kHere - 2s, kHere - 1s}};
  end.peer_lost = 7;
  end.corrupt = "other results";
  end.corrupt_rank = 5;
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
  CHECK(got.by_chaos);
  CHECK(got.stderr_tail == end.stderr_tail);
  CHECK(got.error_file == "{}");
  CHECK(got.stderr_log == "logs/1/5/stderr");
  REQUIRE(got.traceback);
  CHECK(got.traceback->begun == kThere - 2ms);
  CHECK(got.traceback->lines == end.traceback->lines);
  CHECK(got.traceback->behind == end.traceback->behind);
  CHECK(got.traceback->error == "E: x");
  CHECK(got.traceback->first == end.traceback->first);
  CHECK(got.traceback->first_error == "E: y");
  CHECK(got.traceback->between == 3);
  CHECK(got.silent_since_traceback == 12s);
  REQUIRE(got.flight.size() == 1);
  CHECK(got.flight[0].what == "all_reduce #1");
  CHECK(got.flight[0].state == FlightState::failed);
  CHECK(got.flight[0].ended == kThere - 1s);
  CHECK(got.peer_lost == 7);
  CHECK(got.is_corrupt());
  CHECK(got.corrupt == "other results");
  end.traceback.reset();
  CHECK_FALSE(over(ended).end.traceback);
}

TEST_CASE("what a program reports of its progress arrives, by the clock here") {
  const NodeRunProgress sent{
      3, {.at = kHere - 1s, .step = 12, .total = 100, .values = {{"loss", 0.5}}}};
  const auto got = over(sent);
  CHECK(got.rank == 3);
  CHECK(got.progress ==
        RunProgress{.at = kThere - 1s, .step = 12, .total = 100, .values = {{"loss", 0.5}}});
}

TEST_CASE("an order to log in arrives, and one that makes no sense does not") {
  const NodeLogIn sent{.login = 7,
                       .number = 3,
                       .nproc = 2,
                       .host = "c",
                       .user = "u",
                       .port = 2222,
                       .binary = "/opt/dlaunch",
                       .proof = "p"};
  const auto got = over(sent);
  CHECK((got.login == 7 && got.number == 3 && got.nproc == 2 && got.host == "c"));
  CHECK((got.user == "u" && got.port == 2222 && got.binary == sent.binary && got.proof == "p"));
  const auto refused = [](NodeLogIn what) {
    return !decode_node_message(encode(what, kHere).substr(4), kThere);
  };
  CHECK_FALSE(refused(sent));
  NodeLogIn wrong = sent;
  CHECK(refused((wrong.port = 65536, wrong)));
  wrong = sent;
  CHECK(refused((wrong.host.clear(), wrong)));
  CHECK(over(NodeLoginEnded{7, 127, true, "no program"}).why == "no program");
}

TEST_CASE("the proof of an order to log in holds for all of it, and for one receiver") {
  const Secret secret(std::string(32, 's'));
  const NodeLogIn sent{
      .login = 7, .number = 3, .nproc = 2, .host = "c", .user = "u", .port = 22, .binary = "/b"};
  const auto proof = proof_of(sent, 4, secret);
  CHECK(proof.size() == kMacBytes);
  NodeLogIn what = sent;
  CHECK(proof_of((what.proof = proof, what), 4, secret) == proof);
  CHECK(proof_of(sent, 5, secret) != proof);
  CHECK(proof_of(sent, 4, Secret("another")) != proof);
  const auto changed = [&](auto change) {
    NodeLogIn other = sent;
    change(other);
    return proof_of(other, 4, secret) != proof;
  };
  CHECK(changed([](NodeLogIn& other) { other.login = 8; }));
  CHECK(changed([](NodeLogIn& other) { other.number = 8; }));
  CHECK(changed([](NodeLogIn& other) { other.nproc = 8; }));
  CHECK(changed([](NodeLogIn& other) { other.host = "d"; }));
  CHECK(changed([](NodeLogIn& other) { other.user = "v"; }));
  CHECK(changed([](NodeLogIn& other) { other.port = 23; }));
  CHECK(changed([](NodeLogIn& other) { other.binary = "/c"; }));
}

TEST_CASE("what a worker does, and its GPUs, survive the way") {
  CHECK(over(NodeSurvey{7, true}).gpus);
  NodeWorker worker{.slot = 1, .pid = 7, .started = kHere - 5s, .round = 3, .cpu = 4s};
  worker.memory = 1ULL << 40;
  worker.in_ring = worker.has_spoken = true;
  worker.rate = {.operations = 5, .bytes = 6, .over = 7s};
  worker.gpus_known = true;
  worker.gpus = {{.number = 2,
                  .instance = 5,
                  .utilisation = -1,
                  .temperature = 60,
                  .memory_used = 3,
                  .memory_total = 4,
                  .ecc_errors = -1}};
  const auto got = over(NodeWorkers{7, {worker}}).workers.at(0);
  CHECK(got.round == 3);
  CHECK(got.cpu == 4s);
  CHECK(got.memory == 1ULL << 40);
  CHECK((got.in_ring && got.has_spoken));
  CHECK(over(NodeGaveUp{5}).slot == 5);
  const auto threw = over(NodeThrew{3, 77, kHere - 12s, true});
  CHECK(threw.slot == 3);
  CHECK(threw.pid == 77);
  CHECK(threw.threw == kThere - 12s);
  CHECK(threw.over);
  CHECK(got.rate.operations == 5);
  CHECK(got.rate.bytes == 6);
  CHECK(got.rate.over == 7s);
  CHECK(got.gpus_known);
  REQUIRE(got.gpus.size() == 1);
  CHECK(got.gpus[0].number == 2);
  CHECK(got.gpus[0].instance == 5);
  CHECK(got.gpus[0].utilisation == -1);
  CHECK(got.gpus[0].temperature == 60);
  CHECK(got.gpus[0].memory_used == 3);
  CHECK(got.gpus[0].memory_total == 4);
  CHECK(got.gpus[0].ecc_errors == -1);
}

TEST_CASE("a host of another build is understood as far as its build") {
  NodeJoin other{"host", 2, 8, "job", wire_fingerprint() + 1, "10.0.0.1"};
  const std::string frame = encode(other, kHere).substr(4);
  // It has a member that this build does not know, or lacks one.
  for (const std::string& payload : {frame + "more", frame.substr(0, frame.size() - 4)}) {
    CHECK_FALSE(decode_node_message(payload, kThere));
    const auto join = join_of_another_build(payload);
    REQUIRE(join);
    CHECK(join->host == "host");
    CHECK(join->job == "job");
    CHECK(join->build == wire_fingerprint() + 1);
  }
  // Neither is a malformed join of this build one of another, nor is a part of one, nor is another
  // message.
  other.build = wire_fingerprint();
  CHECK_FALSE(join_of_another_build(encode(other, kHere).substr(4) + "more"));
  CHECK_FALSE(join_of_another_build(frame.substr(0, 20)));
  CHECK_FALSE(join_of_another_build(encode(NodeSignal{15}, kHere).substr(4)));
}

TEST_CASE("orders and answers survive the way") {
  const auto join = over(NodeJoin{"host", 2, 8, "job"});
  CHECK(join.host == "host");
  CHECK(join.number == 2);
  CHECK(join.nproc == 8);
  CHECK(join.job == "job");
  const auto start = over(NodeStart{3,
                                    8,
                                    2,
                                    1,
                                    4,
                                    "10.0.0.1",
                                    99,
                                    {{0, 2, 0}, {2, -1, -1}},
                                    true,
                                    {"10.0.0.1:5", "[::1]:6"},
                                    "s0.s1"});
  CHECK(start.rack == "s0.s1");
  CHECK(start.peers == std::vector<std::string>{"10.0.0.1:5", "[::1]:6"});
  CHECK(start.round == 3);
  CHECK(start.size == 8);
  CHECK(start.local_size == 2);
  CHECK(start.node_rank == 1);
  CHECK(start.nodes == 4);
  CHECK(start.master_addr == "10.0.0.1");
  CHECK(start.master_port == 99);
  CHECK(start.one_world);
  REQUIRE(start.places.size() == 2);
  CHECK(start.places[1].slot == 2);
  CHECK(start.places[1].rank == -1);
  CHECK(over(NodeStop{{1, 2}, 9}).slots == std::vector<Slot>{1, 2});
  CHECK(over(NodeStartFailed{1, {Stage::exec, 2, "exec 'x'"}}).error.stage == Stage::exec);
  CHECK(over(NodeReady{1, 4, 77, "it stands still"}).version == 77);
  CHECK(over(NodeReady{1, 4, 77, "it stands still"}).why == "it stands still");
  CHECK(over(NodeReady{1, 4, 77, "they differ", true, 3}).corrupt);
  CHECK(over(NodeReady{1, 4, 77, "they differ", true, 3}).corrupt_rank == 3);
  CHECK(over(NodeFence{4, 1}).lost == 1);
  NodeJoin again{"host", 2, 8, "job", 77, "10.0.0.1", 7, "4f", {}, 5, {4711, 4712}, "s0.s1"};
  again.found.push_back(
      {.slot = 3, .linked = true, .ready = true, .in_round = 4, .round = 4, .version = 9});
  const auto back = over(again);
  CHECK((back.run == "4f" && back.login == 5));
  CHECK(back.ports == std::vector<std::int32_t>{4711, 4712});
  CHECK((join.rack.empty() && back.rack == "s0.s1"));
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
  (void)over(NodeTest{});
  CHECK(over(NodeTested{"no memory"}).why == "no memory");
  CHECK(over(NodeInputWanted{true}).wants);
  CHECK(over(NodeInput{std::string("a\0b", 3)}).bytes == std::string("a\0b", 3));
}

TEST_CASE("questions about workers and their answers survive the way") {
  const auto welcome = over(NodeWelcome{1, 3, "", "leader", 5s});
  CHECK(welcome.led_by == "leader");
  CHECK(welcome.still_after == 5s);
  CHECK(over(NodePing{7ms}).sent == 7ms);
  CHECK(over(NodePong{7ms, 8ms}).sent == 7ms);
  CHECK(over(NodePong{7ms, 8ms}).since == 8ms);
  CHECK(over(NodeLook{9}).look == 9);
  CHECK(over(NodeCut{9, 3, 20}).last == 20);
  CHECK(over(NodeSpans{9, 3, 20}).first == 3);
  const RankSpans spans{
      .rank = 2,
      .round = 3,
      .until = kHere + 1s,
      .joined = kHere - 2s,
      .blocked = 5ms,
      .spans = {{.kind = SpanKind::background, .how = 1, .seq = 7, .entered = kHere}},
      .texts = {"ring"}};
  const auto books = over(NodeBooks{{spans}});
  REQUIRE(books.ranks.size() == 1);
  CHECK(books.ranks[0].joined == kThere - 2s);
  CHECK(books.ranks[0].until == kThere + 1s);
  CHECK(books.ranks[0].blocked == 5ms);
  REQUIRE(books.ranks[0].spans.size() == 1);
  CHECK(books.ranks[0].spans[0].kind == SpanKind::background);
  CHECK(books.ranks[0].spans[0].seq == 7);
  CHECK(books.ranks[0].spans[0].how == 1);
  CHECK(books.ranks[0].texts == std::vector<std::string>{"ring"});
  CHECK(books.ranks[0].spans[0].entered == kThere);
  CHECK(over(NodeDump{5, 2}).request == 5);
  CHECK(over(NodeHung{2, 77, "why"}).why == "why");
  const auto ask = over(NodeAskRecorder{5, 2, true});
  CHECK((ask.slot == 2 && ask.in_haste));
  const auto recorded =
      over(NodeRecorded{5,
                        {{.group = 4, .seq = 9, .inside = true}},
                        {{.comm = 77, .name = "x", .enqueued = 3, .last = {{.count = 5}}}},
                        {{.comm = 78, .function = "AllReduce", .others = 6}},
                        true});
  REQUIRE(recorded.nccl.size() == 1);
  CHECK(recorded.nccl[0].comm == 77);
  CHECK(recorded.nccl[0].name == "x");
  CHECK_FALSE(recorded.nccl[0].others);
  REQUIRE(recorded.ras.size() == 1);
  CHECK((recorded.ras[0].function == "AllReduce" && recorded.ras[0].others == 6));
  CHECK(recorded.ras_silent);
  REQUIRE(recorded.nccl[0].last.size() == 1);
  CHECK(recorded.nccl[0].last[0].count == 5);
  CHECK((recorded.request == 5 && recorded.positions.at(0).seq == 9));
  const auto tail = over(NodeTail{2, 40s, true});
  CHECK((tail.slot == 2 && tail.lasts == 40s && tail.again));
  const auto output = over(NodeOutput{2, 7, {{true, 33, "line"}}});
  CHECK((output.slot == 2 && output.lost == 7));
  REQUIRE(output.lines.size() == 1);
  CHECK((output.lines[0].err && output.lines[0].end == 33 && output.lines[0].text == "line"));
  const auto inject = over(NodeInject{2, 19, std::chrono::milliseconds(10)});
  CHECK((inject.signal == 19 && inject.stands == std::chrono::milliseconds(10)));
  CHECK(over(NodeSurvey{6}).request == 6);
  const auto stacks = over(NodeStacks{5, 2, 77, {"thread", "#0 main"}});
  CHECK(stacks.pid == 77);
  CHECK(stacks.lines == std::vector<std::string>{"thread", "#0 main"});

  NodeRank rank{4, 2, 77, ProcessState::stopped, true, true, {}, 3s, 4s};
  rank.positions.push_back({3, 17, true, 1, 250ms});
  const auto seen = over(NodeSeen{{rank, {}}});
  REQUIRE(seen.ranks.size() == 2);
  CHECK(seen.ranks[0].rank == 4);
  CHECK(seen.ranks[0].round == 2);
  CHECK(seen.ranks[0].pid == 77);
  CHECK(seen.ranks[0].state == ProcessState::stopped);
  CHECK(seen.ranks[0].left);
  CHECK(seen.ranks[0].moves);
  CHECK(seen.ranks[0].beat == 3s);
  CHECK(seen.ranks[0].quiet == 4s);
  REQUIRE(seen.ranks[0].positions.size() == 1);
  CHECK(seen.ranks[0].positions[0].group == 3);
  CHECK(seen.ranks[0].positions[0].seq == 17);
  CHECK(seen.ranks[0].positions[0].inside);
  CHECK(seen.ranks[0].positions[0].what == 1);
  CHECK(seen.ranks[0].positions[0].still == 250ms);

  const auto times = over(NodeTimes{9, {{4, kHere + 3ms, 1ms, 10ms}}, {{0, 4, 1000, 2ms}}});
  REQUIRE(times.ranks.size() == 1);
  CHECK(times.ranks[0].entered == kThere + 3ms);
  CHECK(times.ranks[0].in_op == 1ms);
  CHECK(times.ranks[0].step == 10ms);
  REQUIRE(times.links.size() == 1);
  CHECK(times.links[0].to == 4);
  CHECK(times.links[0].bytes == 1000);
  CHECK(times.links[0].time == 2ms);

  const FlightEntry operation{"barrier #1", FlightState::running, kHere - 1s, kHere};
  const auto workers = over(NodeWorkers{6,
                                        {{.slot = 2,
                                          .pid = 77,
                                          .started = kHere - 5s,
                                          .state = ProcessState::traced,
                                          .operations = {operation}}}});
  REQUIRE(workers.workers.size() == 1);
  CHECK(workers.workers[0].started == kThere - 5s);
  CHECK(workers.workers[0].state == ProcessState::traced);
  CHECK(workers.workers[0].operations.at(0).started == kThere - 1s);
}

TEST_CASE("times that would overflow are cut short") {
  CHECK(over(NodePing{-1s}).sent == 0s);
  CHECK(over(NodePing{Duration::max()}).sent == std::chrono::hours(24 * 365));
}

TEST_CASE("malformed input is refused") {
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
  CHECK(refused(encode(NodeJoin{"h", 1, 2'000'000'000, ""}, kHere).substr(4)));
  CHECK(refused(encode(NodeCut{1, 5, 5}, kHere).substr(4)));
  CHECK(refused(encode(NodeSpans{1, 5, 4}, kHere).substr(4)));
  // A list that claims to be longer than the frame costs nothing.
  std::string stop = encode(NodeStop{{1}, 9}, kHere).substr(4);
  stop[1] = stop[2] = '\x7f';
  CHECK(refused(stop));
}
