// Messages between ranks: matching, waiting, many at once, failures.
#include "ring/stream/messenger.h"

#include <cstring>
#include <functional>
#include <random>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/rank_set.h"
#include "stream_world.h"

namespace dlaunch {
namespace {

using std::chrono::milliseconds;

// A call that needs nothing back.
Result<void> transfer(Messenger& messenger, Message message) { return messenger.transfer(message); }

Result<void> send_ints(Messenger& messenger, const std::vector<int>& values, int peer, int tag) {
  return transfer(messenger, {.send = values.data(),
                              .is_send = true,
                              .count = values.size(),
                              .dtype = DL_INT32,
                              .peer = peer,
                              .tag = tag,
                              .deadline = steady_now() + std::chrono::seconds(60)});
}

Result<void> recv_ints(Messenger& messenger, std::vector<int>& values, int peer, int tag) {
  return transfer(messenger, {.recv = values.data(),
                              .is_send = false,
                              .count = values.size(),
                              .dtype = DL_INT32,
                              .peer = peer,
                              .tag = tag,
                              .deadline = steady_now() + std::chrono::seconds(60)});
}

TEST_CASE("messages are matched by peer and tag in the order of sending") {
  for (const Wire wire : {Wire::unix_socket, Wire::tcp}) {
    MessageWorld world(3, wire);
    const auto results = world.each<std::string>([&](int rank) -> std::string {
      Messenger& messenger = *world.ends[rank];
      if (rank != 0) {
        for (const int tag : {5, 6, 5, 7}) {
          std::vector<int> values(tag == 6 ? 0 : 40'000, rank * 100 + tag);
          if (!values.empty()) values.back() = tag == 5 ? 1 : 2;
          if (auto sent = send_ints(messenger, values, 0, tag); !sent) return sent.error().what;
        }
        return "";
      }
      // Not in the order of sending, and peer by peer.
      for (const int peer : {2, 1}) {
        for (const int tag : {7, 5, 5, 6}) {
          std::vector<int> values(tag == 6 ? 0 : 40'000);
          if (auto got = recv_ints(messenger, values, peer, tag); !got) return got.error().what;
          if (!values.empty() && values[0] != peer * 100 + tag) return "wrong message";
        }
      }
      return "";
    });
    for (const auto& complaint : results) CHECK(complaint == "");
  }
}

// memcmp with itself one byte on: fast under every sanitizer.
bool all_are(const std::vector<std::int8_t>& values, int value) {
  return values[0] == value &&
         std::memcmp(values.data(), values.data() + 1, values.size() - 1) == 0;
}

Result<void> send_bytes(Messenger& messenger, const std::vector<std::int8_t>& values, int peer) {
  return transfer(messenger, {.send = values.data(),
                              .is_send = true,
                              .count = values.size(),
                              .dtype = DL_INT8,
                              .peer = peer});
}

Result<void> recv_bytes(Messenger& messenger, std::vector<std::int8_t>& values, int peer) {
  return transfer(messenger,
                  {.recv = values.data(), .count = values.size(), .dtype = DL_INT8, .peer = peer});
}

TEST_CASE("ranks that send to each other, or in a circle, before they receive do not block") {
  for (const int ranks : {2, 3}) {
    MessageWorld world(ranks, Wire::tcp);
    const auto results = world.each<std::string>([&](int rank) -> std::string {
      Messenger& messenger = *world.ends[rank];
      std::vector<std::int8_t> out(64 << 20, static_cast<std::int8_t>(rank)), in(64 << 20);
      const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
      if (auto sent = send_bytes(messenger, out, to); !sent) return sent.error().what;
      if (auto got = recv_bytes(messenger, in, from); !got) return got.error().what;
      return all_are(in, from) ? "" : "wrong data";
    });
    for (const auto& complaint : results) CHECK(complaint == "");
  }
}

constexpr std::size_t kNoRoom = Inbox::kMaxBytesPerPeer + 1;

TEST_CASE("a message larger than the inbox waits in the socket until a receive asks for it") {
  MessageWorld world(3);
  const auto results = world.each<std::string>([&](int rank) -> std::string {
    Messenger& messenger = *world.ends[rank];
    std::vector<std::int8_t> small(1);
    if (rank == 2) return words(send_bytes(messenger, small, 1));
    std::vector<std::int8_t> large(kNoRoom, static_cast<std::int8_t>(7 - rank));
    if (rank == 0) return words(send_bytes(messenger, large, 1));
    // Whatever comes first, rank 0's message must not be in the way of rank 2's.
    if (auto got = recv_bytes(messenger, small, 2); !got) return got.error().what;
    if (auto got = recv_bytes(messenger, large, 0); !got) return got.error().what;
    return all_are(large, 7) ? "" : "wrong data";
  });
  for (const auto& complaint : results) CHECK(complaint == "");
}

TEST_CASE("a message without room in the inbox is an error if waiting cannot help") {
  MessageWorld world(2);
  const auto results = world.each<std::string>([&](int rank) -> std::string {
    Messenger& messenger = *world.ends[rank];
    if (rank == 0) return words(send_bytes(messenger, std::vector<std::int8_t>(kNoRoom), 1));
    std::int8_t value = 0;
    const auto outcome =
        transfer(messenger, {.recv = &value, .count = 1, .dtype = DL_INT8, .peer = 0, .tag = 9});
    world.ends[1].reset();
    return words(outcome);
  });
  CHECK(results[0].starts_with("rank 1 closed its connection during send to rank 1 (tag 0)"));
  CHECK(
      results[1].starts_with("recv from rank 0 (tag 9): a message of 268435457 bytes from rank 0 "
                             "(tag 0) comes first, and its buffer has no room"));
}

TEST_CASE("a message that never comes ends at the deadline") {
  MessageWorld world(2);
  int value = 0;
  const auto outcome = transfer(*world.ends[0], {.recv = &value,
                                                 .count = 1,
                                                 .dtype = DL_INT32,
                                                 .peer = 1,
                                                 .tag = 4,
                                                 .deadline = steady_now() + milliseconds(50)});
  REQUIRE(!outcome);
  CHECK(outcome.error().code == Errc::timeout);
  CHECK(words(outcome).starts_with("rank 0: recv from rank 1 (tag 4) timed out after "));
}

TEST_CASE("a message with another count or dtype is a mismatch") {
  for (const bool early : {false, true}) {
    MessageWorld world(2);
    std::int32_t values[4] = {};
    const Message send{
        .send = values, .is_send = true, .count = 3, .dtype = DL_INT32, .peer = 1, .tag = 2};
    const Message other{
        .send = values, .is_send = true, .count = 1, .dtype = DL_INT32, .peer = 1, .tag = 3};
    REQUIRE(transfer(*world.ends[0], send));
    REQUIRE(transfer(*world.ends[0], other));
    if (early) {
      // Rank 1 takes tag 2 into its inbox on the way to tag 3.
      REQUIRE(transfer(*world.ends[1],
                       {.recv = values, .count = 1, .dtype = DL_INT32, .peer = 0, .tag = 3}));
    }
    const auto outcome = transfer(
        *world.ends[1], {.recv = values, .count = 3, .dtype = DL_FLOAT32, .peer = 0, .tag = 2});
    REQUIRE(is(outcome, Errc::mismatch, 0));
    CHECK(words(outcome) ==
          "message with tag 2: rank 0 sent count 3, int32; rank 1 receives count 3, float");
  }
}

TEST_CASE("bytes match a message of any type that has as many") {
  const std::vector<float> numbers = {1, -2, 3, 4.5F};
  const auto message = [](const void* from, void* to, std::size_t count, dl_dtype dtype) {
    const int peer = from != nullptr ? 1 : 0;
    return Message{.send = from,
                   .recv = to,
                   .is_send = from != nullptr,
                   .count = count,
                   .dtype = dtype,
                   .peer = peer,
                   .tag = 2};
  };
  for (const auto& types : {std::pair(DL_COMPLEX64, DL_UINT8), std::pair(DL_UINT8, DL_FLOAT32),
                            std::pair(DL_UINT8, DL_FLOAT8_E4M3)}) {
    const dl_dtype sent = types.first, received = types.second;
    CAPTURE(sent);
    MessageWorld world(2);
    std::vector<float> got(4);
    REQUIRE(
        transfer(*world.ends[0], message(numbers.data(), nullptr, 16 / dtype_bytes(sent), sent)));
    REQUIRE(transfer(*world.ends[1],
                     message(nullptr, got.data(), 16 / dtype_bytes(received), received)));
    CHECK(got == numbers);
  }
  MessageWorld world(2);
  std::vector<float> got(4);
  REQUIRE(transfer(*world.ends[0], message(numbers.data(), nullptr, 15, DL_UINT8)));
  const auto fewer = transfer(*world.ends[1], message(nullptr, got.data(), 4, DL_FLOAT32));
  CHECK(is(fewer, Errc::mismatch, 0));
}

TEST_CASE("a message that was sent before its sender left can be fetched") {
  MessageWorld world(2, Wire::tcp);
  std::vector<int> values(1000, 7), got(1000);
  REQUIRE(transfer(*world.ends[0], {.send = values.data(),
                                    .is_send = true,
                                    .count = 1000,
                                    .dtype = DL_INT32,
                                    .peer = 1,
                                    .tag = 2}));
  world.ends[0].reset();
  REQUIRE(transfer(*world.ends[1],
                   {.recv = got.data(), .count = 1000, .dtype = DL_INT32, .peer = 0, .tag = 2}));
  CHECK(got == values);
  const auto outcome = transfer(
      *world.ends[1], {.recv = got.data(), .count = 1000, .dtype = DL_INT32, .peer = 0, .tag = 2});
  CHECK(is(outcome, Errc::peer_lost, 0));
  CHECK(words(outcome).starts_with("rank 0 closed its connection during recv from rank 0 (tag 2)"));
}

// One rank's messages in the background, as the communicator does it.
struct Busy {
  explicit Busy(Messenger& m) : messenger(m), queue(std::move(*OperationQueue::make())) {}
  std::shared_ptr<Operation> start(const Message& message) {
    auto operation = std::make_shared<Operation>(completions);
    operation->is_message = true;
    operation->message = message;
    queue->push(operation);
    return operation;
  }
  void serve() { messenger.serve(*queue); }

  Messenger& messenger;
  Completions completions;
  std::unique_ptr<OperationQueue> queue;
};

TEST_CASE("many messages may be under way, in every direction and order") {
  constexpr int kRanks = 4, kMessages = 60;
  MessageWorld world(kRanks, Wire::unix_socket, 4096);
  const auto length = [](int from, int to, int i) {
    return static_cast<std::size_t>((from * 7 + to * 3 + i * i * 5) % 3000);
  };
  const auto results = world.each<std::string>([&](int rank) -> std::string {
    Busy busy(*world.ends[rank]);
    struct Buffer {
      std::vector<int> values;
      int peer, tag;
      bool is_send;
    };
    std::vector<Buffer> buffers;
    for (int i = 0; i < kMessages; ++i) {
      for (int peer = 0; peer < kRanks; ++peer) {
        if (peer == rank) continue;
        buffers.push_back(
            {std::vector<int>(length(rank, peer, i), rank * 1000 + i), peer, i, true});
        buffers.push_back({std::vector<int>(length(peer, rank, i)), peer, i, false});
      }
    }
    std::mt19937 random(static_cast<unsigned>(rank));
    std::shuffle(buffers.begin(), buffers.end(), random);
    std::vector<std::shared_ptr<Operation>> operations;
    for (auto& b : buffers) {
      Message m{.count = b.values.size(), .dtype = DL_INT32, .peer = b.peer, .tag = b.tag};
      m.is_send = b.is_send;
      if (b.is_send) {
        m.send = b.values.data();
      } else {
        m.recv = b.values.data();
      }
      operations.push_back(busy.start(m));
    }
    busy.serve();
    for (std::size_t i = 0; i < operations.size(); ++i) {
      if (!operations[i]->done()) return "not done";
      if (!operations[i]->outcome()) return operations[i]->outcome().error().what;
      const auto& b = buffers[i];
      const std::vector<int> want(b.values.size(), b.peer * 1000 + b.tag);
      if (!b.is_send && b.values != want) return "wrong data";
    }
    return "";
  });
  for (const auto& complaint : results) CHECK(complaint == "");
}

TEST_CASE("a receive from any rank takes one message from each, and says from whom") {
  for (const bool early : {false, true}) {
    MessageWorld world(5);
    const auto results = world.each<std::string>([&](int rank) -> std::string {
      Messenger& messenger = *world.ends[rank];
      int value = rank;
      Message m{
          .send = &value, .is_send = true, .count = 1, .dtype = DL_INT32, .peer = 0, .tag = 3};
      if (rank != 0) return words(transfer(messenger, m));
      if (early) {
        // Something else comes last from rank 4, behind the message with tag 3.
        while (recv(world.raw[0][4], &value, 1, MSG_PEEK | MSG_DONTWAIT) <= 0) continue;
      }
      RankSet seen;
      for (int i = 1; i < 5; ++i) {
        Message any{.recv = &value, .count = 1, .dtype = DL_INT32, .peer = kAnySource, .tag = 3};
        if (auto got = messenger.transfer(any); !got) return got.error().what;
        if (any.source != value) return "wrong source";
        seen.insert(any.source);
      }
      return format_rank_set(seen) == "1-4" ? "" : format_rank_set(seen);
    });
    for (const auto& complaint : results) CHECK(complaint == "");
  }
}

TEST_CASE("a receive from any rank fails once all have left, and names the failed operation") {
  MessageWorld world(3);
  world.ends[1].reset();
  world.ends[2].reset();
  int value = 0;
  const auto done =
      transfer(*world.ends[0],
               {.recv = &value, .count = 1, .dtype = DL_INT32, .peer = kAnySource, .tag = 3});
  REQUIRE_FALSE(done);
  CHECK(done.error().code == Errc::peer_lost);
  CHECK(done.error().what == fmt::format("rank {} closed its connection during recv from any rank "
                                         "(tag 3)",
                                         done.error().rank));
}

TEST_CASE("a failure ends all operations, and all that are started later") {
  MessageWorld world(3);
  std::vector<std::byte> buffer(8 << 20);
  Busy busy(*world.ends[0]);
  std::vector<std::shared_ptr<Operation>> operations;
  for (int i = 0; i < 3; ++i) {
    Message receive{
        .recv = buffer.data(), .count = 1, .dtype = DL_INT8, .peer = i == 2 ? -1 : 1, .tag = i};
    operations.push_back(busy.start(receive));
  }
  Message send{
      .send = buffer.data(), .is_send = true, .count = buffer.size(), .dtype = DL_INT8, .peer = 2};
  operations.push_back(busy.start(send));
  world.ends[1].reset();
  busy.serve();
  for (const auto& operation : operations) CHECK(is(operation->outcome(), Errc::peer_lost, 1));
  const auto later = busy.start(send);
  busy.serve();
  CHECK(is(later->outcome(), Errc::peer_lost, 1));
}

}  // namespace
}  // namespace dlaunch
