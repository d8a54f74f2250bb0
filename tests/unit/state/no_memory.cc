// Calls of both libraries in a world of one. Each allocation fails once. The call returns
// DL_ERR_IO, and no exception leaves C.
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <new>

#include <dlaunch/elastic.h>

#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

namespace {

thread_local long t_left = -1;  // allocations until the one that fails; < 0: none does

}  // namespace

// Not inlined: the compiler would find new paired with free().
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const memory = t_left >= 0 && t_left-- == 0 ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

struct Job {
  dl_comm* comm = nullptr;
  dl_state* state = nullptr;
  dl_sampler* sampler = nullptr;
  dl_request* requests[2] = {};
  double x[4] = {};
  Job() {
    REQUIRE(dl_init(nullptr, nullptr, &comm) == DL_OK);
    REQUIRE(dl_state_new(comm, nullptr, &state) == DL_OK);
    REQUIRE(dl_state_replicated(state, "x", x, sizeof x) == DL_OK);
    REQUIRE(dl_ibarrier(comm, &requests[0]) == DL_OK);
    REQUIRE(dl_ibarrier(comm, &requests[1]) == DL_OK);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    dl_wait_all(2, requests);
    dl_state_free(state);
    dl_sampler_free(sampler);
    dl_finalize(comm);
  }
};

dl_result one_step(void* steps, int* more) {
  *more = ++*static_cast<int*>(steps) < 3;
  return DL_OK;
}

// Until a call has as many allocations as it wants.
void starve(const std::function<dl_result(Job&)>& call) {
  for (long n = 0;; ++n) {
    CAPTURE(n);
    REQUIRE(n < 1000);
    Job job;
    t_left = n;
    const dl_result result = call(job);
    const bool enough = t_left >= 0;
    t_left = -1;
    CHECK((result == DL_OK || (result == DL_ERR_IO && !enough)));
    if (enough) return;
  }
}

}  // namespace

TEST_CASE("no memory: dl_wait_any") {
  starve([](Job& job) { return dl_wait_any(2, job.requests, nullptr); });
}

TEST_CASE("no memory: elastic state") {
  const char* const name = "one that is too long to need no memory";
  starve([](Job& job) {
    dl_state* state = nullptr;
    const auto made = dl_state_new(job.comm, nullptr, &state);
    dl_state_free(state);
    return made;
  });
  starve([&](Job& job) { return dl_state_replicated(job.state, name, job.x, 8); });
  starve(
      [&](Job& job) { return dl_state_sharded(job.state, name, job.x, 8, 8, nullptr, nullptr); });
  starve([&](Job& job) { return dl_state_snapshots(job.state, name, 1, 1); });
  starve([](Job& job) {
    return dl_state_on_change(
        job.state, [](void*, const dl_change*) {}, nullptr);
  });
  starve([&](Job& job) { return dl_sampler_new(job.state, name, 5, 2, 1, &job.sampler); });
  starve([&](Job& job) {
    const auto made = dl_sampler_new(job.state, name, 5, 2, 1, &job.sampler);
    return made != DL_OK ? made : dl_sampler_set_shards(job.sampler, 2);
  });
  starve([](Job& job) { return dl_state_sync(job.state); });
  starve([](Job& job) {
    int steps = 0;
    return dl_run_elastic(job.state, one_step, &steps);
  });
}
