// OuterSites: the averages of an outer optimizer over sites, on the ranks of one site. Rank 0 has
// the endpoint (ring/sites/endpoint.h), and tells the others what comes. All calls are collective,
// and return what the calls of <dlaunch/ring.h> return.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dlaunch/sites.h"
#include "ring/compress/outer_state.h"
#include "ring/kernels/wire_codec.h"
#include "ring/process_hooks.h"
#include "ring/sites/endpoint.h"
#include "ring/sites/outer_merge.h"

struct dl_sites final : private dlaunch::ProcessEvents {
  dl_sites() { dlaunch::add_process_events(*this); }
  ~dl_sites() override { dlaunch::remove_process_events(*this); }
  dl_sites(const dl_sites&) = delete;
  dl_sites& operator=(const dl_sites&) = delete;

  dl_comm* comm = nullptr;
  dlaunch::SiteEndpointConfig config{};  // without the state
  dl_sites_late late = DL_SITES_CARRY;
  bool used = false;   // by an outer optimizer
  bool left = false;   // for good: dl_sites_leave()
  bool ended = false;  // the training: dl_outer_finish(), and no step since
  // Another thread may ask for facts. So only the thread of the steps writes these, with the mutex.
  mutable std::mutex mutex{};
  std::unique_ptr<dlaunch::SiteEndpoint> endpoint{};  // of rank 0, from the first step on
  std::uint32_t contributed = 0, members = 0;         // of the last merge
  dlaunch::MergeId last{};
  std::uint64_t carried = 0, jumps = 0;

  void set_endpoint(std::unique_ptr<dlaunch::SiteEndpoint> next) {
    const std::lock_guard lock(mutex);
    endpoint.swap(next);  // the one until now ends without the mutex: its end may take a while
  }
  void end_endpoint() { set_endpoint(nullptr); }

 private:
  // The endpoint's thread is the parent's, and so are its locks.
  void on_forked() override {
    std::construct_at(&mutex);  // a thread that does not exist here may have locked it
    if (dlaunch::SiteEndpoint* const parents = endpoint.release()) parents->close_in_child();
  }
  void on_exit() override {
    if (!endpoint) return;
    endpoint->linger(config.timeout, ended);
    endpoint->stop();
  }
};

namespace dlaunch {

class OuterSites {
 public:
  OuterSites(dl_sites& sites, OuterState& state, WireCodec codec, std::uint64_t common);
  ~OuterSites();

  // Whether the state has come to that of the sites, since the start or restored().
  bool joined() const { return joined_; }
  // Does so. moved: the state, its steps and the tensors are now those of the others.
  dl_result join(bool& moved);
  // Gives the gradient of a fragment to the next merge; take() has its average.
  // head.common need not be set.
  dl_result send(MergeHead head);
  // Waits for that merge, and applies it to the state and the tensors. moved: the others are
  // further; the state, its steps and the tensors are now theirs.
  dl_result take(MergeHead head, float mixing, bool& moved);
  // In each step: a sign of life of a site with one rank.
  void show_life() const;
  bool pending() const { return pending_.has_value(); }
  // With carry, the work in the fragment's tensors that no merge has comes with the next
  // contribution: the caller drops it from the tensors.
  dl_result keep_work(int fragment);
  // The state was restored: join again.
  void restored();
  void set_ended(bool ended) { sites_.ended = ended; }

 private:
  // What rank 0 tells the other ranks.
  struct Verdict {
    dl_result code = DL_OK;
    SiteNews::Kind kind = SiteNews::Kind::synced;
    bool waits = false;                  // none of the below: rank 0 still waits
    bool more = false;                   // another one follows at once
    bool ours = false, earlier = false;  // as in SiteNews
    MergeId id{};
    MergeHead head{};
    std::uint32_t contributed = 0, members = 0;
    std::uint64_t bytes = 0;  // of a state
    char why[600] = {};
  };
  struct Pending {
    MergeHead head;
    // Of rank 0, like the next two.
    std::shared_ptr<std::string> payload;
    std::vector<float> lost;  // the residual if the merge has the contribution; empty: 0
    std::vector<float> late;  // the residual if it comes too late; empty: the one until now
  };

  // This rank has the endpoint; another one may in the next round.
  bool leads() const { return dl_rank(sites_.comm) == 0; }
  dl_result open_endpoint();
  SiteState state_now() const;
  dl_result hear(bool syncs, Verdict& verdict);
  dl_result share(Verdict& verdict) const;
  Verdict listen(bool syncs);
  Verdict open_here();
  dl_result check_open();
  Verdict verdict_of(const SiteNews& news);
  Verdict failed(const Error& error) const;
  // Follows one verdict; mixing as for take().
  dl_result follow(const Verdict& verdict, float mixing);
  dl_result apply(const Verdict& verdict, float mixing);
  dl_result take_whole(const Verdict& verdict);
  dl_result take_mean_gradient(int fragment);
  void settle_residual(const Verdict& verdict);
  void note_carried();
  void note_merge(const Verdict& verdict);
  void jump(std::uint64_t steps_before);
  dl_result say(const Error& error) const;
  dl_result share(void* at, std::size_t bytes) const;

  dl_sites& sites_;
  OuterState& state_;
  const WireCodec codec_;
  const std::uint64_t common_;
  bool joined_ = false;
  std::optional<Pending> pending_;
  SharedBytes whole_;  // a state that has come to rank 0
};

}  // namespace dlaunch
