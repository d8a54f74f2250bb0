// Compares every collective, over both planes, with its definition. The definition computes the
// result of each rank, element by element, from the inputs of all ranks.
#include <algorithm>
#include <cstring>
#include <random>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "ring/kernels/reduce.h"
#include "shm_world.h"
#include "stream_world.h"
#include "tests/unit/sanitized.h"

namespace dlaunch {
namespace {

using Data = std::vector<char>;

struct CollectiveCase {
  Collective collective = Collective::all_reduce;
  std::size_t count = 0;
  dl_dtype dtype = DL_INT32;
  dl_op op = DL_SUM;
  int root = -1;
  bool in_place = false;
  std::vector<std::size_t> counts = {};   // of the ranks' parts; empty: all `count`
  std::vector<std::size_t> tensors = {};  // lengths; empty: one buffer
  // An all_to_all of parts that differ: of `pairs` numbers, how much a rank gives each other one.
  std::vector<std::vector<std::size_t>> pairs = {};
};

std::size_t longest_of(const CollectiveCase& c) {
  std::size_t longest = 0;
  for (const auto& row : c.pairs)
    longest = std::max(longest, *std::max_element(row.begin(), row.end()));
  return longest;
}

std::string describe(const CollectiveCase& c, int rank) {
  return fmt::format("rank {}: {} count {} {} {} root {} in place {} counts {} tensors {}", rank,
                     collective_name(c.collective), c.count, dtype_name(c.dtype), op_name(c.op),
                     c.root, c.in_place, c.counts.size(), c.tensors.size());
}

// One case on one world size: the inputs, and by rank what must come out.
class Expectation {
 public:
  Expectation(const CollectiveCase& c, int ranks, unsigned seed) : case_(c), ranks_(ranks) {
    std::mt19937_64 random(seed);
    for (int r = 0; r < ranks; ++r) {
      Data input(given(r) * element() + 8);
      for (std::size_t i = 0; i + 8 <= input.size(); i += 8) {
        const std::uint64_t word = random();
        std::memcpy(input.data() + i, &word, sizeof word);
      }
      input.resize(input.size() - 8);
      inputs_.push_back(std::move(input));
    }
  }

  const Data& input(int rank) const { return inputs_[static_cast<std::size_t>(rank)]; }
  std::size_t element() const { return dtype_bytes(case_.dtype); }
  std::size_t part(int r) const {
    return case_.counts.empty() ? case_.count : case_.counts[static_cast<std::size_t>(r)];
  }
  // Data of the parts before rank r's.
  std::size_t before(int r) const {
    std::size_t sum = 0;
    for (int i = 0; i < r; ++i) sum += part(i);
    return sum * element();
  }

  // What two ranks give each other begins here in the giver's input.
  Part given_to(int giver, int taker) const {
    const auto& row = case_.pairs[static_cast<std::size_t>(giver)];
    return parts_of(row.data(), ranks_)[static_cast<std::size_t>(taker)];
  }
  Splits splits(int rank) const {
    Splits all{.rank = rank, .given = {}, .taken = {}, .from = {}, .longest = longest_of(case_)};
    std::vector<std::size_t> taken;
    for (int r = 0; r < ranks_; ++r) {
      all.given.push_back(given_to(rank, r));
      all.from.push_back(given_to(r, rank).first);
      taken.push_back(given_to(r, rank).count);
    }
    all.taken = parts_of(taken.data(), ranks_);
    return all;
  }

  Data output(int rank) const {
    switch (case_.collective) {
      case Collective::all_reduce:
        return reduced();
      case Collective::reduce:
        return rank == case_.root ? reduced() : Data();
      case Collective::reduce_scatter:
        return piece(reduced(), rank);
      case Collective::all_gather:
        return joined();
      case Collective::gather:
        return rank == case_.root ? joined() : Data();
      case Collective::broadcast:
        return input(case_.root);
      case Collective::scatter:
        return piece(input(case_.root), rank);
      case Collective::all_to_all: {
        Data all;
        for (int r = 0; r < ranks_; ++r) {
          append(all,
                 case_.pairs.empty() ? piece(input(r), rank) : cut(input(r), given_to(r, rank)));
        }
        return all;
      }
      default:  // barrier, and those that planes never see
        break;
    }
    return {};
  }

 private:
  std::size_t given(int rank) const {
    const std::size_t whole = before(ranks_) / element();
    switch (case_.collective) {
      case Collective::all_to_all:
        if (!case_.pairs.empty()) {
          const Part last = given_to(rank, ranks_ - 1);
          return last.first + last.count;
        }
        return whole;
      case Collective::reduce_scatter:
        return whole;
      case Collective::scatter:
        return rank == case_.root ? whole : 0;
      case Collective::barrier:
        return 0;
      default:
        return part(rank);
    }
  }
  Data reduced() const {
    std::vector<const void*> operands;
    for (const auto& input : inputs_) operands.push_back(input.data());
    Data out(inputs_[0].size());
    reduce(operands, out.data(), out.size() / element(), case_.dtype, case_.op, ranks_);
    return out;
  }
  Data piece(const Data& whole, int r) const {
    return cut(whole, {before(r) / element(), part(r)});
  }
  Data cut(const Data& whole, const Part& part) const {
    const auto at = [&](std::size_t first) {
      return whole.begin() + static_cast<std::ptrdiff_t>(first * element());
    };
    return Data(at(part.first), at(part.first + part.count));
  }
  Data joined() const {
    Data all;
    for (const auto& input : inputs_) append(all, input);
    return all;
  }
  static void append(Data& to, const Data& more) { to.insert(to.end(), more.begin(), more.end()); }

  const CollectiveCase case_;
  const int ranks_;
  std::vector<Data> inputs_;
};

// A rank's buffers, at odd addresses, with bytes around them that must not change.
class CaseBuffers {
 public:
  CaseBuffers(const CollectiveCase& c, const Expectation& e, int rank)
      : input_(e.input(rank)), want_(e.output(rank)), in_(guarded(input_)), out_(guarded(want_)) {
    std::fill(out_.begin() + kGuard, out_.end() - kGuard, char{0x11});
    call.collective = c.collective;
    call.count = c.counts.empty() ? c.count : c.counts[static_cast<std::size_t>(rank)];
    call.counts = c.counts.empty() ? nullptr : c.counts.data();
    call.dtype = c.dtype;
    call.op = c.op;
    call.root = c.root;
    call.deadline = steady_now() + std::chrono::seconds(60);
    call.in = input_.empty() ? nullptr : in_.data() + kGuard;
    call.out = want_.empty() ? nullptr : out_.data() + kGuard;
    if (!c.pairs.empty()) {
      splits_ = e.splits(rank);
      call.splits = &splits_;
    }
    if (c.in_place || c.collective == Collective::broadcast) put_in_place(e, rank);
    for (std::size_t i = 0, at = 0; i < c.tensors.size(); at += c.tensors[i++]) {
      list_.in.push_back(static_cast<const char*>(call.in) + at * e.element());
      list_.out.push_back(static_cast<char*>(call.out) + at * e.element());
      list_.ends.push_back(at + c.tensors[i]);
    }
    if (!c.tensors.empty()) call.list = &list_;
  }

  // "" or what is wrong.
  std::string judge() const {
    if (!want_.empty() && std::memcmp(call.out, want_.data(), want_.size()) != 0) {
      return "wrong result";
    }
    const bool separate = !in_place_ && !input_.empty();
    if (separate && std::memcmp(call.in, input_.data(), input_.size()) != 0) return "input changed";
    for (const Data* buffer : {&in_, &out_}) {
      for (std::size_t i = 0; i < kGuard; ++i) {
        if ((*buffer)[i] != 0x77 || buffer->end()[-1 - static_cast<std::ptrdiff_t>(i)] != 0x77) {
          return "written beside the buffer";
        }
      }
    }
    return "";
  }

  Call call;

 private:
  static constexpr std::size_t kGuard = 17;
  static Data guarded(const Data& content) {
    Data bytes(content.size() + 2 * kGuard, 0x77);
    std::copy(content.begin(), content.end(), bytes.begin() + kGuard);
    return bytes;
  }
  // The smaller of the two lies in the larger one.
  void put_in_place(const Expectation& e, int rank) {
    if (input_.empty() || want_.empty()) return;
    in_place_ = true;
    const bool gathers = want_.size() > input_.size();
    if (gathers) {
      char* const own = static_cast<char*>(call.out) + e.before(rank);
      std::memcpy(own, input_.data(), input_.size());
      call.in = own;
    } else {
      const bool scatters = input_.size() > want_.size();
      call.out = in_.data() + kGuard + (scatters ? e.before(rank) : 0);
    }
  }

  const Data input_, want_;
  Data in_, out_;
  TensorList list_;
  Splits splits_;
  bool in_place_ = false;
};

// Either world runs each(work) on all ranks at once.
class AnyWorld {
 public:
  AnyWorld(int ranks, bool shm) {
    if (shm) {
      shm_ = std::make_unique<ShmWorld>(ranks, ranks > 3 ? 1 : 64, true);
    } else {
      stream_ = std::make_unique<StreamWorld>(ranks);
    }
    ranks_ = ranks;
  }

  void check(const CollectiveCase& c) {
    ++seq_;
    const Expectation expectation(c, ranks_, static_cast<unsigned>(seq_));
    std::vector<std::string> said(static_cast<std::size_t>(ranks_));
    const auto work = [&](int rank) {
      CaseBuffers buffers(c, expectation, rank);
      buffers.call.seq = seq_;
      Plane& plane = shm_ ? shm_->plane(rank) : *stream_->ends[static_cast<std::size_t>(rank)];
      const auto done = plane.run(buffers.call);
      said[static_cast<std::size_t>(rank)] = done ? buffers.judge() : done.error().what;
      return 0;
    };
    if (shm_) {
      shm_->each([&](int rank) { work(rank); });
    } else {
      stream_->each<int>(work);
    }
    for (int r = 0; r < ranks_; ++r) {
      INFO(describe(c, r));
      REQUIRE(said[static_cast<std::size_t>(r)] == "");
    }
  }

 private:
  std::unique_ptr<ShmWorld> shm_;
  std::unique_ptr<StreamWorld> stream_;
  int ranks_ = 0;
  std::uint64_t seq_ = 0;
};

// Thread sanitizer finds in three ranks what there is to find, in a tenth of the time.
#if defined(__SANITIZE_THREAD__)
constexpr int kWorlds[] = {2, 3};
#else
constexpr int kWorlds[] = {1, 2, 3, 5, 18};
#endif
constexpr Collective kAll[] = {
    Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
    Collective::broadcast,  Collective::barrier,        Collective::reduce,
    Collective::gather,     Collective::scatter,        Collective::all_to_all};

TEST_CASE("collectives: each is right at every size band, root and world") {
  for (const bool shm : {true, false}) {
    for (const int ranks : kWorlds) {
      if (ranks == 1 && shm) continue;
      AnyWorld world(ranks, shm);
      for (const Collective collective : kAll) {
        const auto& traits = traits_of(collective);
        for (const std::size_t count : {0, 1, 9, 700, 5000, 40'000, 150'001}) {
          if (ranks > 5 && count > (kSanitized ? 700 : 40'000)) continue;
          if (kSanitized && ranks > 3 && count > 40'000) continue;
          CollectiveCase c{.collective = collective, .count = count};
          for (const bool in_place : {false, true}) {
            if (in_place && collective == Collective::all_to_all) continue;
            c.in_place = in_place;
            c.root = traits.rooted ? static_cast<int>((count + in_place) % ranks) : -1;
            world.check(c);
          }
        }
      }
    }
  }
}

TEST_CASE("collectives: a reduce rounds like an all_reduce, in every dtype and op") {
  for (const bool shm : {true, false}) {
    AnyWorld world(3, shm);
    for (int dtype = DL_INT8; dtype <= DL_FLOAT64; ++dtype) {
      for (int op = DL_SUM; op <= DL_BXOR; ++op) {
        CollectiveCase c{.collective = Collective::reduce,
                         .dtype = static_cast<dl_dtype>(dtype),
                         .op = static_cast<dl_op>(op)};
        if (!reducible(c.dtype, c.op)) continue;
        for (const std::size_t count : {3, 2000, 70'001}) {
          c.count = count;
          c.root = static_cast<int>(count % 3);
          world.check(c);
        }
      }
    }
  }
}

TEST_CASE("collectives: parts of different length, some of them empty") {
  for (const bool shm : {true, false}) {
    for (const int ranks : kWorlds) {
      if (ranks == 1) continue;
      AnyWorld world(ranks, shm);
      for (const std::size_t scale : {1, 40, 9000}) {
        CollectiveCase c;
        for (int r = 0; r < ranks; ++r) c.counts.push_back(scale * static_cast<std::size_t>(r % 4));
        for (const bool in_place : {false, true}) {
          c.in_place = in_place;
          c.collective = Collective::all_gather;
          c.root = -1;
          world.check(c);
          c.collective = Collective::gather;
          c.root = static_cast<int>(scale) % ranks;
          world.check(c);
          c.collective = Collective::scatter;
          world.check(c);
          c.collective = Collective::reduce_scatter;
          c.root = -1;
          world.check(c);
        }
        std::reverse(c.counts.begin(), c.counts.end());
        world.check(c);
      }
    }
  }
}

TEST_CASE("collectives: each pair of ranks exchanges as much as it likes") {
  std::mt19937 random(9);
  for (const bool shm : {true, false}) {
    for (const int ranks : kWorlds) {
      if (ranks == 1) continue;
      AnyWorld world(ranks, shm);
      for (const std::size_t longest : {0, 1, 3, 60, 3000, 90'000}) {
        if (ranks > 5 && longest > 3000) continue;
        CollectiveCase c{.collective = Collective::all_to_all, .dtype = DL_FLOAT64};
        const auto n = static_cast<std::size_t>(ranks);
        c.pairs.resize(n);
        for (auto& row : c.pairs) {
          for (std::size_t r = 0; r < n; ++r)
            row.push_back(random() % 4 == 0 ? 0 : random() % (longest + 1));
        }
        world.check(c);
        // One rank gives, and one takes, all there is.
        for (auto& row : c.pairs) std::fill(row.begin(), row.end(), 0);
        c.pairs[n - 1][0] = longest;
        world.check(c);
      }
    }
  }
}

TEST_CASE("collectives: a list of tensors is reduced and broadcast as one buffer") {
  std::mt19937 random(5);
  for (const bool shm : {true, false}) {
    for (const int ranks : {2, 3, 5}) {
      AnyWorld world(ranks, shm);
      for (const std::size_t longest : {1, 3, 50, 3000, 60'000}) {
        for (const bool in_place : {false, true}) {
          CollectiveCase c{.dtype = DL_FLOAT16, .in_place = in_place};
          for (int i = 0; i < 7; ++i) c.tensors.push_back(1 + random() % longest);
          for (const auto n : c.tensors) c.count += n;
          world.check(c);
          c.collective = Collective::broadcast;
          c.root = ranks - 1;
          world.check(c);
        }
      }
    }
  }
}

}  // namespace
}  // namespace dlaunch
