// Verifier: which rank is corrupt, without ranks. And the hash by which it compares.
#include "ring/call/verifier.h"

#include <algorithm>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "ring/kernels/hash.h"

using namespace dlaunch;

namespace {

constexpr std::size_t kBytes = 100'000;
const std::vector<VerifiedRank> kWho = {{"rank 0 (pid 10 on a)", 0, 0},
                                        {"rank 1 (pid 11 on a)", 1, 0},
                                        {"rank 2 (pid 12 on b)", 2, 2},
                                        {"rank 3 (pid 13 on b)", 3, 2},
                                        {"rank 4 (pid 14 on b)", 4, 2}};

// Ranks that make the same calls. Each has its own bytes of the results.
class Ranks {
 public:
  explicit Ranks(int ranks, VerifyMode mode = VerifyMode::results, Verifier::Limits limits = {})
      : mode_(mode), verifiers_(static_cast<std::size_t>(ranks), Verifier(ranks, limits)) {}

  using Change = std::vector<std::pair<int, std::size_t>>;  // a rank, and a byte that it gets wrong
  void call(const Change& changes, bool passed_on = false, std::size_t bytes = kBytes) {
    ++seq_;
    for (std::size_t r = 0; r < verifiers_.size(); ++r) {
      std::vector<unsigned char> result(bytes);
      for (std::size_t i = 0; i < bytes; ++i) result[i] = static_cast<unsigned char>(seq_ * i);
      for (const auto& [rank, byte] : changes) {
        if (rank == static_cast<int>(r)) result[byte] ^= 16;
      }
      const VerifiedData data{.seq = seq_,
                              .collective = Collective::all_reduce,
                              .passed_on = passed_on,
                              .blocks = blocks_of(bytes)};
      std::vector<std::uint64_t> hashes;
      for (std::size_t i = 0; i < data.blocks.number(); ++i) {
        const Part place = data.blocks.place(i);
        hashes.push_back(hash_bytes(result.data() + place.first, place.count));
      }
      verifiers_[r].add(data, hashes);
    }
  }
  bool agree() const {
    const auto all = digests();
    const auto agree = verifiers_.front().agree(all);
    REQUIRE(agree);
    return *agree;
  }
  std::vector<VerifyDigest> digests() const {
    std::vector<VerifyDigest> all;
    for (const Verifier& verifier : verifiers_) all.push_back(verifier.digest());
    return all;
  }
  std::vector<std::uint64_t> details() const {
    std::vector<std::uint64_t> all;
    for (const Verifier& verifier : verifiers_) {
      const auto own = verifier.details();
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }
  // The verdict, which is the same on all ranks.
  Error verdict(const std::vector<VerifiedRank>& who = kWho) const {
    const auto some = std::span(who).first(verifiers_.size());
    const Error first = verifiers_.front().verdict(details(), some);
    for (const Verifier& verifier : verifiers_) {
      const Error own = verifier.verdict(details(), some);
      CHECK(own.code == Errc::corrupt);
      CHECK(own.rank == first.rank);
      CHECK(own.what == first.what);
    }
    return first;
  }
  Verifier& operator[](std::size_t rank) { return verifiers_[rank]; }

 private:
  const VerifyMode mode_;
  std::uint64_t seq_ = 0;
  std::vector<Verifier> verifiers_;
};

bool has(const Error& error, const char* part) {
  return error.what.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("verifier: equal results agree, and any rank with another bit is named") {
  for (int ranks = 3; ranks <= 5; ++ranks) {
    for (int odd = 0; odd < ranks; ++odd) {
      Ranks world(ranks);
      for (int i = 0; i < 5; ++i) world.call({});
      CHECK(world.agree());
      world.call({{odd, 70'000}});
      world.call({});
      CHECK_FALSE(world.agree());
      const Error error = world.verdict();
      CHECK(error.rank == odd);
      CHECK(has(error, kWho[static_cast<std::size_t>(odd)].name.c_str()));
      CHECK(has(error, "all_reduce #6: "));
      CHECK(has(error, "a block of the bytes 69632 to 73727 of 100000"));
    }
  }
}

TEST_CASE("verifier: the first call with a difference counts, with all that differ in it") {
  Ranks world(5);
  world.call({});
  world.call({{3, 5}, {1, 90'000}});
  world.call({{4, 5}});
  const Error error = world.verdict();
  CHECK(error.rank == 1);
  CHECK(has(error, "all_reduce #2: ranks 1,3 hold other results"));
  CHECK(has(error, "2 blocks of the bytes 0 to 90111"));
}

TEST_CASE("verifier: without a majority no rank is named") {
  Ranks two(2);
  two.call({{1, 5}});
  CHECK_FALSE(two.agree());
  CHECK(two.verdict().rank == -1);
  CHECK(has(two.verdict(), "ranks 0-1 hold different results"));
  Ranks four(4);
  four.call({{1, 5}, {2, 5}});
  CHECK(four.verdict().rank == -1);
  CHECK(has(four.verdict(), "ranks 0-3"));
}

TEST_CASE("verifier: ranks that pass results on are not named, but perhaps their host") {
  Ranks world(5);
  world.call({{1, 5}}, true);
  CHECK(world.verdict().rank == -1);
  CHECK(has(world.verdict(), "rank 1 (pid 11 on a) holds other results"));
  CHECK(has(world.verdict(),
            "the host of rank 1 (pid 11 on a), or its connections, has corrupt data"));
  Ranks over_hosts(5);
  over_hosts.call({{1, 5}, {3, 5}}, true);
  CHECK(over_hosts.verdict().rank == -1);
  CHECK(has(over_hosts.verdict(), "another rank may have changed them"));
  Ranks one_host(3);
  one_host.call({{1, 5}}, true);
  auto who = kWho;
  who[2].host = 0;
  CHECK(one_host.verdict(who).rank == -1);
  CHECK(has(one_host.verdict(who), "another rank may have changed them"));
}

TEST_CASE("verifier: the ranks of a group have their numbers in the job") {
  auto who = kWho;
  for (int r = 0; r < 5; ++r) who[static_cast<std::size_t>(r)].in_job = 10 + 2 * r;
  Ranks group(5);
  group.call({{1, 5}, {3, 5}});
  CHECK(group.verdict(who).rank == 1);
  CHECK(has(group.verdict(who), "ranks 12,16 hold other results"));
  Ranks two(2);
  two.call({{1, 5}});
  CHECK(has(two.verdict(who), "ranks 10,12 hold different results"));
}

TEST_CASE("verifier: hashes that change on their way are no verdict about a rank") {
  Ranks world(3);
  world.call({});
  auto digests = world.digests();
  digests[1].hash ^= 4;
  const auto agree = world[0].agree(digests);
  REQUIRE_FALSE(agree);
  CHECK(agree.error().code == Errc::corrupt);
  CHECK(agree.error().rank == -1);
  world.call({{2, 5}});
  auto details = world.details();
  details[3] ^= 1;
  const Error error = world[0].verdict(details, std::span(kWho).first(3));
  CHECK(error.code == Errc::corrupt);
  CHECK(error.rank == -1);
  CHECK(has(error, "hashes"));
}

TEST_CASE("verifier: ranks compare after so many calls or bytes, and begin again") {
  Ranks world(2, VerifyMode::results, {.calls = 3, .bytes = 1000});
  CHECK_FALSE(world[0].holds_any());
  world.call({}, false, 10);
  world.call({}, false, 0);
  CHECK(world[0].holds_any());
  CHECK_FALSE(world[0].due());
  world.call({}, false, 10);
  CHECK(world[0].due());
  const auto before = world[0].digest();
  world[0].clear();
  CHECK_FALSE(world[0].due());
  CHECK_FALSE(world[0].holds_any());
  CHECK(world[0].digest() != before);
  world.call({}, false, 1000);
  CHECK(world[0].due());
}

TEST_CASE("verifier: blocks cover all bytes") {
  for (const std::size_t bytes : {0UL, 1UL, 4096UL, 4097UL, 65'536UL, 1'000'003UL, 100UL << 20}) {
    const HashedBlocks all = blocks_of(bytes);
    std::size_t at = 0;
    CHECK(all.number() <= 64);
    for (std::size_t i = 0; i < all.number(); ++i) {
      CHECK(all.place(i).first == at);
      at += all.place(i).count;
    }
    CHECK(at == bytes);
  }
}

TEST_CASE("verifier: a sample has each call of a pattern that repeats now and then") {
  const std::uint64_t calls = 64'000;
  std::uint64_t all = 0;
  for (std::uint64_t seq = 1; seq <= calls; ++seq) {
    all += looks_at(VerifyMode::sample, seq);
    CHECK_FALSE(looks_at(VerifyMode::off, seq));
    CHECK((looks_at(VerifyMode::results, seq) && looks_at(VerifyMode::full, seq)));
  }
  CHECK(all > calls / kSampled * 9 / 10);
  CHECK(all < calls / kSampled * 11 / 10);
  for (const std::uint64_t step : {16, 32, 48}) {
    for (std::uint64_t first = 1; first <= step; ++first) {
      std::uint64_t sampled = 0;
      for (std::uint64_t seq = first; seq <= calls; seq += step) {
        sampled += looks_at(VerifyMode::sample, seq);
      }
      CHECK(sampled > 0);
    }
  }
}

// -- The hash

TEST_CASE("hash: it is XXH3, on every machine, at each length and place") {
  CHECK(hash_bytes(nullptr, 0) == 0x2d06800538d394c2);
  std::mt19937_64 random(1);
  std::vector<unsigned char> data(5000);
  for (auto& byte : data) byte = static_cast<unsigned char>(random());
  std::set<std::uint64_t> hashes;
  std::size_t made = 0;
  for (std::size_t bytes = 1; bytes <= 4100; bytes += bytes < 300 ? 1 : 61) {
    for (const std::size_t first : {0UL, 1UL, 8UL, 60UL}) {
      const std::vector<unsigned char> copy(
          data.begin() + static_cast<std::ptrdiff_t>(first),
          data.begin() + static_cast<std::ptrdiff_t>(first + bytes));
      const std::uint64_t hash = hash_bytes(data.data() + first, bytes, first);
      CHECK(hash == hash_bytes(copy.data(), bytes, first));
      hashes.insert(hash);
      ++made;
    }
  }
  CHECK(hashes.size() == made);  // though many of them are prefixes of each other
}

TEST_CASE("hash: every flip of a bit changes it, and every exchange of two words") {
  std::mt19937_64 random(2);
  for (const std::size_t words : {1UL, 8UL, 9UL, 130UL, 300UL}) {
    for (const bool zeros : {false, true}) {
      std::vector<std::uint64_t> data(words);
      for (auto& word : data) word = zeros ? 0 : random();
      const auto hash = [&] { return hash_bytes(data.data(), words * sizeof(std::uint64_t)); };
      const std::uint64_t before = hash();
      std::size_t unseen = 0;
      for (std::size_t i = 0; i < words; ++i) {
        for (int bit = 0; bit < 64; ++bit) {
          data[i] ^= std::uint64_t{1} << bit;
          unseen += hash() == before;
          data[i] ^= std::uint64_t{1} << bit;
        }
        // Sign bits of two numbers, which a plain sum would not see.
        if (i > 0) {
          data[i] ^= std::uint64_t{1} << 63;
          data[i - 1] ^= std::uint64_t{1} << 63;
          unseen += hash() == before;
          data[i] ^= std::uint64_t{1} << 63;
          data[i - 1] ^= std::uint64_t{1} << 63;
        }
        for (std::size_t k = 0; k < i && !zeros; ++k) {
          std::swap(data[i], data[k]);
          unseen += hash() == before;
          std::swap(data[i], data[k]);
        }
      }
      CHECK(unseen == 0);
      CHECK(hash() == before);
    }
  }
}
