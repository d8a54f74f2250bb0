// Memory of dl_alloc(): results have the bits of ordinary memory, also if both are mixed.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dlaunch/ring.hpp>
#include <doctest/doctest.h>

#include "base/clock.h"
#include "process_world.h"
#include "ring/shm/shm_memory.h"
#include "ring/shm/shm_regions.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMost = 50021;  // elements of one part

float value(int rank, std::size_t i, unsigned seed) {
  const auto mixed =
      static_cast<unsigned>(i) * 2654435761u ^ (seed + 77u * static_cast<unsigned>(rank));
  return static_cast<float>(static_cast<int>(mixed % 20011) - 10005) * 1.1f;
}

// A call on buffers of one kind or another.
struct GivenBuffers {
  char* in;
  char* out;
};
struct RegionCase {
  const char* name;
  bool in_place;
  dl_result (*run)(dl_comm* comm, GivenBuffers b, std::size_t count);
  bool in_parts, out_parts;
};
float* floats(char* p) { return reinterpret_cast<float*>(p); }

const RegionCase kCases[] = {
    {"all_reduce", false,
     [](dl_comm* c, GivenBuffers b, std::size_t n) {
       return dl_all_reduce(c, b.in, b.out, n, DL_FLOAT32, DL_SUM);
     },
     false, false},
    {"all_reduce avg bfloat16", true,
     [](dl_comm* c, GivenBuffers b, std::size_t n) {
       return dl_all_reduce(c, b.in, b.in, 2 * n, DL_BFLOAT16, DL_AVG);
     },
     false, false},
    {"all_reduce in place", true,
     [](dl_comm* c, GivenBuffers b, std::size_t n) {
       return dl_all_reduce(c, b.in, b.in, n, DL_FLOAT32, DL_SUM);
     },
     false, false},
    {"reduce", false,
     [](dl_comm* c, GivenBuffers b, std::size_t n) {
       return dl_reduce(c, b.in, b.out, n, DL_FLOAT32, DL_SUM, dl_size(c) - 1);
     },
     false, false},
    {"reduce_scatter", false,
     [](dl_comm* c, GivenBuffers b, std::size_t n) {
       return dl_reduce_scatter(c, b.in, b.out, n, DL_FLOAT32, DL_SUM);
     },
     true, false},
    {"reduce_scatter in place", true,
     [](dl_comm* c, GivenBuffers b, std::size_t n) {
       const std::size_t own = static_cast<std::size_t>(dl_rank(c)) * n;
       return dl_reduce_scatter(c, b.in, floats(b.in) + own, n, DL_FLOAT32, DL_MAX);
     },
     true, false},
    {"all_gather", false,
     [](dl_comm* c, GivenBuffers b, std::size_t n) {
       return dl_all_gather(c, b.in, b.out, n, DL_FLOAT32);
     },
     false, true},
    {"broadcast", true,
     [](dl_comm* c, GivenBuffers b, std::size_t n) {
       return dl_broadcast(c, b.in, n, DL_FLOAT32, dl_size(c) - 1);
     },
     false, false},
    {"gather", false,
     [](dl_comm* c, GivenBuffers b, std::size_t n) {
       return dl_gather(c, b.in, b.out, n, DL_FLOAT32, 0);
     },
     false, true},
    {"scatter", false,
     [](dl_comm* c, GivenBuffers b, std::size_t n) {
       return dl_scatter(c, b.in, b.out, n, DL_FLOAT32, 0);
     },
     true, false},
    {"all_to_all", false,
     [](dl_comm* c, GivenBuffers b, std::size_t n) {
       return dl_all_to_all(c, b.in, b.out, n, DL_FLOAT32);
     },
     true, true},
};

// Fills the input, runs the case and returns what both buffers hold then.
std::vector<float> outcome(dl_comm* comm, const RegionCase& c, GivenBuffers b, std::size_t count,
                           unsigned seed) {
  const std::size_t all = kMost * static_cast<std::size_t>(dl_size(comm));
  for (std::size_t i = 0; i < all; ++i) floats(b.in)[i] = value(dl_rank(comm), i, seed);
  std::memset(b.out, 0x3c, all * sizeof(float));
  std::vector<float> result;
  if (c.run(comm, b, count) != DL_OK) return result;
  // What was lent is the rank's own again.
  result.assign(floats(b.in), floats(b.in) + all);
  result.insert(result.end(), floats(b.out), floats(b.out) + all);
  std::memset(b.in, 0xff, all * sizeof(float));
  return result;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return !a.empty() && a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_CASE("alloc: all collectives have the bits that they have in ordinary memory") {
  for (const int ranks : {2, 3}) {
    CAPTURE(ranks);
    for (const char* transport : kTransports) {
      all_well({ranks, transport}, [&](int rank, dl_comm*& comm) {
        const std::size_t bytes = kMost * static_cast<std::size_t>(ranks) * sizeof(float) + 64;
        void *in = nullptr, *out = nullptr;
        EXPECT(dl_alloc(comm, bytes, &in) == DL_OK);
        EXPECT(dl_alloc(comm, bytes + static_cast<std::size_t>(rank) * 10000, &out) == DL_OK);
        std::vector<char> plain_in(bytes), plain_out(bytes);
        unsigned seed = 1;
        for (const std::size_t count : {std::size_t{1}, std::size_t{4001}, kMost}) {
          for (const RegionCase& c : kCases) {
            const auto expected =
                outcome(comm, c, {plain_in.data(), plain_out.data()}, count, ++seed);
            // All shared, at an odd place; then one rank's input or output ordinary.
            for (const int odd : {-1, 0, ranks - 1}) {
              for (const int how : {0, 1}) {
                GivenBuffers b{static_cast<char*>(in) + 4, static_cast<char*>(out) + 12};
                if (rank == odd && how == 0) b.in = plain_in.data();
                if (rank == odd && how == 1) b.out = plain_out.data();
                if (!same(outcome(comm, c, b, count, seed), expected)) {
                  std::fprintf(stderr, "%s of %zu, odd %d, how %d: ", c.name, count, odd, how);
                  EXPECT(!"the bits differ");
                }
                if (odd < 0) break;
              }
            }
          }
        }
        EXPECT(dl_free(comm, in) == DL_OK);
        EXPECT(dl_free(comm, out) == DL_OK);
        return 0;
      });
    }
  }
}

TEST_CASE("alloc: large buffers in place, and operations in the background") {
  all_well({3, "shm"}, [](int rank, dl_comm*& given) {
    auto comm = dl::Communicator::adopt(std::exchange(given, nullptr));
    constexpr std::size_t kCount = (33 << 20) / sizeof(float);
    auto shared = comm.alloc<float>(kCount), small = comm.alloc<float>(1000);
    std::vector<float> plain(kCount);
    for (std::size_t i = 0; i < kCount; ++i) plain[i] = shared[i] = value(rank, i, 5);
    for (std::size_t i = 0; i < small.size(); ++i) small[i] = static_cast<float>(rank);
    auto first = comm.iall_reduce(shared.span());
    auto second = comm.iall_reduce(small.span());
    auto other = comm.alloc<float>(3);  // after both
    comm.all_reduce(std::span<float>(plain));
    first.wait();
    second.wait();
    const bool equal = std::memcmp(plain.data(), shared.data(), kCount * sizeof(float)) == 0;
    return equal && small[999] == 3 && other[2] == 0 ? 0 : 1;
  });
}

// The function of an operation that is still at work when its rank leaves.
struct WorksMeanwhile {
  std::atomic<bool> begun = false, leaves = false;
  float* memory = nullptr;
  static int combine(const void*, void*, std::size_t, dl_dtype, void* context) {
    if (context == nullptr) return 0;  // on the other rank
    auto& self = *static_cast<WorksMeanwhile*>(context);
    self.begun = true;
    while (!self.leaves) ::usleep(1000);
    ::usleep(50'000);  // dl_finalize() begins
    self.memory[0] = 1;
    return 0;
  }
};

TEST_CASE("alloc: dl_finalize ends the calls in the background before it frees the memory") {
  Gate left;
  all_well({2, "tcp"}, [&](int rank, dl_comm*& comm) {
    constexpr std::size_t kFloats = 400'000;
    void* memory = nullptr;
    EXPECT(dl_alloc(comm, 33 << 20, &memory) == DL_OK);  // free() always unmaps as much
    WorksMeanwhile works;
    works.memory = static_cast<float*>(memory);
    dl_op op = DL_OP_ANY_INT;
    EXPECT(dl_op_create(WorksMeanwhile::combine, 1, rank == 1 ? &works : nullptr, &op) == DL_OK);
    dl_request* request = nullptr;
    EXPECT(dl_iall_reduce(comm, memory, memory, kFloats, DL_FLOAT32, op, &request) == DL_OK);
    if (rank == 0) {
      left.pass();
      return 0;
    }
    while (!works.begun) ::usleep(1000);
    works.leaves = true;
    dl_finalize(std::exchange(comm, nullptr));
    left.open();
    return 0;
  });
}

TEST_CASE("alloc: all ranks learn that one lacks memory, and continue") {
  for (const char* transport : kTransports) {
    all_well({3, transport}, [](int rank, dl_comm*& comm) {
      void* memory = nullptr;
      // More than a process may have, than any machine has, and than there is.
      for (const std::size_t much : {std::size_t{1} << 60, std::size_t{1} << 45, SIZE_MAX}) {
        EXPECT(dl_alloc(comm, rank == 1 ? much : 4096, &memory) == DL_ERR_IO);
        EXPECT(memory == nullptr);
        EXPECT(std::strstr(dl_last_error(comm), "dl_alloc: rank 1: ") != nullptr);
        EXPECT(std::strstr(dl_last_error(comm), "Cannot allocate memory") != nullptr);
      }
      dl::Communicator in_cpp = dl::Communicator::adopt(std::exchange(comm, nullptr));
      try {
        (void)in_cpp.alloc<double>(rank == 1 ? SIZE_MAX / 4 : 8);
        return 2;
      } catch (const dl::Error& e) {
        EXPECT(e.code() == DL_ERR_IO);
      }
      comm = in_cpp.get();
      EXPECT(dl_alloc(comm, 4096, &memory) == DL_OK);
      EXPECT(dl_barrier(comm) == DL_OK);
      comm = nullptr;
      return 0;
    });
  }
}

TEST_CASE("alloc: an error names the rank that has freed the memory") {
  const auto codes = run({2, "shm"}, [](int rank, dl_comm*& comm) {
    void *a = nullptr, *b = nullptr;
    const std::size_t bytes = 1 << 20;
    EXPECT(dl_alloc(comm, bytes, &a) == DL_OK);
    EXPECT(dl_alloc(comm, 0, &b) == DL_OK);
    EXPECT(dl_free(comm, static_cast<char*>(a) + 1) == DL_ERR_INVALID);
    EXPECT(dl_free(comm, nullptr) == DL_OK);
    EXPECT(dl_free(comm, b) == DL_OK);
    std::vector<char> plain(bytes);
    if (rank == 1) {
      EXPECT(dl_free(comm, a) == DL_OK);
      a = plain.data();
    }
    const dl_result done = dl_broadcast(comm, a, bytes, DL_UINT8, 0);
    EXPECT(rank == 1 ? done == DL_ERR_MISMATCH : done != DL_OK);
    if (rank == 1) {
      EXPECT(std::strstr(dl_last_error(comm), "rank 0 gives memory of a dl_alloc() that rank 1"));
    }
    return 0;
  });
  CHECK(codes == std::vector<int>{0, 0});
}

TEST_CASE("alloc: a rank that is killed before all have allocated is named") {
  Gate through;
  const auto codes = run({3, "shm"}, [&](int rank, dl_comm*& comm) {
    void* memory = nullptr;
    EXPECT(dl_alloc(comm, 4096, &memory) == DL_OK);
    through.open();
    if (rank == 2) {
      through.pass(3);
      ::raise(SIGKILL);
    }
    const dl_result done = dl_alloc(comm, 4096, &memory);
    EXPECT(done == DL_ERR_PEER_LOST);
    EXPECT(dl_peer_lost(comm) == 2);
    EXPECT(memory == nullptr);
    return 0;
  });
  CHECK(codes == std::vector<int>{0, 0, 128 + SIGKILL});
}

TEST_CASE("alloc: a rank that ends is named only if the flag has no other error") {
  for (const bool follows : {false, true}) {  // rank 1 ends because rank 2 was lost
    AbortFlag flag;
    ShmExchange exchange(
        0, [](std::size_t, int, TimePoint) { return Result<void>(); },
        [](std::size_t, TimePoint) -> Result<UniqueFd> {
          return Error{.code = Errc::peer_lost, .what = "has left"};
        },
        flag);
    auto own = make_shm_segment("dlring-test", 4096);
    REQUIRE(own);
    std::jthread tells;
    if (follows) {
      tells = std::jthread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        flag.raise({.code = Errc::peer_lost, .what = "rank 2 was lost", .rank = 2});
      });
    }
    const auto done =
        exchange.exchange(std::move(*own), {4096, 4096}, steady_now() + std::chrono::seconds(20));
    REQUIRE_FALSE(done);
    CHECK(done.error().code == Errc::peer_lost);
    CHECK(done.error().rank == (follows ? 2 : 1));
  }
}

TEST_CASE("alloc: a forked child keeps the descriptors that the program has opened") {
  for (const char* transport : kTransports) {
    all_well({2, transport}, [](int rank, dl_comm*& comm) {
      std::vector<UniqueFd> own;
      for (int i = 0; i < 20; ++i) own.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      const pid_t child = start([&] {
        for (const UniqueFd& fd : own) EXPECT(::fcntl(fd.get(), F_GETFD) >= 0);
        return 0;
      });
      EXPECT(end_of(child) == 0);
      EXPECT(dl_barrier(comm) == DL_OK);
      return 0;
    });
  }
}

}  // namespace
}  // namespace dlaunch
