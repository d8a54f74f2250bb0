// Local training with an outer optimizer: what is done when, its arithmetic, and ranks that train.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include <dlaunch/outer.hpp>

#include "ring/compress/outer_plan.h"
#include "ring/compress/outer_state.h"
#include "tests/unit/ring/process_world.h"
#include "tests/unit/sanitized.h"

using namespace dlaunch;

namespace {

// "4:0" for each step in which something is due: the step, "s" and "a" with their fragments.
std::string turns_of(const OuterPlan& plan, std::uint64_t steps, std::uint64_t finished = 0) {
  std::string text;
  for (std::uint64_t step = finished + 1; step <= steps; ++step) {
    const OuterDue due = due_at(plan, step, finished);
    if (due == OuterDue{}) continue;
    text += std::to_string(step) + ":";
    if (due.apply >= 0) text += "a" + std::to_string(due.apply);
    if (due.send >= 0) text += "s" + std::to_string(due.send);
    text += " ";
  }
  return text;
}

// A problem for each rank: parameters move towards its own target, by data that depend on the step.
struct Trainee {
  std::vector<float> w = std::vector<float>(700, 1.0F), bias = std::vector<float>(3, -2.0F);
  void inner_step(int rank, std::uint64_t step) {
    std::mt19937 random(static_cast<unsigned>(rank * 7919) + static_cast<unsigned>(step));
    const auto move = [&](float& x, float target) {
      const float noise = static_cast<float>(random() % 1000) / 1000 - 0.5F;
      x -= 0.05F * (x - target + noise);
    };
    for (std::size_t i = 0; i < w.size(); ++i) move(w[i], static_cast<float>(i % 7 + 1) * rank);
    for (float& x : bias) move(x, 4);
  }
  std::vector<std::span<float>> tensors() { return {w, bias}; }
  bool operator==(const Trainee&) const = default;
};

dl::OuterOptions streaming() {
  dl::OuterOptions options;
  options.inner_steps = 6;
  options.codec = DL_CODEC_INT4;
  options.fragments = 2;
  options.delay = 2;
  options.mixing = 0.5;
  return options;
}

// Whether all ranks have the same bytes.
bool alike(dl::Communicator& comm, std::span<const float> values) {
  std::vector<float> all(values.size() * static_cast<std::size_t>(comm.size()));
  comm.all_gather(values, std::span(all));
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::memcmp(&all[i], &values[i % values.size()], sizeof(float)) != 0) return false;
  }
  return true;
}

// As all_well(), for bodies on the C++ API.
template <class InCpp>
void all_well_in_cpp(const World& world, InCpp body) {
  all_well(world, [body](int rank, dl_comm*& comm) {
    auto owned = dl::Communicator::adopt(std::exchange(comm, nullptr));
    const int code = body(rank, owned);
    comm = owned.release();
    return code;
  });
}

}  // namespace

TEST_CASE("outer plan: fragments take turns, and averages are applied later") {
  CHECK(turns_of({.inner_steps = 3}, 7) == "3:a0s0 6:a0s0 ");
  CHECK(turns_of({.inner_steps = 1}, 2) == "1:a0s0 2:a0s0 ");
  CHECK(turns_of({.inner_steps = 4, .fragments = 2}, 8) == "2:a0s0 4:a1s1 6:a0s0 8:a1s1 ");
  CHECK(turns_of({.inner_steps = 4, .delay = 3}, 11) == "4:s0 7:a0 8:s0 11:a0 ");
  CHECK(turns_of({.inner_steps = 4, .fragments = 2, .delay = 2}, 8) ==
        "2:s0 4:a0s1 6:a1s0 8:a0s1 ");
  CHECK(turns_of({.inner_steps = 5, .fragments = 5}, 6) ==
        "1:a0s0 2:a1s1 3:a2s2 4:a3s3 5:a4s4 6:a0s0 ");
  // What was sent before the steps were finished is not applied.
  CHECK(turns_of({.inner_steps = 4, .delay = 3}, 11, 5) == "8:s0 11:a0 ");
}

TEST_CASE("outer plan: a fragment has one average at a time, and each is applied") {
  for (std::uint64_t inner = 1; inner <= 9; ++inner) {
    for (std::uint64_t fragments = 1; fragments <= inner; ++fragments) {
      for (std::uint64_t delay = 0; delay < inner; ++delay) {
        const OuterPlan plan{inner, fragments, delay};
        std::vector<int> sent(fragments), applied(fragments);
        for (std::uint64_t step = 1; step <= 4 * inner; ++step) {
          const OuterDue due = due_at(plan, step, 0);
          const bool both = due.send >= 0 && due.send == due.apply;
          REQUIRE(both == (delay == 0 && due.send >= 0));
          if (due.apply >= 0 && !both) ++applied[static_cast<std::size_t>(due.apply)];
          if (due.send >= 0) ++sent[static_cast<std::size_t>(due.send)];
          if (both) ++applied[static_cast<std::size_t>(due.apply)];
          for (std::size_t f = 0; f < fragments; ++f) {
            const int waiting = sent[f] - applied[f];
            REQUIRE((waiting == 0 || waiting == 1));
            REQUIRE(is_awaited(plan, static_cast<int>(f), step, 0) == (waiting == 1));
          }
        }
        for (const int times : sent) REQUIRE(times == 4);
      }
    }
  }
}

TEST_CASE("outer state: SGD with momentum, with and without Nesterov, mixing and fragments") {
  for (const bool nesterov : {false, true}) {
    std::vector<float> a(300, 2.0F), b(1, 5.0F);
    OuterState state({.fragments = 2,
                      .learning_rate = 0.5F,
                      .momentum = 0.5F,
                      .nesterov = nesterov,
                      .encodes = true},
                     {a, b});
    CHECK(state.gradient(0).size() == 512);  // a with what fills its block
    CHECK(state.gradient(1).size() == 256);  // b
    CHECK(state.residual().size() == 768);
    float anchor = 2, momentum = 0;
    for (int round = 0; round < 3; ++round) {
      for (float& x : a) x -= 1;
      state.take_gradient(0);
      CHECK(state.gradient(0)[299] == anchor - a[299]);
      CHECK(state.gradient(0)[300] == 0);
      const float gradient = anchor - a[0];
      momentum = 0.5F * momentum + gradient;
      anchor -= 0.5F * (nesterov ? gradient + 0.5F * momentum : momentum);
      state.move_anchor(0);
      const float mixed = 0.25F * a[7] + 0.75F * anchor;
      state.take_anchor(0, 0.25F);
      CHECK(std::ranges::count(a, mixed) == 300);
      state.take_anchor(0, 0);
      CHECK(std::ranges::count(a, anchor) == 300);
    }
    CHECK(b[0] == 5);
  }
}

TEST_CASE("outer: LocalSGD gives the average, and DiLoCo its outer step") {
  all_well_in_cpp({.ranks = 3}, [](int rank, dl::Communicator& comm) {
    std::vector<float> w(10, 8.0F), v(10, 8.0F);
    dl::Outer local(comm, {w}, dl::OuterOptions::local_sgd(2));
    dl::OuterOptions options;
    options.inner_steps = 2;
    dl::Outer diloco(comm, {v}, options);
    for (int step = 0; step < 2; ++step) {
      for (float& x : w) x -= static_cast<float>(rank);
      for (float& x : v) x -= static_cast<float>(rank);
      if (local.due() != (step == 1) || local.changes() != (step == 1)) return 2;
      local.step();
      diloco.step();
    }
    if (std::ranges::count(w, 6.0F) != 10) return 3;  // 8 - (0 + 2 + 4) / 3
    // momentum = 2; the step is 0.7 * (2 + 0.9 * 2)
    if (std::ranges::count(v, 8.0F - 0.7F * (2.0F + 0.9F * 2.0F)) != 10) return 4;
    return local.steps() == 2 ? 0 : 5;
  });
}

TEST_CASE("outer: all ranks share the anchor, for each codec, and finish with equal parameters") {
  for (const char* transport : kTransports) {
    all_well_in_cpp({.ranks = 3, .transport = transport}, [](int rank, dl::Communicator& comm) {
      for (int codec = DL_CODEC_NONE; codec <= DL_CODEC_TOPK; ++codec) {
        dl::OuterOptions options = streaming();
        options.codec = static_cast<dl_codec>(codec);
        Trainee own;
        dl::Outer outer(comm, own.tensors(), options);
        for (std::uint64_t step = 1; step <= 40; ++step) {
          own.inner_step(rank, step);
          outer.step();
        }
        if (alike(comm, own.w)) return 2;  // mixing keeps some of their own
        outer.finish();
        const Trainee finished = own;
        if (!alike(comm, own.w) || !alike(comm, own.bias)) return 3;
        outer.finish();  // nothing is left to do
        if (own != finished) return 4;
        if (codec == DL_CODEC_TOPK) continue;  // which needs more steps
        // The ranks' targets are 0, 1 and 2 times i % 7 + 1.
        for (std::size_t i = 0; i < own.w.size(); ++i) {
          if (std::fabs(own.w[i] - static_cast<float>(i % 7 + 1)) > 1.5F) return 5;
        }
      }
      return 0;
    });
  }
}

TEST_CASE("outer: another process with the state continues bit for bit, also in between") {
  all_well_in_cpp({.ranks = 2}, [](int rank, dl::Communicator& comm) {
    for (const std::uint64_t stop : {5UL, 6UL, 7UL, 8UL, 9UL}) {
      Trainee whole, first;
      dl::Outer undisturbed(comm, whole.tensors(), streaming());
      for (std::uint64_t step = 1; step <= 20; ++step) {
        whole.inner_step(rank, step);
        undisturbed.step();
      }
      dl::Outer before(comm, first.tensors(), streaming());
      for (std::uint64_t step = 1; step <= stop; ++step) {
        first.inner_step(rank, step);
        before.step();
      }
      // Sent in 3, 6, 9 and so on, and applied in 5, 8 and so on.
      const bool sends = (stop + 1) % 3 == 0, applies = (stop + 1) % 3 == 2;
      if (before.changes() != applies || before.due() != (sends || applies)) return 8;
      if (before.in_flight() != (stop % 3 != 2)) return 2;
      comm.barrier();  // comes after the average
      if (before.waits() || before.in_flight()) return 7;
      before.settle();
      if (before.in_flight()) return 3;
      Trainee second = first;
      dl::Outer after(comm, second.tensors(), streaming());
      std::ranges::copy(before.shared(), after.shared().begin());
      std::ranges::copy(before.residual(), after.residual().begin());
      after.restored();
      for (std::uint64_t step = stop + 1; step <= 20; ++step) {
        second.inner_step(rank, step);
        after.step();
      }
      if (second != whole) return 4;
      undisturbed.settle();
      after.settle();
      if (!std::ranges::equal(after.shared(), undisturbed.shared())) return 5;
      if (!std::ranges::equal(after.residual(), undisturbed.residual())) return 6;
    }
    return 0;
  });
}

TEST_CASE("outer: wrong options and tensors are refused, with the reason") {
  all_well({.ranks = 1}, [](int rank, dl_comm*& comm) {
    float w[4] = {};
    float* at[] = {w};
    const std::size_t counts[] = {4};
    dl_outer* outer = nullptr;
    const auto refused = [&](auto change, const char* why) {
      dl_outer_options options;
      dl_outer_options_init(&options);
      change(options);
      return dl_outer_new(comm, &options, 1, at, counts, &outer) == DL_ERR_INVALID &&
             outer == nullptr && std::string(dl_last_error(comm)).find(why) != std::string::npos;
    };
    EXPECT(refused([](auto& o) { o.inner_steps = 0; }, "inner_steps"));
    EXPECT(refused([](auto& o) { o.fragments = 501; }, "fragments is not 1 to inner_steps, 500"));
    EXPECT(refused([](auto& o) { o.delay = 500; }, "delay"));
    EXPECT(refused([](auto& o) { o.momentum = 1; }, "momentum"));
    EXPECT(refused([](auto& o) { o.momentum = 0; }, "nesterov has no effect"));
    EXPECT(refused([](auto& o) { o.mixing = 1; }, "mixing"));
    EXPECT(refused([](auto& o) { o.learning_rate = NAN; }, "learning_rate"));
    EXPECT(refused([](auto& o) { o.learning_rate = 1e300; }, "learning_rate"));
    EXPECT(refused([](auto& o) { o.momentum = 1 - 1e-12; }, "momentum is not 0 to less than 1"));
    EXPECT(refused([](auto& o) { o.momentum = 1e-60; }, "nesterov has no effect"));
    EXPECT(refused([](auto& o) { o.mixing = 1 - 1e-12; }, "mixing"));
    EXPECT(refused([](auto& o) { o.codec = static_cast<dl_codec>(9); }, "codec"));
    EXPECT(refused([](auto& o) { o.struct_size = 1; }, "dl_outer_options_init"));
    at[0] = nullptr;
    EXPECT(refused([](auto&) {}, "a tensor is null"));
    float* twice[] = {w + 1, w, w};
    const std::size_t some[] = {3, 0, 2};
    EXPECT(dl_outer_new(comm, nullptr, 3, twice, some, &outer) == DL_ERR_INVALID);
    EXPECT(std::string(dl_last_error(comm)).find("share memory") != std::string::npos);
    EXPECT(dl_outer_new(comm, nullptr, 2, twice, some, &outer) == DL_OK);
    dl_outer_free(outer);
    void* memory = w;
    std::size_t bytes = 1;
    dl_outer_shared(nullptr, &memory, &bytes);
    EXPECT(memory == nullptr);
    EXPECT(bytes == 0);
    dl_outer_residual(nullptr, &memory, &bytes);
    EXPECT(bytes == 0);
    EXPECT(dl_outer_new(comm, nullptr, 0, nullptr, nullptr, &outer) == DL_OK);
    EXPECT(dl_outer_finish(outer) == DL_OK);
    dl_outer_free(outer);
    dl_outer_free(nullptr);
    return 0;
  });
}

TEST_CASE("outer: a failed average stays an error until the state is restored") {
  static Gate gate;
  for (const int delay : {0, 1}) {
    all_well_in_cpp({.ranks = 2}, [delay](int rank, dl::Communicator& comm) {
      std::vector<float> w(10, 8.0F);
      dl::OuterOptions options;
      options.inner_steps = 2;
      options.delay = delay;
      dl::Outer outer(comm, {w}, options);
      outer.step();
      if (rank == 0) {
        gate.pass();
        return 0;  // leaves
      }
      const std::vector<std::byte> before(outer.shared().begin(), outer.shared().end());
      const auto fails = [&](auto call) {
        try {
          call();
        } catch (const dl::PeerLost& error) {
          return std::string(error.what()).find("has been restored") != std::string::npos;
        }
        return false;
      };
      const std::vector<float> own = w;
      if (delay == 1) outer.step();  // sent
      gate.open();
      if (delay == 1 && outer.steps() != 2) return 2;
      for (int times = 0; times < 3; ++times) {
        if (!fails([&] { outer.step(); })) return 3;
        if (!fails([&] { outer.finish(); })) return 4;
        if (!fails([&] { outer.settle(); })) return 5;
      }
      if (w != own || outer.steps() != 1U + static_cast<unsigned>(delay)) return 6;
      std::ranges::copy(before, outer.shared().begin());
      outer.restored();
      outer.settle();
      return outer.steps() == 1 ? 0 : 7;
    });
  }
}

TEST_CASE("outer: ranks with different options or tensors get an error") {
  for (const int kind : {0, 1, 2, 3, 4, 5}) {
    CAPTURE(kind);
    all_well({.ranks = 2}, [kind](int rank, dl_comm*& comm) {
      std::vector<float> w(600, 1.0F);
      float* at[] = {w.data(), w.data() + 300};
      std::size_t counts[] = {300, 300};
      dl_outer_options options;
      dl_outer_options_init(&options);
      options.inner_steps = 2;
      if (rank == 1 && kind == 0) options.learning_rate = 0.5;
      if (rank == 1 && kind == 1) options.momentum = 0.5;
      if (rank == 1 && kind == 2) options.nesterov = 0;
      if (rank == 1 && kind == 3) options.mixing = 0.5;
      if (rank == 1 && kind == 4) options.inner_steps = 4;
      if (rank == 1 && kind == 5) counts[1] = 299;  // with the same number of elements in blocks
      dl_outer* outer = nullptr;
      EXPECT(dl_outer_new(comm, &options, 2, at, counts, &outer) == DL_OK);
      dl_result last = DL_OK;
      for (int step = 0; last == DL_OK && step < 4; ++step) last = dl_outer_step(outer);
      EXPECT(last == DL_ERR_MISMATCH);
      EXPECT(std::string(dl_last_error(comm)).find("the same options") != std::string::npos);
      dl_outer_free(outer);
      return 0;
    });
  }
}

TEST_CASE("outer: a state of other options is refused, and residuals of other ranks are dropped") {
  all_well_in_cpp({.ranks = 2}, [](int rank, dl::Communicator& comm) {
    Trainee own, other;
    dl::OuterOptions options = streaming();
    dl::Outer outer(comm, own.tensors(), options);
    for (std::uint64_t step = 1; step <= 6; ++step) {
      own.inner_step(rank, step);
      outer.step();
    }
    outer.settle();
    const std::vector<std::byte> state(outer.shared().begin(), outer.shared().end());
    for (const int kind : {0, 1}) {
      options = streaming();
      (kind == 0 ? options.inner_steps : options.delay) += 1;
      dl::Outer different(comm, other.tensors(), options);
      std::ranges::copy(state, different.shared().begin());
      for (int times = 0; times < 2; ++times) {
        try {
          times == 0 ? different.restored() : different.step();
          return 2;
        } catch (const dl::Error& error) {
          if (error.code() != DL_ERR_MISMATCH) return 3;
        }
      }
    }
    auto& counts = *reinterpret_cast<OuterCounts*>(outer.shared().data());
    const auto all_zero = [&] { return std::ranges::count(outer.residual(), 0.0F) == 1024; };
    if (outer.residual().size() != 1024 || all_zero() || counts.ranks != 2) return 4;
    outer.step();
    if (all_zero()) return 5;
    counts.ranks = 3;
    outer.restored();
    if (!outer.changes()) return 6;
    outer.step();  // applies, and sends nothing
    return all_zero() && counts.ranks == 2 ? 0 : 7;
  });
}
