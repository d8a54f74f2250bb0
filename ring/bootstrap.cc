#include "ring/bootstrap.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "base/cpus.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "rendezvous/store.h"
#include "rendezvous/store_server_thread.h"
#include "ring/links/link_message.h"
#include "ring/shm/shm_memory.h"

namespace dlaunch {
namespace {

using Answer = LinkMessage::Answer;

// If the time of a rank that waits for a waiting rank were up first, it would blame that one. So
// each of the four stages waits a step longer: the first rank of a host, its memory, rank 0, its
// verdict. Ranks begin to wait at slightly different times.
constexpr Duration kPatience = std::chrono::milliseconds(300);

// The store of a job started by hand, served by its rank 0. It lives as long as the process: slower
// ranks may still read when this one has finished, and the next communicator uses it again.
Result<void> host_store(const JobView& job, const Secret& secret) {
  static std::mutex mutex;
  static auto* const hosted =
      new std::map<std::pair<std::string, std::string>, std::unique_ptr<StoreServerThread>>;
  const std::lock_guard lock(mutex);
  const auto key = std::pair(job.store_url, job.job_id);
  if (hosted->contains(key)) return {};
  auto endpoint = parse_endpoint(std::string_view(job.store_url).substr(6));
  if (!endpoint) return endpoint.error();
  auto server = StoreServerThread::start(*endpoint, job.job_id, secret);
  if (!server) return server.error();
  hosted->emplace(key, std::move(*server));
  return {};
}

class Bootstrap {
 public:
  Bootstrap(const JobView& job, Store& store, std::string prefix, AbortFlag& abort,
            TimePoint deadline)
      : job_(job), store_(store), prefix_(std::move(prefix)), abort_(abort), deadline_(deadline) {}

  Result<Bootstrapped> run(const Secret& secret, const ParentEnd* parent);

 private:
  // This rank's part of the agreement. Being unable to share memory is an answer, not a failure.
  LinkMessage try_sharing();
  LinkMessage share_segments();
  LinkMessage make_segments();
  LinkMessage hear_host(LinkMessage own);
  LinkMessage get_segments();
  Result<LinkMessage> agree(LinkMessage own);
  LinkMessage hear_all(LinkMessage own);
  void count_cores(const std::string& cpus);
  bool leads() const { return result_.locals.front() == job_.rank; }
  Peer& peer(int rank) { return result_.mesh.peers[static_cast<std::size_t>(rank)]; }
  LinkMessage failed_at(int rank, Error error);
  std::string self() const { return "rank " + std::to_string(job_.rank) + ": "; }

  const JobView& job_;
  Store& store_;
  const std::string prefix_;
  AbortFlag& abort_;
  const TimePoint deadline_;
  const std::string own_cpus_ = own_cpus();
  Bootstrapped result_;
  UniqueFd control_, data_;  // the segments of this host's ranks
  std::function<void()> fault_in_;
};

Result<Secret> job_secret(const JobView& job) {
  if (job.secret_file.empty()) return Secret();
  auto secret = Secret::load(job.secret_file);
  if (secret) secret->set_encrypts(job.tls);
  return secret;
}

Result<std::unique_ptr<Store>> open_store_of(const JobView& job, const Secret& secret,
                                             TimePoint deadline) {
  const std::string who =
      "rank " + std::to_string(job.rank) + " (pid " + std::to_string(::getpid()) + ")";
  return open_store(job.store_url, {job.job_id, secret, who, process_environment()}, deadline);
}

LinkMessage no(std::string why) {
  return {.answer = Answer::no, .error = {.code = Errc::unsupported, .what = std::move(why)}};
}

LinkMessage Bootstrap::failed_at(int rank, Error error) {
  error.what = "init: " + peer(rank).who + ": " + error.what;
  error.rank = rank;
  return {.answer = Answer::failed, .error = std::move(error)};
}

Result<Bootstrapped> Bootstrap::run(const Secret& secret, const ParentEnd* parent) {
  const auto mesh = make_mesh_maker(job_, secret, store_, prefix_, deadline_, parent, result_.mesh);
  if (auto ok = mesh->connect_links(); !ok) return ok.error();
  failpoint("bootstrap.meshed");

  for (int r = 0; r < job_.size; ++r) {
    if (r == job_.rank || peer(r).same_host) result_.locals.push_back(r);
  }
  const bool may_share = job_.transport == Transport::automatic ||
                         (job_.transport == Transport::shm && result_.mesh.one_host());
  LinkMessage own = may_share ? try_sharing() : no("the ranks are not all on one host");
  own.cpus = own_cpus_;
  own.cores = job_.local_cores;
  auto verdict = agree(std::move(own));
  if (!verdict) return verdict.error();
  if (verdict->answer == Answer::failed) return verdict->error;
  failpoint("bootstrap.agreed");
  result_.shared = verdict->answer == Answer::yes;
  if (result_.shared && fault_in_) {  // now all have mapped the segments
    if (leads()) seal_shm_data(data_);
    fault_in_();
  }
  result_.least_cores = verdict->cores;
  if (!result_.shared) {
    // Takes the CPUs of all hosts as one host's: this is enough to see whether each rank has a
    // core.
    count_cores(verdict->cpus);
    result_.shm.reset();
    result_.lives = {};
    result_.memory.reset();
    if (job_.transport == Transport::shm) {
      return Error{.code = Errc::unsupported, .what = "transport shm: " + verdict->error.what};
    }
    if (may_share && job_.rank == 0) {
      log_warn("no shared memory, using sockets instead: {}", verdict->error.what);
    }
  }
  if (!result_.shared || !result_.mesh.one_host()) {
    if (auto ok = mesh->connect_data(); !ok) return ok.error();
  }
  return std::move(result_);
}

LinkMessage Bootstrap::try_sharing() {
  if (result_.locals.size() == 1) return {};
  const int locals = static_cast<int>(result_.locals.size());
  LinkMessage answer = share_segments();
  failpoint("bootstrap.segments_passed");
  if (answer.answer != Answer::yes) return answer;
  count_cores(answer.cpus);
  const auto place = std::find(result_.locals.begin(), result_.locals.end(), job_.rank);
  const int local_rank = static_cast<int>(place - result_.locals.begin());
  auto lives = map_lives(control_, locals);
  if (!lives) return no(self() + lives.error().what);
  result_.lives = std::move(*lives);
  result_.regions = std::make_shared<ShmRegions>(local_rank);
  auto memory = map_shm(local_rank, locals, control_, data_);
  if (!memory) return no(self() + memory.error().what);
  result_.memory = std::make_shared<HostMemory>(*memory);
  fault_in_ = [memory = *memory] { memory.fault_in(); };
  std::vector<int> all(result_.locals.size());
  std::iota(all.begin(), all.end(), 0);
  result_.shm = make_shm_plane(local_rank, std::move(*memory), abort_,
                               {.usable_cores = result_.cores,
                                .names = result_.locals,
                                .regions = result_.regions,
                                .plan_rules = job_.plan_rules,
                                .host_memory = result_.memory,
                                .host_ranks = std::move(all)});
  return {};
}

// Takes the launcher's count, or that of these CPUs.
void Bootstrap::count_cores(const std::string& cpus) {
  result_.cores = job_.local_cores > 0 ? job_.local_cores : std::max(1, count_cpus(cpus));
}

// The first rank of the host makes the segments, hears all ranks of the host, and then passes the
// segments and the CPUs of all to each. If it cannot, or some rank is lost, it tells them that.
LinkMessage Bootstrap::share_segments() {
  if (!leads()) return get_segments();
  LinkMessage answer = hear_host(make_segments());
  std::vector<int> fds;
  if (answer.answer == Answer::yes) fds = {control_.get(), data_.get()};
  for (const int r : result_.locals) {
    if (r == job_.rank) continue;
    auto sent = send_link_message(peer(r).link.get(), answer, fds, deadline_);
    if (!sent && answer.answer != Answer::failed) answer = failed_at(r, sent.error());
    if (answer.answer != Answer::yes) fds.clear();
  }
  return answer;
}

LinkMessage Bootstrap::make_segments() {
  const int locals = static_cast<int>(result_.locals.size());
  auto control = make_shm_control(locals);
  if (!control) return no(self() + control.error().what);
  auto data = make_shm_data(locals);
  if (!data) return no(self() + data.error().what);
  control_ = std::move(*control);
  data_ = std::move(*data);
  failpoint("bootstrap.segments_made");
  return {};
}

LinkMessage Bootstrap::hear_host(LinkMessage own) {
  own.cpus = own_cpus_;
  for (const int r : result_.locals) {
    if (r == job_.rank) continue;
    auto got = receive_link_message(peer(r).link.get(), deadline_after(deadline_, kPatience));
    if (!got) return failed_at(r, got.error());
    if (got->answer == Answer::failed) return std::move(*got);
    own.cpus = united(std::move(own.cpus), got->cpus);
  }
  return own;
}

LinkMessage Bootstrap::get_segments() {
  const int leader = result_.locals.front();
  const int link = peer(leader).link.get();
  LinkMessage here;
  here.cpus = own_cpus_;
  auto sent = send_link_message(link, here, {}, deadline_);
  auto got = sent ? receive_link_message(link, deadline_after(deadline_, 2 * kPatience))
                  : Result<LinkMessage>(sent.error());
  if (!got) return failed_at(leader, got.error());
  if (got->answer != Answer::yes) return std::move(*got);
  if (got->fds.size() != 2) {
    return no(self() + "no room for more descriptors: is 'ulimit -n' too low?");
  }
  control_ = std::move(got->fds[0]);
  data_ = std::move(got->fds[1]);
  return std::move(*got);
}

// All report to rank 0, and rank 0 answers all: `yes` if all said so, else the first other answer.
Result<LinkMessage> Bootstrap::agree(LinkMessage own) {
  if (job_.rank == 0) {
    auto verdict = hear_all(std::move(own));
    failpoint("bootstrap.heard_all");
    // The addresses are no longer needed, and the next bootstrap here must not find them. Remove
    // them before any rank's init returns, so that no rank comes back too early.
    if (verdict.answer != Answer::failed) {
      if (auto ok = store_.delete_prefix(prefix_ + "/addr/", deadline_); !ok) {
        verdict = {.answer = Answer::failed, .error = ok.error()};
      }
    }
    for (int r = 1; r < job_.size; ++r) {
      failpoint("bootstrap.tells_verdict");
      auto sent = send_link_message(peer(r).link.get(), verdict, {}, deadline_);
      if (!sent && verdict.answer != Answer::failed) verdict = failed_at(r, sent.error());
    }
    return verdict;
  }
  // If rank 0 has ended it has sent the reason before, if it could.
  failpoint("bootstrap.tells_own");
  auto sent = send_link_message(peer(0).link.get(), own, {}, deadline_);
  failpoint("bootstrap.awaits_verdict");
  auto verdict = receive_link_message(peer(0).link.get(), deadline_after(deadline_, 4 * kPatience));
  // A rank that gave up in the middle of the exchange may find rank 0's part of it before the
  // verdict.
  if (verdict && own.answer == Answer::failed && verdict->answer != Answer::failed) {
    verdict = receive_link_message(peer(0).link.get(), deadline_after(deadline_, 4 * kPatience));
  }
  if (verdict) return verdict;
  if (own.answer == Answer::failed) return own.error;
  return failed_at(0, sent ? verdict.error() : sent.error()).error;
}

LinkMessage Bootstrap::hear_all(LinkMessage own) {
  std::string cpus = own.cpus;
  std::int32_t least = own.cores;
  for (int r = 1; r < job_.size && own.answer != Answer::failed; ++r) {
    auto got = receive_link_message(peer(r).link.get(), deadline_after(deadline_, 3 * kPatience));
    if (!got) return failed_at(r, got.error());
    cpus = united(std::move(cpus), got->cpus);
    if (got->cores > 0 && (least == 0 || got->cores < least)) least = got->cores;
    if (got->answer == Answer::failed || own.answer == Answer::yes) own = std::move(*got);
  }
  own.cores = least > 0 ? least : std::max(1, count_cpus(cpus));
  own.cpus = std::move(cpus);
  return own;
}

}  // namespace

Result<Bootstrapped> bootstrap(const JobView& job, AbortFlag& abort, const ParentEnd* parent) {
  const auto deadline = deadline_after(steady_now(), job.init_timeout);
  // Check before anything opens that others may wait for.
  if (!job.interface.empty()) {
    if (auto address = listen_address(job); !address) return address.error();
  }
  const auto secret = job_secret(job);
  if (!secret) return secret.error();
  if (job.hosts_store) {
    if (auto ok = host_store(job, *secret); !ok) return ok.error();
  }
  auto store = open_store_of(job, *secret, deadline);
  if (!store) return store.error();

  // Communicators use the same keys one after the other: before any rank returns, the keys
  // of the last one are gone.
  const std::string prefix = "ring/" + job.key_space();
  return Bootstrap(job, **store, prefix, abort, deadline).run(*secret, parent);
}

Result<std::unique_ptr<Store>> open_job_store(const JobView& job, TimePoint deadline) {
  const auto secret = job_secret(job);
  if (!secret) return secret.error();
  return open_store_of(job, *secret, deadline);
}

}  // namespace dlaunch
