// Sites that train together: several endpoints in this process, over loopback.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dlaunch/outer.hpp>
#include <dlaunch/sites.h>
#include <doctest/doctest.h>

#include "base/address.h"
#include "base/log.h"
#include "base/site_list.h"
#include "base/socket.h"
#include "base/unique_fd.h"
#include "ring/api.h"
#include "ring/call/slices.h"
#include "ring/outer_sites.h"
#include "ring/sites/outer_merge.h"
#include "ring/sites/site_journal.h"
#include "ring/sites/site_lookup.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/temp_folder.h"

namespace dlaunch {

using namespace std::chrono_literals;

inline constexpr std::size_t kCount = 700;
inline constexpr double kTimeout = kSanitized ? 5 : 2;

// A port below those that the kernel gives to others: it is free until a site listens there, and
// while the site is away.
inline std::uint16_t new_port() {
  static std::uint32_t next = static_cast<std::uint32_t>(::getpid()) * 37;
  while (true) {
    const auto port = static_cast<std::uint16_t>(10000 + next++ % 18000);
    const UniqueFd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return port;
  }
}

// Sites a, b, … at free ports of this host.
struct SiteWorld {
  explicit SiteWorld(int sites) {
    for (int i = 0; i < sites; ++i) {
      ports.push_back(new_port());
      list += (i == 0 ? "" : ",") + name(i) + "=127.0.0.1:" + std::to_string(ports.back());
    }
    set_secret("a secret of all sites");
  }
  static std::string name(int site) { return std::string(1, static_cast<char>('a' + site)); }
  std::string set_secret(const std::string& bytes) {
    const std::string path = (folder.path / ("secret" + std::to_string(bytes.size()))).string();
    std::ofstream(path) << bytes;
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
    return secret = path;
  }
  std::string journal(int site) const { return (folder.path / (name(site) + ".journal")).string(); }

  TempFolder folder;
  std::vector<std::uint16_t> ports;
  std::string list, secret;
};

// One life of a site: trains from its own weights in a thread.
class SiteRun {
 public:
  struct Plan {
    dl::OuterOptions outer = {};
    std::uint64_t steps = 12;
    double grace = 60;
    dl_sites_late late = DL_SITES_CARRY;
    std::string secret = {};                                    // ""; the world's
    std::function<void(std::uint64_t steps)> before_step = {};  // with the steps so far
    bool finishes = true;                                       // else it vanishes after its steps
    float amount = 0;                                           // of each step; 0: random
    std::function<void()> before_steps = {};                    // outer exists
    std::function<void()> before_finish = {};
    int rank = 0, ranks = 1;  // of the site
    double op_timeout = 60;
    double timeout = kTimeout;
    // A busy machine can lose a site for a while: the others wait for it at the end, and no wait is
    // without limit.
    double wait = 120;
    double linger = 60;
  };

  SiteRun(const SiteWorld& world, int site, Plan plan)
      : world_(world), site_(site), plan_(std::move(plan)) {
    if (plan_.amount == 0) w.assign(kCount, static_cast<float>(site));
    thread_ = std::thread([this] { run(); });
  }
  ~SiteRun() { join(); }
  SiteRun(const SiteRun&) = delete;
  SiteRun& operator=(const SiteRun&) = delete;
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    if (comm_ != nullptr) dl_abort(comm_);
  }

  std::vector<float> w = std::vector<float>(kCount, 1.0F);
  std::vector<float> residual;
  std::string error;  // "": it went well
  dl_sites_info info{};
  double work = 0;                      // of the first element, in all steps
  std::atomic<std::uint64_t> done = 0;  // steps
  std::atomic<bool> over = false;
  // From the first step to the last.
  std::atomic<dl_sites*> sites = nullptr;
  std::atomic<dl_outer*> outer = nullptr;
  std::uint64_t merges() const {  // any thread
    dl_sites_info now{};
    now.struct_size = sizeof now;
    return sites != nullptr && dl_sites_get_info(sites, &now) == DL_OK ? now.merges : 0;
  }

 private:
  void run() {
    dl_options options;
    dl_options_init(&options);
    options.rank = plan_.rank;
    options.size = plan_.ranks;
    options.op_timeout_s = plan_.op_timeout;
    const auto meeting = world_.folder.path / SiteWorld::name(site_);
    std::filesystem::create_directories(meeting);
    const std::string url = "file://" + meeting.string();
    const std::string secret = plan_.secret.empty() ? world_.secret : plan_.secret;
    options.secret_file = secret.c_str();
    dl_comm* made = nullptr;
    if (dl_init(plan_.ranks == 1 ? nullptr : url.c_str(), &options, &made) != DL_OK)
      error = dl_last_error(nullptr);
    comm_ = made;
    if (error.empty()) train();
    const std::lock_guard lock(mutex_);
    over = true;
    comm_ = nullptr;
    dl_finalize(made);
  }
  bool well(dl_result result) {
    if (result != DL_OK) error = dl_last_error(comm_);
    return result == DL_OK;
  }
  void train() {
    dl_sites_options options;
    dl_sites_options_init(&options);
    const std::string own = SiteWorld::name(site_), folder = world_.folder.path.string();
    options.sites = world_.list.c_str();
    options.site = own.c_str();
    options.grace_s = plan_.grace;
    options.timeout_s = plan_.timeout;
    options.wait_s = plan_.wait;
    options.linger_s = plan_.linger;
    options.journal = folder.c_str();
    options.late = plan_.late;
    dl_sites* of = nullptr;
    if (!well(dl_sites_open(comm_, &options, &of))) return;
    sites = plan_.outer.sites = of;
    float* at = w.data();
    const std::size_t count = w.size();
    dl_outer* made = nullptr;
    if (well(dl_outer_new(comm_, &plan_.outer, 1, &at, &count, &made))) steps(outer = made);
    if (error.empty() && plan_.before_finish) plan_.before_finish();
    if (error.empty() && plan_.finishes) well(dl_outer_finish(made));
    void* lost = nullptr;
    std::size_t bytes = 0;
    dl_outer_residual(made, &lost, &bytes);
    residual.assign(static_cast<float*>(lost), static_cast<float*>(lost) + bytes / sizeof(float));
    info.struct_size = sizeof info;
    dl_sites_get_info(of, &info);
    done = dl_outer_steps(made);
    sites = nullptr;
    outer = nullptr;
    dl_outer_free(made);
    if (!plan_.finishes || !error.empty()) of->end_endpoint();  // as a process that dies
    dl_sites_close(of);
  }
  void steps(dl_outer* made) {
    if (plan_.before_steps) plan_.before_steps();
    while (error.empty() && dl_outer_steps(made) < plan_.steps) {
      const std::uint64_t before = dl_outer_steps(made);
      if (plan_.before_step) plan_.before_step(before);
      inner_step(before);
      well(dl_outer_step(made));
      done = dl_outer_steps(made);
    }
  }
  void inner_step(std::uint64_t step) {
    std::mt19937 random(static_cast<unsigned>(site_ * 7919) + static_cast<unsigned>(step));
    for (std::size_t i = 0; i < w.size(); ++i) {
      const float noise = static_cast<float>(random() % 1000) / 1000 - 0.5F;
      w[i] -= plan_.amount != 0 ? plan_.amount : 0.05F * (w[i] - static_cast<float>(i % 7) + noise);
    }
    work += plan_.amount;
  }

  const SiteWorld& world_;
  const int site_;
  Plan plan_;
  std::mutex mutex_;  // of the end of comm_
  std::atomic<dl_comm*> comm_ = nullptr;
  std::thread thread_;
};

// What a site saves and restores: its parameters, and the state of its outer optimizer.
class SavedSite {
 public:
  void save(const SiteRun& run) {
    const auto bytes = memory_of(run);
    outer_.assign(bytes.begin(), bytes.end());
    w_ = run.w;
  }
  void restore(SiteRun& run) const {
    std::ranges::copy(w_, run.w.begin());  // the outer optimizer has its address
    std::ranges::copy(outer_, memory_of(run).begin());
    CHECK(dl_outer_restored(run.outer) == DL_OK);
  }

 private:
  static std::span<char> memory_of(const SiteRun& run) {
    void *shared = nullptr, *residual = nullptr;
    std::size_t bytes = 0, more = 0;
    dl_outer_shared(run.outer, &shared, &bytes);
    dl_outer_residual(run.outer, &residual, &more);  // behind the other
    return {static_cast<char*>(shared), bytes + more};
  }

  std::vector<char> outer_;
  std::vector<float> w_;
};

inline std::span<float> residual_of(const SiteRun& run) {
  void* at = nullptr;
  std::size_t bytes = 0;
  dl_outer_residual(run.outer, &at, &bytes);
  return {static_cast<float*>(at), bytes / sizeof(float)};
}

inline dl::OuterOptions exact(int inner_steps) { return dl::OuterOptions::local_sgd(inner_steps); }

inline dl::OuterOptions in_few_bits() {
  dl::OuterOptions options;
  options.inner_steps = 4;
  options.fragments = 2;
  options.delay = 1;
  options.mixing = 0.25;
  options.codec = DL_CODEC_INT4;
  return options;
}

inline std::string bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

inline void wait_for(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (!condition()) {
    REQUIRE(std::chrono::steady_clock::now() < limit);
    std::this_thread::sleep_for(1ms);
  }
}

// Until somebody connects to a port of this host.
inline void wait_for_caller(std::uint16_t port) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(fd.get(), 1) == 0);
  const UniqueFd caller(::accept(fd.get(), nullptr, nullptr));
  REQUIRE(caller);
}

}  // namespace dlaunch
