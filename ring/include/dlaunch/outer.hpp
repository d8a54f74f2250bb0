// Local training with an outer optimizer, for C++20: RAII and spans over <dlaunch/outer.h>, which
// is the manual. Header only.
//
//   dl::OuterOptions options;                       // DiLoCo; or dl::OuterOptions::local_sgd(100)
//   options.codec = DL_CODEC_INT4;
//   dl::Outer outer(comm, {w, bias}, options);      // vectors of float that stay where they are
//   for each step:
//     inner_step(w, bias);                          // on this rank alone
//     outer.step();
//   outer.finish();                                 // w and bias are equal on all ranks
//
// In an elastic program (<dlaunch/elastic.hpp>) the parameters differ between ranks, and the outer
// optimizer is part of the state:
//
//   state.replicated("outer", outer.shared());
//   state.own("residual", outer.residual());
//   state.own("w", std::span(w));
//   ... inner step; outer.step(); outer.settle(); state.commit();
//   ... after a sync or a recovery: outer.restored();
//   ... to go back to the last commit: outer.restored(); state.restore(); outer.restored();
//
// With commit_every = n, settle only in the steps that commit: else no average overlaps with steps.
//
// Over several sites (<dlaunch/sites.h>), each of them a job of dlaunch --sites:
//
//   dl::Sites sites(comm);
//   options.sites = sites.get();
//   dl::Outer outer(comm, {w, bias}, options);
//   while (outer.steps() < 10000) { inner_step(w, bias); outer.step(); }
//   outer.finish();                                 // equal at all sites
//
// Errors are exceptions: dl::Error and its subclasses.
#pragma once

#if __cplusplus <= 201703L
#error "<dlaunch/outer.hpp> needs C++20: compile with -std=c++20"
#else

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dlaunch/outer.h"
#include "dlaunch/ring.hpp"
#include "dlaunch/sites.h"

namespace dl {

struct OuterOptions : dl_outer_options {
  OuterOptions() { dl_outer_options_init(this); }
  // The parameters become their average after each so many steps.
  static OuterOptions local_sgd(int inner_steps) {
    OuterOptions options;
    options.inner_steps = inner_steps;
    options.learning_rate = 1;
    options.momentum = 0;
    options.nesterov = 0;
    return options;
  }
};

struct SitesOptions : dl_sites_options {
  SitesOptions() { dl_sites_options_init(this); }
};

// The sites of this job. They must not outlive the communicator, nor be outlived by an outer
// optimizer that uses them. The destructor leaves them in good order.
class Sites {
 public:
  explicit Sites(Communicator& comm, const SitesOptions& options = {}) {
    dl_sites* sites = nullptr;
    detail::check(dl_sites_open(comm.get(), &options, &sites), comm.get());
    sites_.reset(sites);
  }

  dl_sites_info info() const {
    dl_sites_info facts{};
    facts.struct_size = sizeof facts;
    dl_sites_get_info(get(), &facts);
    return facts;
  }
  // "": there is no such site.
  std::string name(int site) const {
    const char* const known = dl_sites_name(get(), site);
    return known != nullptr ? known : "";
  }
  void leave() { dl_sites_leave(get()); }
  dl_sites* get() const { return sites_.get(); }

 private:
  struct Close {
    void operator()(dl_sites* sites) const { dl_sites_close(sites); }
  };
  std::unique_ptr<dl_sites, Close> sites_;
};

// It must not outlive its communicator.
class Outer {
 public:
  Outer(Communicator& comm, const std::vector<std::span<float>>& tensors,
        const OuterOptions& options = {})
      : comm_(comm.get()) {
    std::vector<float*> at;
    std::vector<std::size_t> counts;
    for (const auto& tensor : tensors) {
      at.push_back(tensor.data());
      counts.push_back(tensor.size());
    }
    dl_outer* outer = nullptr;
    check(dl_outer_new(comm_, &options, at.size(), at.data(), counts.data(), &outer));
    outer_.reset(outer);
  }

  void step() { check(dl_outer_step(get())); }
  bool due() const { return dl_outer_due(get()) != 0; }
  bool changes() const { return dl_outer_due(get()) == DL_OUTER_CHANGES; }
  std::uint64_t steps() const { return dl_outer_steps(get()); }
  void finish() { check(dl_outer_finish(get())); }

  std::span<std::byte> shared() {
    void* at = nullptr;
    std::size_t bytes = 0;
    dl_outer_shared(get(), &at, &bytes);
    return {static_cast<std::byte*>(at), bytes};
  }
  std::span<float> residual() {
    void* at = nullptr;
    std::size_t bytes = 0;
    dl_outer_residual(get(), &at, &bytes);
    return {static_cast<float*>(at), bytes / sizeof(float)};
  }
  void settle() { check(dl_outer_settle(get())); }
  bool in_flight() const { return dl_outer_in_flight(get()) != 0; }
  bool waits() { return dl_outer_waits(get()) != 0; }
  void restored() { check(dl_outer_restored(get())); }
  dl_outer* get() const { return outer_.get(); }

 private:
  struct Free {
    void operator()(dl_outer* outer) const { dl_outer_free(outer); }
  };
  void check(dl_result code) const { detail::check(code, comm_); }

  dl_comm* comm_;
  std::unique_ptr<dl_outer, Free> outer_;
};

}  // namespace dl

#endif  // C++20
