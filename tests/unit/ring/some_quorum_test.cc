#include "ring/call/some_quorum.h"

#include <map>
#include <random>

#include <doctest/doctest.h>

namespace dlaunch {
namespace {

struct SomeCrowdTerms {
  std::uint32_t need = 2, max_behind = 4;
};

// Ranks that come to the calls one after the other.
class SomeCrowd {
 public:
  SomeCrowd(int ranks, SomeCrowdTerms terms)
      : quorum_(ranks), terms_(terms), reached_(static_cast<std::size_t>(ranks)) {}

  // The rank comes to its next call.
  std::optional<SomeDecision> come(int rank, std::uint32_t contributions = 1, bool waited = true) {
    return say(rank, ++reached_[static_cast<std::size_t>(rank)], contributions, waited);
  }
  // It says again, in its last call, that it has waited.
  std::optional<SomeDecision> wait(int rank) {
    return say(rank, reached_[static_cast<std::size_t>(rank)], 1, true);
  }
  Result<std::optional<SomeDecision>> arrive(int rank, const SomeArrival& arrival) {
    return quorum_.arrive(rank, arrival);
  }

 private:
  std::optional<SomeDecision> say(int rank, std::uint64_t number, std::uint32_t contributions,
                                  bool waited) {
    const auto decided = quorum_.arrive(rank, {.number = number,
                                               .contributions = contributions,
                                               .need = terms_.need,
                                               .max_behind = terms_.max_behind,
                                               .waited = waited});
    REQUIRE(decided);
    return *decided;
  }

  SomeQuorum quorum_;
  SomeCrowdTerms terms_;
  std::vector<std::uint64_t> reached_;
};

}  // namespace

TEST_CASE("some quorum: without a wait the first ranks are in, and a later one is late") {
  SomeCrowd crowd(3, {.need = 2});
  CHECK_FALSE(crowd.come(2));
  const auto decided = crowd.come(0);
  REQUIRE(decided);
  CHECK(decided->number == 1);
  CHECK(decided->given == SomeGiven{1, 0, 1});
  CHECK_FALSE(crowd.come(1));  // late
  CHECK_FALSE(crowd.come(1));
  const auto next = crowd.come(2, 3);
  REQUIRE(next);
  CHECK(next->number == 2);
  CHECK(next->given == SomeGiven{0, 1, 3});
}

TEST_CASE("some quorum: ranks wait until one of them has waited for its time, or all have come") {
  SomeCrowd crowd(3, {.need = 1});
  CHECK_FALSE(crowd.come(0, 1, false));
  CHECK_FALSE(crowd.come(1, 1, false));
  SUBCASE("a rank has waited") {
    const auto decided = crowd.wait(0);
    REQUIRE(decided);
    CHECK(decided->given == SomeGiven{1, 1, 0});
    CHECK_FALSE(crowd.wait(1));  // it had waited before it heard of the decision
  }
  SUBCASE("all have come") {
    const auto decided = crowd.come(2, 1, false);
    REQUIRE(decided);
    CHECK(decided->given == SomeGiven{1, 1, 1});
  }
}

TEST_CASE("some quorum: a wait in one call does not count in the next") {
  SomeCrowd crowd(2, {.need = 1});
  CHECK_FALSE(crowd.come(0, 1, false));
  CHECK(crowd.wait(0));
  CHECK_FALSE(crowd.come(0, 1, false));
  CHECK_FALSE(crowd.come(1, 1, false));  // late in the first one
  CHECK(crowd.wait(0));
}

TEST_CASE("some quorum: ranks without contributions do not count, unless all have come") {
  SomeCrowd crowd(3, {.need = 2});
  CHECK_FALSE(crowd.come(0, 0));
  CHECK_FALSE(crowd.come(1, 0));
  const auto decided = crowd.come(2, 0);
  REQUIRE(decided);
  CHECK(decided->given == SomeGiven{0, 0, 0});
}

TEST_CASE("some quorum: no call is decided while a rank is too far behind") {
  SomeCrowd crowd(2, {.need = 1, .max_behind = 2});
  CHECK(crowd.come(0));
  CHECK(crowd.come(0));
  CHECK_FALSE(crowd.come(0));  // rank 1 has made no call yet
  const auto decided = crowd.come(1);
  REQUIRE(decided);
  CHECK(decided->number == 3);
  CHECK(decided->given == SomeGiven{1, 0});
}

TEST_CASE("some quorum: with max_behind 0 every call waits for all") {
  SomeCrowd crowd(2, {.need = 1, .max_behind = 0});
  for (int call = 0; call < 3; ++call) {
    CHECK_FALSE(crowd.come(0));
    CHECK(crowd.come(1));
  }
}

TEST_CASE("some quorum: a single rank decides at once") {
  SomeCrowd crowd(1, {.need = 1, .max_behind = 0});
  CHECK(crowd.come(0, 1, false));
  CHECK(crowd.come(0, 0, false));
}

TEST_CASE("some quorum: a call that differs from the first rank's is a mismatch, also when late") {
  SomeQuorum quorum(2);
  const CallSignature one{.count = 4, .packed = 7}, other{.count = 5, .packed = 7};
  const auto at = [](std::uint64_t number, const CallSignature& call) {
    return SomeArrival{.number = number,
                       .contributions = 1,
                       .need = 1,
                       .max_behind = 9,
                       .waited = true,
                       .call = call};
  };
  CHECK(quorum.arrive(0, at(1, one)));
  CHECK(quorum.arrive(0, at(2, other)));
  CHECK(quorum.arrive(1, at(1, one)));
  const auto differs = quorum.arrive(1, at(2, one));
  REQUIRE_FALSE(differs);
  CHECK(differs.error().code == Errc::mismatch);
  CHECK(differs.error().rank == 1);
}

TEST_CASE("some quorum: a rank that cannot be there is refused") {
  for (const std::uint64_t number : {0UL, 2UL, 77UL}) {
    SomeQuorum quorum(2);
    const auto refused = quorum.arrive(1, {.number = number, .contributions = 1});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::protocol);
    CHECK(refused.error().rank == 1);
  }
  SomeQuorum quorum(2);
  CHECK(quorum.arrive(1, {.number = 1, .contributions = 1, .need = 2}));
  CHECK_FALSE(quorum.arrive(1, {.number = 1, .contributions = 1, .need = 2}));  // twice
}

TEST_CASE("some quorum: terms that no program can give are refused") {
  const SomeArrival good{.number = 1, .contributions = most_contributions(2), .need = 2};
  const auto with = [&](auto change) {
    SomeArrival arrival = good;
    change(arrival);
    return arrival;
  };
  for (const SomeArrival& bad :
       {with([](auto& a) { a.need = 0; }), with([](auto& a) { a.need = 3; }),
        with([](auto& a) { ++a.contributions; }), with([](auto& a) { a.max_behind = 1u << 31; })}) {
    SomeQuorum quorum(2);
    const auto refused = quorum.arrive(1, bad);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::protocol);
    CHECK(refused.error().rank == 1);
    CHECK(quorum.arrive(1, good));
  }
}

// Whatever the order in which ranks come: calls are decided one after the other, each with those
// that had come, and no rank gets further ahead of another than it may.
TEST_CASE("some quorum: what holds in any order of arrivals") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const int ranks = 1 + static_cast<int>(random() % 6);
    const SomeCrowdTerms terms{
        .need = 1 + static_cast<std::uint32_t>(random()) % static_cast<std::uint32_t>(ranks),
        .max_behind = static_cast<std::uint32_t>(random() % 4)};
    SomeCrowd crowd(ranks, terms);
    std::vector<std::uint64_t> made(static_cast<std::size_t>(ranks));
    std::uint64_t decided = 0;
    std::map<int, std::uint32_t> inside;  // the open call
    int refused = 0;
    while (decided < 40 && refused < 1000) {
      const auto r = static_cast<std::size_t>(random() % static_cast<unsigned>(ranks));
      if (made[r] > decided) {  // it waits for the decision
        ++refused;
        continue;
      }
      refused = 0;
      const std::uint32_t gives = random() % 3;
      if (++made[r] == decided + 1) inside[static_cast<int>(r)] = gives;
      const auto decision = crowd.come(static_cast<int>(r), gives);
      if (!decision) continue;
      CHECK(decision->number == ++decided);
      SomeGiven expected(static_cast<std::size_t>(ranks));
      std::uint32_t givers = 0;
      for (const auto& [of, given] : inside) {
        expected[static_cast<std::size_t>(of)] = given;
        givers += given > 0;
      }
      CHECK(decision->given == expected);
      CHECK((givers >= terms.need || inside.size() == static_cast<std::size_t>(ranks)));
      for (const std::uint64_t of_rank : made) CHECK(of_rank + terms.max_behind >= decided);
      inside.clear();
    }
    CHECK(decided == 40);  // and it never gets stuck
  }
}

TEST_CASE("some quorum: arrivals and decisions are read as they were written") {
  const SomeArrival arrival{.number = 9,
                            .contributions = 3,
                            .need = 7,
                            .max_behind = 1u << 31,
                            .waited = true,
                            .call = {.count = std::uint64_t{1} << 40, .packed = 5, .seq = 6}};
  const std::string text = encode(arrival);
  CHECK(text.size() == kArrivalBytes);
  CHECK(arrival_in(text, 9) == arrival);
  CHECK_FALSE(arrival_in(text + "x", 9));
  CHECK_FALSE(arrival_in(text.substr(1), 9));
  std::string odd = text;
  odd[12] = 2;
  CHECK_FALSE(arrival_in(odd, 9));
  const SomeGiven given{0, 1, (1u << 31) - 2};
  CHECK(given_in(encode(given), 3) == given);
  CHECK_FALSE(given_in(encode(given), 2));
  CHECK_FALSE(given_in(encode(given), 4));
  CHECK_FALSE(given_in(encode(SomeGiven{0, 2, (1u << 31) - 2}), 3));  // the sum is no int
  CHECK_FALSE(given_in(encode(SomeGiven{~0u, 1}), 2));
}

}  // namespace dlaunch
