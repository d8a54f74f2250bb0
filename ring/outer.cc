// The C API of <dlaunch/outer.h>, on calls of <dlaunch/ring.h>.
#include "dlaunch/outer.h"

#include <cmath>
#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include "ring/api.h"
#include "ring/compress/outer_plan.h"
#include "ring/compress/outer_state.h"

using dlaunch::Errc;
using dlaunch::Error;
using dlaunch::OuterDue;
using dlaunch::OuterPlan;
using dlaunch::OuterRules;
using dlaunch::OuterState;
using dlaunch::Result;

struct dl_outer {
  dl_comm* comm;
  OuterPlan plan;
  OuterRules rules;
  dl_codec codec;
  OuterState state;
  std::vector<dl_request*> requests;  // by fragment; null: none in the background
  dl_result failed;                   // of a request that dl_outer_waits() has found done
};

namespace {

Result<void> outer_fits(const dl_outer_options& options) {
  const auto wrong = [](const std::string& what) {
    return Error{.code = Errc::usage, .what = "dl_outer_new: " + what};
  };
  if (options.inner_steps < 1) return wrong("inner_steps is less than 1");
  if (options.fragments < 1 || options.fragments > options.inner_steps) {
    return wrong(fmt::format("fragments is not 1 to inner_steps, {}", options.inner_steps));
  }
  if (options.delay < 0 || options.delay >= options.inner_steps) {
    return wrong(fmt::format("delay is not 0 to less than inner_steps, {}", options.inner_steps));
  }
  if (!std::isfinite(options.learning_rate)) return wrong("learning_rate is not a finite number");
  if (!(options.momentum >= 0 && options.momentum < 1))
    return wrong("momentum is not 0 to less than 1");
  if (options.nesterov != 0 && options.momentum == 0) {
    return wrong("nesterov has no effect without momentum: set it to 0");
  }
  if (!(options.mixing >= 0 && options.mixing < 1)) return wrong("mixing is not 0 to less than 1");
  if (options.codec < DL_CODEC_NONE || options.codec > DL_CODEC_TOPK) {
    return wrong("codec is not a dl_codec");
  }
  return {};
}

Result<std::vector<std::span<float>>> outer_tensors(size_t tensors, float* const* at,
                                                    const size_t* counts) {
  const auto wrong = [](const char* what) {
    return Error{.code = Errc::usage, .what = std::string("dl_outer_new: ") + what};
  };
  if (tensors > 0 && (at == nullptr || counts == nullptr)) return wrong("an array is null");
  std::vector<std::span<float>> all;
  std::size_t elements = 0;
  for (size_t t = 0; t < tensors; ++t) {
    if (counts[t] > 0 && at[t] == nullptr) return wrong("a tensor is null");
    if (counts[t] > PTRDIFF_MAX / 16 - elements) return wrong("a count is too large");
    if (at[t] != nullptr && dl_gpu_of(at[t]) >= 0) {
      return wrong("a tensor is in a GPU's memory: give a copy in the host's, see dl_copy()");
    }
    elements += counts[t];
    all.emplace_back(at[t], counts[t]);
  }
  return all;
}

OuterRules rules_of(const dl_outer_options& options) {
  return {.fragments = options.fragments,
          .learning_rate = static_cast<float>(options.learning_rate),
          .momentum = static_cast<float>(options.momentum),
          .mixing = static_cast<float>(options.mixing),
          .nesterov = options.nesterov != 0,
          .encodes = options.codec != DL_CODEC_NONE};
}

dl_request*& request_of(dl_outer& outer, int fragment) {
  return outer.requests[static_cast<std::size_t>(fragment)];
}

dl_result take_average(dl_outer& outer, int fragment) {
  if (outer.failed != DL_OK) return outer.failed;
  const auto done = dl_wait(&request_of(outer, fragment));
  if (done == DL_OK) outer.state.move_anchor(fragment);
  return done;
}

dl_result average_now(dl_outer& outer, int fragment) {
  outer.state.take_gradient(fragment);
  const auto gradient = outer.state.gradient(fragment);
  const auto done =
      dl_compressed_average(outer.comm, gradient.data(), gradient.data(), gradient.size(),
                            outer.codec, outer.state.residual(fragment));
  if (done == DL_OK) outer.state.move_anchor(fragment);
  return done;
}

dl_result start_average(dl_outer& outer, int fragment) {
  outer.state.take_gradient(fragment);
  const auto gradient = outer.state.gradient(fragment);
  return dl_icompressed_average(outer.comm, gradient.data(), gradient.data(), gradient.size(),
                                outer.codec, outer.state.residual(fragment),
                                &request_of(outer, fragment));
}

OuterDue next_due(const dl_outer& outer) {
  const auto& counts = outer.state.counts();
  return dlaunch::due_at(outer.plan, counts.steps + 1, counts.finished);
}

dl_result finish_fragment(dl_outer& outer, int fragment) {
  const auto& counts = outer.state.counts();
  dl_result done = DL_OK;
  if (dlaunch::is_awaited(outer.plan, fragment, counts.steps, counts.finished)) {
    done = take_average(outer, fragment);
    if (done == DL_OK) outer.state.take_anchor(fragment, outer.rules.mixing);
  }
  if (done == DL_OK && !dlaunch::is_fresh(outer.plan, fragment, counts.steps, counts.finished)) {
    done = average_now(outer, fragment);
  }
  if (done == DL_OK) outer.state.take_anchor(fragment, 0);
  return done;
}

}  // namespace

void dl_outer_options_init(dl_outer_options* options) {
  if (options == nullptr) return;
  *options = {.struct_size = sizeof(dl_outer_options),
              .inner_steps = 500,
              .learning_rate = 0.7,
              .momentum = 0.9,
              .nesterov = 1,
              .codec = DL_CODEC_NONE,
              .fragments = 1,
              .delay = 0,
              .mixing = 0};
}

dl_result dl_outer_new(dl_comm* comm, const dl_outer_options* given, size_t tensors,
                       float* const* at, const size_t* counts, dl_outer** outer) {
  if (outer != nullptr) *outer = nullptr;
  return dlaunch::with(comm, [&](dlaunch::Communicator&) -> Result<void> {
    dl_outer_options options;
    dl_outer_options_init(&options);
    if (given != nullptr) options = *given;
    if (options.struct_size != sizeof options || outer == nullptr) {
      return Error{.code = Errc::usage,
                   .what = outer == nullptr
                               ? "dl_outer_new: outer is null"
                               : "dl_outer_new: set the options by dl_outer_options_init() first"};
    }
    if (auto ok = outer_fits(options); !ok) return ok;
    auto all = outer_tensors(tensors, at, counts);
    if (!all) return all.error();
    const OuterRules rules = rules_of(options);
    *outer = new dl_outer{
        .comm = comm,
        .plan = {.inner_steps = static_cast<std::uint64_t>(options.inner_steps),
                 .fragments = static_cast<std::uint64_t>(options.fragments),
                 .delay = static_cast<std::uint64_t>(options.delay)},
        .rules = rules,
        .codec = options.codec,
        .state = OuterState(rules, std::move(*all)),
        .requests = std::vector<dl_request*>(static_cast<std::size_t>(options.fragments)),
        .failed = DL_OK};
    return {};
  });
}

void dl_outer_free(dl_outer* outer) {
  dl_outer_restored(outer);
  delete outer;
}

dl_result dl_outer_step(dl_outer* outer) {
  if (outer == nullptr) return DL_ERR_INVALID;
  const OuterDue due = next_due(*outer);
  dl_result done = DL_OK;
  const bool waits = outer->plan.delay == 0;
  if (due.apply >= 0) {
    done = waits ? average_now(*outer, due.apply) : take_average(*outer, due.apply);
    if (done == DL_OK) outer->state.take_anchor(due.apply, outer->rules.mixing);
  }
  if (done == DL_OK && due.send >= 0 && !waits) done = start_average(*outer, due.send);
  if (done == DL_OK) ++outer->state.counts().steps;
  return done;
}

int dl_outer_due(const dl_outer* outer) {
  return outer != nullptr && next_due(*outer) != OuterDue{} ? 1 : 0;
}

uint64_t dl_outer_steps(const dl_outer* outer) {
  return outer != nullptr ? outer->state.counts().steps : 0;
}

dl_result dl_outer_finish(dl_outer* outer) {
  if (outer == nullptr) return DL_ERR_INVALID;
  dl_result done = DL_OK;
  for (int f = 0; done == DL_OK && f < outer->rules.fragments; ++f) {
    done = finish_fragment(*outer, f);
  }
  if (done == DL_OK) outer->state.counts().finished = outer->state.counts().steps;
  return done;
}

void dl_outer_shared(dl_outer* outer, void** at, size_t* bytes) {
  const auto shared = outer->state.shared();
  *at = shared.data();
  *bytes = shared.size();
}

void dl_outer_residual(dl_outer* outer, void** at, size_t* bytes) {
  const auto residual = outer->state.residual();
  *at = residual.data();
  *bytes = residual.size_bytes();
}

dl_result dl_outer_settle(dl_outer* outer) {
  if (outer == nullptr) return DL_ERR_INVALID;
  const auto done = dl_wait_all(outer->requests.size(), outer->requests.data());
  return outer->failed != DL_OK ? outer->failed : done;
}

int dl_outer_waits(dl_outer* outer) {
  if (outer == nullptr) return 0;
  int waits = 0;
  for (dl_request*& request : outer->requests) {
    if (request == nullptr) continue;
    int done = 0;
    const auto result = dl_test(&request, &done);
    if (done == 0) waits = 1;
    if (done != 0 && outer->failed == DL_OK) outer->failed = result;
  }
  return waits;
}

int dl_outer_in_flight(const dl_outer* outer) {
  if (outer == nullptr) return 0;
  for (const dl_request* request : outer->requests) {
    if (request != nullptr) return 1;
  }
  return 0;
}

void dl_outer_restored(dl_outer* outer) {
  if (outer == nullptr) return;
  dl_outer_settle(outer);
  outer->failed = DL_OK;
}
