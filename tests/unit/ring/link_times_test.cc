// The stream plane's reports about its links: bytes, and the time that they took.
#include <netinet/in.h>

#include <algorithm>
#include <map>
#include <thread>

#include <doctest/doctest.h>

#include "stream_world.h"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;

struct Heard {
  std::uint64_t bytes = 0;
  Duration time{};
};
using ByPeer = std::map<int, Heard>;

constexpr std::size_t kFloats = 1 << 20;  // floats; 2 MiB over each of 4 ranks' links

// One all_reduce in which `before` is done by each rank first; who heard what from whom.
std::vector<ByPeer> listen(StreamWorld& world, const std::function<void(int rank)>& before) {
  std::vector<ByPeer> heard(world.ends.size());
  for (std::size_t r = 0; r < heard.size(); ++r) {
    auto& plane = static_cast<StreamPlane&>(*world.ends[r]);
    plane.tell_links([&by_peer = heard[r]](int peer, std::uint64_t bytes, Duration time) {
      by_peer[peer].bytes += bytes;
      by_peer[peer].time += time;
    });
  }
  const auto outcomes = world.each<std::string>([&](int rank) {
    std::vector<float> values(kFloats, 1.0F);
    before(rank);
    return words(
        world.ends[static_cast<std::size_t>(rank)]->run({.collective = Collective::all_reduce,
                                                         .in = values.data(),
                                                         .out = values.data(),
                                                         .count = values.size(),
                                                         .dtype = DL_FLOAT32,
                                                         .op = DL_SUM,
                                                         .seq = 1}));
  });
  for (const auto& outcome : outcomes) CHECK(outcome == "");
  return heard;
}

TEST_CASE("links: only the slow link is reported as slow") {
  constexpr int kRanks = 4, kFrom = 1, kTo = 3;
  constexpr unsigned kRate = 2'000'000;  // bytes a second: what the link carries takes a second
  // On a busy machine the thread of a rank sometimes stands still, and its links seem slow. Such a
  // try does not count.
  Duration slow{}, median{};
  for (int i = 0; i < 5 && median >= slow / 2; ++i) {
    StreamWorld world(kRanks, Wire::tcp);
    REQUIRE(setsockopt(world.raw[kFrom][kTo], SOL_SOCKET, SO_MAX_PACING_RATE, &kRate,
                       sizeof kRate) == 0);
    const auto heard = listen(world, [](int) {});
    std::vector<Duration> others;
    for (int to = 0; to < kRanks; ++to) {
      CHECK(heard[to].size() == kRanks - 1);
      for (const auto& [from, link] : heard[to]) {
        CHECK(link.bytes == 2 * kFloats * sizeof(float) / kRanks);
        if (from != kFrom || to != kTo) others.push_back(link.time);
      }
    }
    slow = heard[kTo].at(kFrom).time;
    CHECK(slow > 300ms);
    std::nth_element(others.begin(), others.begin() + 5, others.end());
    median = others[5];
  }
  CHECK(median < slow / 2);
}

TEST_CASE("links: a late sender is not reported as a slow link") {
  StreamWorld world(3, Wire::tcp);
  const auto heard = listen(world, [](int rank) {
    if (rank == 1) std::this_thread::sleep_for(6s);
  });
  for (const auto& by_peer : heard) {
    for (const auto& [from, link] : by_peer) CHECK(link.time < 5s);
  }
}

TEST_CASE("links: data of one read take no time, and a barrier has no data") {
  StreamWorld world(2);
  std::vector<Heard> heard;
  static_cast<StreamPlane&>(*world.ends[0])
      .tell_links([&](int, std::uint64_t bytes, Duration time) {
        heard.push_back({bytes, time});
      });
  for (const bool barrier : {false, true}) {
    const auto outcomes = world.each<std::string>([&](int rank) {
      int value = 1;
      return words(world.ends[static_cast<std::size_t>(rank)]->run(
          {.collective = barrier ? Collective::barrier : Collective::all_reduce,
           .in = &value,
           .out = &value,
           .count = barrier ? 0U : 1U,
           .dtype = DL_INT32,
           .seq = barrier ? 2U : 1U}));
    });
    for (const auto& outcome : outcomes) CHECK(outcome == "");
  }
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].bytes == sizeof(int));
  CHECK(heard[0].time == Duration::zero());
}

}  // namespace
}  // namespace dlaunch
