#include "ring/sites/payload_sources.h"

#include <doctest/doctest.h>

namespace dlaunch {
namespace {

using std::chrono::seconds;

constexpr TimePoint kStart = TimePoint{} + std::chrono::hours(1);

Contribution of_site(int site, std::uint64_t bytes = 10) {
  return {{site, 100}, {1, 5}, bytes, 77};
}

// Site 2 of four in the ring 0 1 2 3; all are connected to all, and blocks have 4 bytes.
PayloadSources four_sites(int window = 2) {
  PayloadSources sources(2, {.block = 4, .window = window, .stall = seconds(5)});
  sources.set_order({0, 1, 2, 3});
  for (const int site : {0, 1, 3}) {
    sources.peer_up(site);
    sources.peer_has(site, {}, {0, 1, 2, 3});
  }
  return sources;
}

}  // namespace

TEST_CASE("payload sources: a site pulls from its predecessor, with a window") {
  auto sources = four_sites();
  sources.peer_has(0, {of_site(0)}, {1, 2, 3});
  sources.want(kStart, of_site(0));
  CHECK(sources.take_asks(kStart) ==
        std::vector<PayloadAsk>{{1, of_site(0), 0, 4}, {1, of_site(0), 4, 4}});
  CHECK(sources.take_asks(kStart).empty());
  CHECK(sources.expects(of_site(0), 0, 4));
  CHECK_FALSE(sources.expects(of_site(0), 4, 4));
  CHECK_FALSE(sources.arrived(kStart, 1, of_site(0), 4));
  CHECK(sources.take_asks(kStart) == std::vector<PayloadAsk>{{1, of_site(0), 8, 2}});
  CHECK_FALSE(sources.arrived(kStart, 1, of_site(0), 4));
  CHECK_FALSE(sources.expects(of_site(0), 8, 3));
  CHECK(sources.arrived(kStart, 1, of_site(0), 2));
  CHECK_FALSE(sources.has(of_site(0)));  // the digest is not checked yet
  sources.have(of_site(0));
  CHECK(sources.whole() == std::vector<Contribution>{of_site(0)});
}

TEST_CASE("payload sources: the origin's successor pulls from the origin") {
  auto sources = four_sites();
  sources.peer_has(1, {of_site(1)}, {0, 2, 3});
  sources.want(kStart, of_site(1));
  CHECK(sources.take_asks(kStart).at(0).site == 1);
}

TEST_CASE("payload sources: another source continues at the offset") {
  auto sources = four_sites();
  sources.peer_has(0, {of_site(0)}, {1, 2, 3});
  sources.want(kStart, of_site(0));
  (void)sources.take_asks(kStart);
  sources.arrived(kStart, 1, of_site(0), 4);
  SUBCASE("the source is lost") {
    sources.peer_down(1);
    CHECK(sources.take_asks(kStart) ==
          std::vector<PayloadAsk>{{0, of_site(0), 4, 4}, {0, of_site(0), 8, 2}});
  }
  SUBCASE("it brings nothing") {
    CHECK(sources.deadline() == kStart + seconds(5));
    (void)sources.take_asks(kStart + seconds(4));
    const auto asks = sources.take_asks(kStart + seconds(5));
    CHECK(asks.at(0) == PayloadAsk{0, of_site(0), 4, 4});
    // So does the origin; and the relay is tried again, because no other site has it.
    CHECK(sources.take_asks(kStart + seconds(10)).at(0).site == 1);
  }
  SUBCASE("it is silent") {
    sources.set_silent(1, true);
    CHECK(sources.take_asks(kStart) ==
          std::vector<PayloadAsk>{{0, of_site(0), 4, 4}, {0, of_site(0), 8, 2}});
  }
  SUBCASE("it is silent, and so is the origin") {
    sources.set_silent(1, true);
    sources.set_silent(0, true);
    CHECK(sources.take_asks(kStart) == std::vector<PayloadAsk>{{1, of_site(0), 8, 2}});
    CHECK(sources.take_asks(kStart).empty());  // what it was asked for may still come
  }
  SUBCASE("it has brought wrong bytes") {
    sources.corrupt(kStart, of_site(0));
    CHECK(sources.take_asks(kStart).at(0) == PayloadAsk{0, of_site(0), 0, 4});
  }
}

TEST_CASE("payload sources: a silent site is a source once it is heard") {
  auto sources = four_sites();
  sources.peer_has(0, {of_site(0)}, {1, 2, 3});
  sources.set_silent(1, true);
  sources.want(kStart, of_site(0));
  CHECK(sources.take_asks(kStart).at(0).site == 0);
  sources.set_silent(1, false);
  sources.peer_down(0);
  CHECK(sources.take_asks(kStart).at(0).site == 1);
}

TEST_CASE("payload sources: a payload may wait behind others of its source") {
  auto sources = four_sites();
  sources.peer_has(0, {of_site(0)}, {1, 2, 3});
  sources.peer_has(1, {of_site(1)}, {0, 2, 3});
  sources.want(kStart, of_site(0));
  sources.want(kStart, of_site(1));
  (void)sources.take_asks(kStart);
  sources.arrived(kStart + seconds(4), 1, of_site(1), 4);
  CHECK(sources.deadline() == kStart + seconds(9));
  for (const PayloadAsk& ask : sources.take_asks(kStart + seconds(8))) {
    CHECK(ask.payload == of_site(1));  // goes on there; the other one still waits
  }
  CHECK(sources.take_asks(kStart + seconds(9)).at(0) == PayloadAsk{0, of_site(0), 0, 4});
}

TEST_CASE(
    "payload sources: a relay that is cut off from the origin is no source until it has all") {
  auto sources = four_sites();
  sources.peer_has(0, {of_site(0)}, {2, 3});
  sources.peer_has(1, {}, {2, 3});
  sources.want(kStart, of_site(0));
  CHECK(sources.take_asks(kStart).at(0).site == 0);
}

TEST_CASE("payload sources: without the origin, any site that has all is the source") {
  auto sources = four_sites();
  sources.peer_down(0);
  sources.peer_has(1, {}, {2, 3});
  sources.want(kStart, of_site(0));
  CHECK(sources.take_asks(kStart).empty());
  CHECK_FALSE(sources.has_holder(of_site(0)));
  sources.peer_has(3, {of_site(0)}, {});
  CHECK(sources.has_holder(of_site(0)));
  CHECK(sources.take_asks(kStart).at(0).site == 3);
}

TEST_CASE("payload sources: an ask waits until the bytes are here") {
  auto sources = four_sites();
  const PayloadAsk ask{3, of_site(0), 4, 4};
  sources.asked(ask);
  sources.asked(ask);
  CHECK(sources.take_answers().empty());
  sources.want(kStart, of_site(0));
  sources.arrived(kStart, 1, of_site(0), 4);
  CHECK(sources.take_answers().empty());
  sources.arrived(kStart, 1, of_site(0), 4);
  CHECK(sources.take_answers() == std::vector<PayloadAsk>{ask});
  CHECK(sources.take_answers().empty());
  SUBCASE("a lost peer gets no answer") {
    sources.asked({3, of_site(0), 8, 2});
    sources.peer_down(3);
    sources.have(of_site(0));
    CHECK(sources.take_answers().empty());
  }
  SUBCASE("nor does an ask for what is not here and too old") {
    sources.asked({3, of_site(1), 0, 4});
    sources.forget_asks({1, 5});
    sources.have(of_site(1));
    CHECK(sources.take_answers().empty());
  }
}

TEST_CASE("payload sources: the rate of a line, from blocks that come without a pause") {
  auto sources = four_sites(100);
  sources.want(kStart, of_site(0, 1 << 20));
  CHECK(sources.rates().empty());
  for (int block = 0; block <= 100; ++block) {
    sources.arrived(kStart + block * std::chrono::milliseconds(1), 1, of_site(0, 1 << 20), 1000);
  }
  CHECK(sources.rates() == std::map<int, std::uint64_t>{{1, 1000 * 1000}});
}

}  // namespace dlaunch
