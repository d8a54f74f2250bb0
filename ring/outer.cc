// The C API of <dlaunch/outer.h>, on calls of <dlaunch/ring.h>.
#include "dlaunch/outer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "ring/api.h"
#include "ring/compress/outer_plan.h"
#include "ring/compress/outer_state.h"
#include "ring/outer_sites.h"

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
  std::uint64_t form;    // OuterCounts::form of its options and tensors
  std::uint64_t common;  // a hash of what must be equal on all ranks
  OuterState state;
  std::vector<dl_request*> requests;  // by fragment; null: none in the background
  // Of the first average that has failed; stays until the state is restored, because an average
  // without a request counts as one that is in the state.
  dl_result failed = DL_OK;
  std::string why{};
  std::unique_ptr<dlaunch::OuterSites> sites{};  // null: it averages over the ranks alone
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
  if (!(std::fabs(options.learning_rate) <= FLT_MAX)) {
    return wrong("learning_rate is not a finite number of float32");
  }
  const auto is_share = [](double number) {
    return number >= 0 && number < 1 && static_cast<float>(number) < 1;
  };
  if (!is_share(options.momentum)) return wrong("momentum is not 0 to less than 1 in float32");
  if (options.nesterov != 0 && static_cast<float>(options.momentum) == 0) {
    return wrong("nesterov has no effect without momentum: set it to 0");
  }
  if (!is_share(options.mixing)) return wrong("mixing is not 0 to less than 1 in float32");
  if (options.codec < DL_CODEC_NONE || options.codec > DL_CODEC_TOPK) {
    return wrong("codec is not a dl_codec");
  }
  if (options.sites == nullptr) return {};
  // The average that was sent before is applied by then.
  const int distance = options.inner_steps / options.fragments;
  if (options.delay > distance) {
    return wrong(fmt::format(
        "delay is {}, and with sites it may be {} at most, the steps from one fragment to the next",
        options.delay, distance));
  }
  if (options.sites->used) return wrong("another outer optimizer uses these sites");
  return {};
}

bool overlap(std::vector<std::span<float>> tensors) {
  std::erase_if(tensors, [](const auto& tensor) { return tensor.empty(); });
  std::ranges::sort(tensors, std::less<>(), [](const auto& tensor) { return tensor.data(); });
  const auto reaches = [](const auto& one, const auto& next) {
    return std::less<>()(next.data(), one.data() + one.size());
  };
  return std::ranges::adjacent_find(tensors, reaches) != tensors.end();
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
  if (overlap(all)) return wrong("two tensors share memory: give each parameter once");
  return all;
}

// A contribution that comes too late waits in the residual.
bool carries(const dl_outer_options& options) {
  return options.sites != nullptr && options.sites->late == DL_SITES_CARRY;
}

OuterRules rules_of(const dl_outer_options& options) {
  return {.fragments = options.fragments,
          .learning_rate = static_cast<float>(options.learning_rate),
          .momentum = static_cast<float>(options.momentum),
          .mixing = static_cast<float>(options.mixing),
          .nesterov = options.nesterov != 0,
          .encodes = options.codec != DL_CODEC_NONE || carries(options)};
}

// What the memory of the state depends on, and how far it is when.
std::uint64_t form_of(const dl_outer_options& options,
                      const std::vector<std::span<float>>& tensors) {
  std::vector<std::size_t> values{
      static_cast<std::size_t>(options.inner_steps), static_cast<std::size_t>(options.fragments),
      static_cast<std::size_t>(options.delay),
      static_cast<std::size_t>(static_cast<float>(options.momentum) > 0),
      static_cast<std::size_t>(options.codec != DL_CODEC_NONE) +
          (options.sites != nullptr ? 2 + static_cast<std::size_t>(options.sites->late) : 0)};
  for (const auto& tensor : tensors) values.push_back(tensor.size());
  return dlaunch::hash_of(values);
}
// The codec is in each average's own hash.
std::uint64_t common_of(std::uint64_t form, const OuterRules& rules) {
  return dlaunch::hash_of(std::array<std::size_t, 5>{
      form, std::bit_cast<std::uint32_t>(rules.learning_rate),
      std::bit_cast<std::uint32_t>(rules.momentum), std::bit_cast<std::uint32_t>(rules.mixing),
      static_cast<std::size_t>(rules.nesterov)});
}

dl_request*& request_of(dl_outer& outer, int fragment) {
  return outer.requests[static_cast<std::size_t>(fragment)];
}

// What the program can do about the failure of an average; "": the error says it.
std::string advice_after(const dl_outer& outer, dl_result failure) {
  if (failure == DL_ERR_INVALID && outer.sites) return "";
  if (failure != DL_ERR_MISMATCH) {
    return "; the outer optimizer continues when its state has been restored";
  }
  return std::string("; give the outer optimizer the same options and tensors on all ranks") +
         (outer.sites ? " and at all sites" : "");
}

// Keeps the failure of an average.
dl_result noted(dl_outer& outer, dl_result done) {
  if (done == DL_OK || outer.failed != DL_OK) return done;
  outer.failed = done;
  dlaunch::guarded(outer.comm, [&]() -> Result<void> {
    outer.why = dl_last_error(outer.comm) + advice_after(outer, done);
    dlaunch::keep_error(outer.comm, outer.why);
    return {};
  });
  return done;
}

// The failure of an earlier average.
dl_result failed_before(const dl_outer& outer) {
  if (outer.failed != DL_OK) dlaunch::keep_error(outer.comm, outer.why);
  return outer.failed;
}

dl_result check_form(dl_outer& outer) {
  return dlaunch::guarded(outer.comm, [&]() -> Result<void> {
    if (outer.state.counts().form == outer.form) return {};
    return Error{.code = Errc::mismatch,
                 .what =
                     "the state that was restored belongs to an outer optimizer with another "
                     "inner_steps, fragments, delay, momentum or codec, or with other tensors: "
                     "use the same, or begin without that state"};
  });
}

// Before a call that averages.
dl_result ready(dl_outer& outer) {
  if (const auto failed = failed_before(outer); failed != DL_OK) return failed;
  if (const auto wrong = check_form(outer); wrong != DL_OK) return wrong;
  if (outer.sites) return DL_OK;
  const auto ranks = static_cast<std::uint64_t>(dl_size(outer.comm));
  // What a rank owes is scaled by their number, and a rank with a new number has another's.
  if (outer.state.counts().ranks != ranks) std::ranges::fill(outer.state.residual(), 0.0F);
  outer.state.counts().ranks = ranks;
  return DL_OK;
}

dl_result take_average(dl_outer& outer, int fragment) {
  const auto done = noted(outer, dl_wait(&request_of(outer, fragment)));
  if (done == DL_OK) outer.state.move_anchor(fragment);
  return done;
}

dl_result average(dl_outer& outer, int fragment, dl_request** request) {
  outer.state.take_gradient(fragment);
  return noted(outer,
               dlaunch::average_in_common(outer.comm, outer.state.gradient(fragment), outer.codec,
                                          outer.state.residual(fragment), outer.common, request));
}

dl_result average_now(dl_outer& outer, int fragment) {
  const auto done = average(outer, fragment, nullptr);
  if (done == DL_OK) outer.state.move_anchor(fragment);
  return done;
}

// What was sent until then has been applied.
std::uint64_t applied_until(const dl_outer& outer) {
  const auto& counts = outer.state.counts();
  return outer.sites ? std::max(counts.finished, counts.merged) : counts.finished;
}

OuterDue next_due(const dl_outer& outer) {
  return dlaunch::due_at(outer.plan, outer.state.counts().steps + 1, applied_until(outer));
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

// -- With sites. A step that finds the others further does no more: its steps are theirs then.

dlaunch::MergeHead merge_head(int fragment, std::uint64_t steps) {
  return {.steps = steps, .fragment = static_cast<std::uint32_t>(fragment)};
}

dl_result step_with_sites(dl_outer& outer) {
  outer.sites->set_ended(false);
  outer.sites->show_life();
  bool moved = false;
  if (const auto done = outer.sites->join(moved); done != DL_OK || moved) return done;
  const OuterDue due = next_due(outer);
  const std::uint64_t step = outer.state.counts().steps + 1;
  if (due.apply >= 0) {
    const auto head = merge_head(due.apply, step - outer.plan.delay);
    const auto done = outer.sites->take(head, outer.rules.mixing, moved);
    if (done != DL_OK || moved) return done;
  }
  if (due.send >= 0 && outer.plan.delay > 0) {
    const auto done = outer.sites->send(merge_head(due.send, step));
    if (done != DL_OK) return done;
  }
  ++outer.state.counts().steps;
  return DL_OK;
}

// The fragment that was sent and is not applied yet; -1: none.
int awaited_fragment(const dl_outer& outer) {
  for (int f = 0; f < outer.rules.fragments; ++f) {
    if (dlaunch::is_awaited(outer.plan, f, outer.state.counts().steps, applied_until(outer))) {
      return f;
    }
  }
  return -1;
}

// The steps after which the awaited average of the fragment was sent.
std::uint64_t steps_when_sent(const dl_outer& outer, int fragment) {
  std::uint64_t step = outer.state.counts().steps;
  while (dlaunch::fragment_at(outer.plan, step) != fragment) --step;
  return step;
}

// The first fragment that has not been averaged after these steps; fragments: all have.
int first_unfinished(const dl_outer& outer) {
  const auto& counts = outer.state.counts();
  int f = counts.steps == counts.merged ? static_cast<int>(counts.finishing) : 0;
  while (f < outer.rules.fragments &&
         dlaunch::is_fresh(outer.plan, f, counts.steps, counts.finished)) {
    ++f;
  }
  return f;
}

dl_result finish_fragment_with_sites(dl_outer& outer, int fragment) {
  auto head = merge_head(fragment, outer.state.counts().steps);
  head.finishing = static_cast<std::uint32_t>(fragment) + 1;
  bool moved = false;
  return outer.sites->take(head, 0, moved);
}

// Averages until all fragments have been averaged after `steps` steps, or the others are further.
// Each average may move this site to the steps of the others. If these are fewer, it takes part in
// their averages up to `steps`, without work of its own.
dl_result average_until(dl_outer& outer, std::uint64_t steps) {
  const auto& counts = outer.state.counts();
  while (counts.steps <= steps) {
    dl_result done = DL_OK;
    bool moved = false;
    if (counts.steps < steps) {
      done = step_with_sites(outer);
    } else if (const int sent = awaited_fragment(outer); sent >= 0) {
      const auto head = merge_head(sent, steps_when_sent(outer, sent));
      done = outer.sites->take(head, outer.rules.mixing, moved);
    } else if (const int next = first_unfinished(outer); next < outer.rules.fragments) {
      done = finish_fragment_with_sites(outer, next);
    } else {
      break;
    }
    if (done != DL_OK) return done;
  }
  return DL_OK;
}

dl_result finish_with_sites(dl_outer& outer) {
  auto& counts = outer.state.counts();
  const std::uint64_t steps = counts.steps;
  bool moved = false;
  if (const auto done = outer.sites->join(moved); done != DL_OK) return done;
  if (const auto done = average_until(outer, steps); done != DL_OK) return done;
  const bool further = counts.steps > steps;
  for (int f = 0; f < outer.rules.fragments; ++f) {
    const auto done = further ? outer.sites->keep_work(f) : DL_OK;
    if (done != DL_OK) return done;
    outer.state.take_anchor(f, 0);
  }
  if (further) return DL_OK;
  outer.sites->set_ended(true);
  counts.finished = counts.steps;
  counts.finishing = 0;
  return DL_OK;
}

// An exchange with the other sites needs memory. If this rank has none, it ends the communicator,
// so that the other ranks of its site do not wait for it.
dl_result among_sites(dl_outer& outer, dl_result (*exchange)(dl_outer&)) {
  try {
    return noted(outer, exchange(outer));
  } catch (const std::bad_alloc&) {
    dl_abort(outer.comm);
    dlaunch::keep_error(outer.comm, "no memory for the exchange with the other sites");
    return noted(outer, DL_ERR_IO);
  }
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
              .mixing = 0,
              .sites = nullptr};
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
    const std::uint64_t form = form_of(options, *all);
    auto made = std::make_unique<dl_outer>(dl_outer{
        .comm = comm,
        .plan = {.inner_steps = static_cast<std::uint64_t>(options.inner_steps),
                 .fragments = static_cast<std::uint64_t>(options.fragments),
                 .delay = static_cast<std::uint64_t>(options.delay)},
        .rules = rules,
        .codec = options.codec,
        .form = form,
        .common = common_of(form, rules),
        .state = OuterState(rules, std::move(*all)),
        .requests = std::vector<dl_request*>(static_cast<std::size_t>(options.fragments))});
    made->state.counts().form = form;
    if (options.sites != nullptr) {
      const auto codec = static_cast<dlaunch::WireCodec>(options.codec);
      const std::uint64_t at_all_sites = dlaunch::hash_of(
          std::array<std::size_t, 2>{made->common, static_cast<std::size_t>(options.codec)});
      made->sites =
          std::make_unique<dlaunch::OuterSites>(*options.sites, made->state, codec, at_all_sites);
    }
    *outer = made.release();
    return {};
  });
}

void dl_outer_free(dl_outer* outer) {
  if (outer != nullptr) dl_wait_all(outer->requests.size(), outer->requests.data());
  delete outer;
}

dl_result dl_outer_step(dl_outer* outer) {
  if (outer == nullptr) return DL_ERR_INVALID;
  dl_result done = ready(*outer);
  if (outer->sites) return done == DL_OK ? among_sites(*outer, step_with_sites) : done;
  const OuterDue due = next_due(*outer);
  const bool waits = outer->plan.delay == 0;
  if (done == DL_OK && due.apply >= 0) {
    done = waits ? average_now(*outer, due.apply) : take_average(*outer, due.apply);
    if (done == DL_OK) outer->state.take_anchor(due.apply, outer->rules.mixing);
  }
  if (done == DL_OK && due.send >= 0 && !waits) {
    done = average(*outer, due.send, &request_of(*outer, due.send));
  }
  if (done == DL_OK) ++outer->state.counts().steps;
  return done;
}

int dl_outer_due(const dl_outer* outer) {
  if (outer != nullptr && outer->sites && !outer->sites->joined()) return DL_OUTER_CHANGES;
  const OuterDue due = outer != nullptr ? next_due(*outer) : OuterDue{};
  if (due == OuterDue{}) return 0;
  return due.apply >= 0 ? DL_OUTER_CHANGES : DL_OUTER_READS;
}

uint64_t dl_outer_steps(const dl_outer* outer) {
  return outer != nullptr ? outer->state.counts().steps : 0;
}

dl_result dl_outer_finish(dl_outer* outer) {
  if (outer == nullptr) return DL_ERR_INVALID;
  dl_result done = ready(*outer);
  if (outer->sites) return done == DL_OK ? among_sites(*outer, finish_with_sites) : done;
  for (int f = 0; done == DL_OK && f < outer->rules.fragments; ++f) {
    done = finish_fragment(*outer, f);
  }
  if (done == DL_OK) outer->state.counts().finished = outer->state.counts().steps;
  return done;
}

void dl_outer_shared(dl_outer* outer, void** at, size_t* bytes) {
  const auto shared = outer != nullptr ? outer->state.shared() : std::span<std::byte>();
  *at = shared.data();
  *bytes = shared.size();
}

void dl_outer_residual(dl_outer* outer, void** at, size_t* bytes) {
  const auto residual = outer != nullptr ? outer->state.residual() : std::span<float>();
  *at = residual.data();
  *bytes = residual.size_bytes();
}

dl_result dl_outer_settle(dl_outer* outer) {
  if (outer == nullptr) return DL_ERR_INVALID;
  for (dl_request*& request : outer->requests) noted(*outer, dl_wait(&request));
  return failed_before(*outer);
}

int dl_outer_waits(dl_outer* outer) {
  if (outer == nullptr) return 0;
  int waits = 0;
  for (dl_request*& request : outer->requests) {
    if (request == nullptr) continue;
    int done = 0;
    const auto result = dl_test(&request, &done);
    if (done == 0) waits = 1;
    if (done != 0) noted(*outer, result);
  }
  return waits;
}

int dl_outer_in_flight(const dl_outer* outer) {
  if (outer == nullptr) return 0;
  if (outer->sites) return outer->sites->pending() ? 1 : 0;
  return std::ranges::any_of(outer->requests, [](auto* request) { return request != nullptr; });
}

dl_result dl_outer_restored(dl_outer* outer) {
  if (outer == nullptr) return DL_ERR_INVALID;
  dl_wait_all(outer->requests.size(), outer->requests.data());
  if (outer->sites) outer->sites->restored();
  outer->failed = DL_OK;
  return check_form(*outer);
}
