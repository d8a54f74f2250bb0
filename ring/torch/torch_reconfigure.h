// c10d's recovery API, in versions of PyTorch that have it, such as 2.15: a group leaves its
// communicator and makes one with other members, which know each other by handles.
// reconfigure_plan.h decides; this file carries it out.
#pragma once

#include "ring/torch/torch_group_base.h"

#ifdef C10D_BACKEND_HAS_RECONFIGURE

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ring/torch/reconfigure_plan.h"
#include "ring/torch/torch_bootstrap.h"

namespace dlring_torch {

inline std::string random_secret() {
  std::uint64_t words[4];
  if (::getrandom(words, sizeof words, 0) != static_cast<ssize_t>(sizeof words)) {
    throw std::runtime_error("dlring: reconfigure: the system has no random numbers");
  }
  std::string secret;
  for (const auto word : words) secret += std::string(16 - hex_of(word).size(), '0') + hex_of(word);
  return secret;
}

// The ports and secrets in the handles of this process. It holds a port for as long as the process
// lives, for all bootstraps that one of its groups leads. A forked child has its own ports and
// secret.
class HandleMaker {
 public:
  static std::string make(const std::string& address) {
    static std::mutex mutex;
    static auto* const present = new std::unique_ptr<HandleMaker>;
    const std::lock_guard lock(mutex);
    if (!*present || (*present)->process_ != ::getpid()) {
      present->release();  // they belong to the parent
      present->reset(new HandleMaker);
    }
    return (*present)->next(address);
  }

 private:
  struct Port {
    Socket holder;
    int number = 0;
  };

  std::string next(const std::string& address) {
    Port& port = ports_[address];
    if (port.number == 0) port.number = hold_port(address, port.holder);
    char host[256] = "?";
    ::gethostname(host, sizeof host - 1);
    const std::string who = std::to_string(process_) + "@" + host;
    return text_of({who, ++groups_, secret_, port.number, address});
  }

  const pid_t process_ = ::getpid();
  const std::string secret_ = random_secret();
  std::uint64_t groups_ = 0;
  std::map<std::string, Port> ports_;  // by address
};

// A secret as a file that no other process can open by a name.
class SecretFile {
 public:
  explicit SecretFile(const std::string& secret) {
    file_.fd = ::memfd_create("dlring-secret", MFD_CLOEXEC);
    const bool made =
        file_.fd >= 0 && ::fchmod(file_.fd, 0600) == 0 &&
        ::write(file_.fd, secret.data(), secret.size()) == static_cast<ssize_t>(secret.size());
    if (!made) throw std::runtime_error("dlring: reconfigure: no memory for a secret can be had");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_.fd); }

 private:
  Socket file_;
};

inline std::shared_ptr<Comm> meet_members(const ReconfigurePlan& plan, double limit_s,
                                          double op_limit_s) {
  auto secret = std::make_shared<const SecretFile>(plan.secret);
  const std::string secret_path = secret->path();
  dl_options options;
  dl_options_init(&options);
  options.rank = plan.rank;
  options.size = plan.size;
  options.init_timeout_s = limit_s;
  options.op_timeout_s = op_limit_s;
  options.job_id = "c10d";  // members may be of several jobs
  options.secret_file = secret_path.c_str();
  dl_comm* comm = nullptr;
  const auto result = dl_init(plan.size == 1 ? "env://" : plan.url.c_str(), &options, &comm);
  if (result == DL_OK) return std::make_shared<Comm>(comm, nullptr, std::move(secret));
  std::rethrow_exception(
      exception_of(nullptr, result,
                   " (reconfigure: of its ranks " + plan.members +
                       "; each of them must call it, with the same uuid and the same handles)"));
}

class ReconfigureWork final : public c10d::Work {
 public:
  explicit ReconfigureWork(int rank) : Work(rank) {
    future_->markCompleted(at::IValue(Tensors()));
    finish();
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::vector<at::Tensor> result() override { return {}; }

 private:
  const c10::intrusive_ptr<c10::ivalue::Future> future_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
};

// In an elastic process the launcher chooses the members.
class RecoveringGroup : public GroupBase {
 public:
  using GroupBase::GroupBase;

  bool supportsReconfigure() const override {
    const auto at = present();
    return !at || !at->comm->elastic;
  }
  // The same for as long as the group lives.
  c10d::ReconfigureHandle get_reconfigure_handle() const override {
    const WithoutGil others_run;
    check_supported();
    const std::lock_guard lock(handle_mutex_);
    if (handle_.empty()) handle_ = HandleMaker::make(address_for_members(origin().store));
    return handle_;
  }
  // Blocks until all members have come. Wrong options leave the group as it was; after that check
  // it has left its communicator, whatever the result. Not beside other calls on this group, except
  // for pending operations.
  WorkPtr reconfigure(const c10d::ReconfigureOptions& opts) override {
    if (!opts.hints.empty()) {
      TORCH_WARN_ONCE("dlring: reconfigure: it has no hints, and ignores these, as '",
                      opts.hints.begin()->first, "'");
    }
    const WithoutGil others_run;
    const std::lock_guard lock(reconfiguring_);
    const auto plan = plan_reconfigure(get_reconfigure_handle(), opts.uuid, by_rank(opts.handles));
    if (!uuids_.insert(opts.uuid).second) {
      refuse_reconfigure("the uuid " + std::to_string(opts.uuid) +
                         " was used by this group before: give a new one");
    }
    leave("reconfigure() was called and has not succeeded: call it with a new uuid");
    const double limit_s = opts.timeout ? limit_or_least(*opts.timeout) : default_limit();
    enter(meet_members(plan, limit_s, origin().limit_s));
    this->rank_ = plan.rank;
    this->size_ = plan.size;
    return c10::make_intrusive<ReconfigureWork>(getRank());
  }

 private:
  void check_supported() const {
    if (supportsReconfigure()) return;
    refuse_reconfigure("dlaunch moves this process from round to round: use dlaunch.torch.elastic");
  }

  // A list is in the order of the ranks. From a set each member makes the same list.
  static std::vector<std::string> by_rank(
      const decltype(c10d::ReconfigureOptions::handles)& handles) {
    if (const auto* list = std::get_if<std::vector<std::string>>(&handles)) return *list;
    const auto& set = std::get<0>(handles);
    std::vector<std::string> sorted(set.begin(), set.end());
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }

  mutable std::mutex handle_mutex_;
  mutable std::string handle_;  // "": not made yet
  std::mutex reconfiguring_;
  std::set<std::int64_t> uuids_;
};

}  // namespace dlring_torch

#else

namespace dlring_torch {
using RecoveringGroup = GroupBase;
}

#endif
