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
#include "ring/links/agreement_tree.h"
#include "ring/links/late_links.h"
#include "ring/links/link_message.h"
#include "ring/shm/shm_memory.h"

namespace dlaunch {
namespace {

using Answer = LinkMessage::Answer;

// If the time of a rank that waits for a waiting rank were up first, it would blame that one. So
// each of the four stages waits a step longer: the first rank of a host, its memory, rank 0, its
// verdict. Ranks begin to wait at slightly different times.
constexpr Duration kPatience = std::chrono::milliseconds(300);
constexpr const char* kNoRoom = "no room for more descriptors: is 'ulimit -n' too low?";

// The store of a job started by hand; its rank 0 serves it. It lives as long as the process: slower
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
  endpoint->host = store_address(job, endpoint->host);
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
  Result<bool> share_along_tree(MeshMaker& mesh);
  Result<LinkMessage> agree_among_hosts(MeshMaker& mesh);
  LinkMessage share_on_host(MeshMaker& mesh);
  Result<void> take_facts(const LinkMessage& told);
  Result<LinkMessage> conclude(AgreementTree& tree, LinkMessage own,
                               const AgreementTree::Decide& decide);
  RankFacts own_facts(std::uint64_t host) const;
  Result<void> meet(MeshMaker& mesh);
  Result<void> settle(const LinkMessage& verdict);
  LinkMessage with_segments(LinkMessage all);
  LinkMessage publish_contact(MeshMaker& mesh);
  void name_others();
  LinkMessage share_segments();
  LinkMessage make_segments();
  LinkMessage hear_host(LinkMessage own);
  LinkMessage get_segments();
  bool take_segments(LinkMessage& from);
  LinkMessage map_segments(const std::string& cpus);
  void use_segments();
  void share_nothing();
  Result<LinkMessage> agree(LinkMessage own);
  LinkMessage hear_all(LinkMessage own);
  LinkMessage with_own_cores(LinkMessage own) const;
  static LinkMessage with_cores(LinkMessage all);
  LinkMessage forget_addresses(LinkMessage verdict);
  void count_cores(const std::string& cpus);
  bool leads() const { return result_.locals.front() == job_.rank; }
  Peer& peer(int rank) { return result_.mesh.peers[static_cast<std::size_t>(rank)]; }
  std::string self() const { return "rank " + std::to_string(job_.rank) + ": "; }

  const JobView& job_;
  Store& store_;
  const std::string prefix_;
  AbortFlag& abort_;
  const TimePoint deadline_;
  const std::string own_cpus_ = own_cpus();
  Bootstrapped result_;
  std::string why_not_;      // all ranks do not share memory
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
  if (job.hosts_store) {
    if (auto ok = host_store(job, secret); !ok) return ok.error();
  }
  const std::string who =
      "rank " + std::to_string(job.rank) + " (pid " + std::to_string(::getpid()) + ")";
  return open_store(job.store_url, {job.job_id, secret, who, process_environment()}, deadline);
}

LinkMessage no(std::string why) {
  return {.answer = Answer::no, .error = {.code = Errc::unsupported, .what = std::move(why)}};
}

Result<Bootstrapped> Bootstrap::run(const Secret& secret, const ParentEnd* parent) {
  {
    const auto mesh =
        make_mesh_maker(job_, secret, store_, prefix_, deadline_, parent, result_.mesh);
    if (auto ok = meet(*mesh); !ok) return ok.error();
  }
  return std::move(result_);
}

Result<void> Bootstrap::meet(MeshMaker& mesh) {
  if (auto ok = mesh.connect_links(); !ok) return ok;
  failpoint("bootstrap.meshed");
  if (!job_.link_graph().complete()) {
    const auto shares = share_along_tree(mesh);
    if (!shares) return shares.error();
    if (*shares) return {};
    failpoint("bootstrap.has_hosts");
    auto verdict = agree_among_hosts(mesh);
    return verdict ? settle(*verdict) : verdict.error();
  }

  for (int r = 0; r < job_.size; ++r) {
    if (r == job_.rank || peer(r).same_host) result_.locals.push_back(r);
  }
  const bool may_share = job_.transport == Transport::automatic ||
                         (job_.transport == Transport::shm && result_.mesh.one_host());
  LinkMessage own = may_share ? try_sharing() : no("the ranks are not all on one host");
  own.facts = encode(own_facts(static_cast<std::uint64_t>(result_.locals.front())));
  auto verdict = agree(with_own_cores(std::move(own)));
  if (!verdict) return verdict.error();
  if (verdict->answer == Answer::failed) return verdict->error;
  if (auto ok = take_facts(*verdict); !ok) return ok;
  return settle(*verdict);
}

// What all have agreed on.
Result<void> Bootstrap::settle(const LinkMessage& verdict) {
  failpoint("bootstrap.agreed");
  result_.least_cores = verdict.cores;
  if (verdict.answer == Answer::yes) {
    use_segments();
  } else {
    // Takes the CPUs of all hosts as one host's: this is enough to see whether each rank has a
    // core.
    count_cores(verdict.cpus);
    share_nothing();
    if (job_.transport == Transport::shm) {
      return Error{.code = Errc::unsupported, .what = "transport shm: " + verdict.error.what};
    }
    if (job_.transport == Transport::automatic && job_.rank == 0) {
      log_warn("no shared memory, using sockets instead: {}", verdict.error.what);
    }
  }
  if (result_.shared && result_.all_local()) result_.mesh.sockets.reset();
  return {};
}

RankFacts Bootstrap::own_facts(std::uint64_t host) const {
  return {.rank = job_.rank,
          .host = host,
          .codec = job_.codec,
          .round_trip = result_.mesh.round_trip(),
          .rack = job_.rack,
          .at = result_.mesh.sockets->target()};
}

LinkMessage Bootstrap::try_sharing() {
  if (result_.locals.size() == 1) return {};
  LinkMessage answer = share_segments();
  failpoint("bootstrap.segments_passed");
  return answer.answer == Answer::yes ? map_segments(answer.cpus) : std::move(answer);
}

// cpus: of all ranks of this host.
LinkMessage Bootstrap::map_segments(const std::string& cpus) {
  count_cores(cpus);
  const int locals = static_cast<int>(result_.locals.size());
  const auto place = std::find(result_.locals.begin(), result_.locals.end(), job_.rank);
  const int local_rank = static_cast<int>(place - result_.locals.begin());
  auto others = map_neighbourhood(control_, locals);
  if (!others) return no(self() + others.error().what);
  result_.lives = std::move(others->lives);
  result_.contacts = std::move(others->contacts);
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

// Now all have mapped the segments.
void Bootstrap::use_segments() {
  result_.shared = true;
  if (!fault_in_) return;
  if (leads()) seal_shm_data(data_);
  fault_in_();
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
    if (!sent && answer.answer != Answer::failed) answer = failed_at(result_.mesh, r, sent.error());
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
    if (!got) return failed_at(result_.mesh, r, got.error());
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
  if (!got) return failed_at(result_.mesh, leader, got.error());
  if (got->answer == Answer::yes && !take_segments(*got)) return no(self() + kNoRoom);
  return std::move(*got);
}

bool Bootstrap::take_segments(LinkMessage& from) {
  if (from.fds.size() != 2) return false;
  control_ = std::move(from.fds[0]);
  data_ = std::move(from.fds[1]);
  return true;
}

// All report to rank 0, and rank 0 answers all: `yes` if all said so, else the first other answer.
Result<LinkMessage> Bootstrap::agree(LinkMessage own) {
  if (job_.rank == 0) {
    auto verdict = hear_all(std::move(own));
    failpoint("bootstrap.heard_all");
    if (verdict.answer != Answer::failed) verdict = forget_addresses(std::move(verdict));
    for (int r = 1; r < job_.size; ++r) {
      failpoint("bootstrap.tells_verdict");
      auto sent = send_link_message(peer(r).link.get(), verdict, {}, deadline_);
      if (!sent && verdict.answer != Answer::failed)
        verdict = failed_at(result_.mesh, r, sent.error());
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
  return failed_at(result_.mesh, 0, sent ? verdict.error() : sent.error()).error;
}

// The addresses are no longer needed, and the next bootstrap here must not find them. Remove them
// before any rank's init returns, so that no rank comes back too early.
LinkMessage Bootstrap::forget_addresses(LinkMessage verdict) {
  auto ok = store_.delete_prefix(prefix_ + "/addr/", deadline_);
  return ok ? std::move(verdict) : LinkMessage{.answer = Answer::failed, .error = ok.error()};
}

LinkMessage Bootstrap::hear_all(LinkMessage own) {
  for (int r = 1; r < job_.size && own.answer != Answer::failed; ++r) {
    auto got = receive_link_message(peer(r).link.get(), deadline_after(deadline_, 3 * kPatience));
    if (!got) return failed_at(result_.mesh, r, got.error());
    own = joined(std::move(own), std::move(*got));
  }
  return with_cores(std::move(own));
}

// What this rank says of its CPUs, beside its answer.
LinkMessage Bootstrap::with_own_cores(LinkMessage own) const {
  own.cpus = own_cpus_;
  own.cores = job_.local_cores;
  return own;
}

// Rank 0 counts the CPUs of all where no launcher has said how many cores there are.
LinkMessage Bootstrap::with_cores(LinkMessage all) {
  if (all.cores == 0) all.cores = std::max(1, count_cpus(all.cpus));
  return all;
}

// The ranks have links with their neighbours only, and tell each other where they are. Those of a
// host share memory along a tree of their own.
Result<LinkMessage> Bootstrap::agree_among_hosts(MeshMaker& mesh) {
  AgreementTree all(job_.rank, result_.mesh, deadline_);
  const bool may_share = job_.transport == Transport::automatic;
  LinkMessage own;
  own.facts =
      encode(own_facts(may_share ? own_host_number() : static_cast<std::uint64_t>(job_.rank)));
  const LinkMessage told = all.agree(std::move(own), [](LinkMessage verdict) { return verdict; });
  if (told.answer == Answer::failed) return told.error;
  if (auto ok = take_facts(told); !ok) return ok.error();
  name_others();
  const std::uint64_t here = result_.facts[static_cast<std::size_t>(job_.rank)].host;
  result_.locals.clear();
  for (const RankFacts& rank : result_.facts) {
    if (rank.host == here) result_.locals.push_back(rank.rank);
  }

  // All on one host have tried it just now.
  const bool tried = result_.all_local();
  own = tried || !may_share ? no(why_not_) : LinkMessage{};
  if (!tried && result_.locals.size() > 1) own = share_on_host(mesh);
  failpoint("bootstrap.shared_on_host");
  return conclude(all, std::move(own), [this](LinkMessage heard) {
    return heard.answer == Answer::failed ? std::move(heard)
                                          : forget_addresses(with_cores(std::move(heard)));
  });
}

// The facts of all ranks.
Result<void> Bootstrap::take_facts(const LinkMessage& told) {
  auto facts = decode_rank_facts(told.facts, job_.size);
  if (!facts) return facts.error();
  result_.facts = std::move(*facts);
  return {};
}

// Without a word others, which may have begun, would take a rank that fails here for the lost one.
Result<LinkMessage> Bootstrap::conclude(AgreementTree& tree, LinkMessage own,
                                        const AgreementTree::Decide& decide) {
  LinkMessage verdict = tree.agree(with_own_cores(std::move(own)), decide);
  if (verdict.answer != Answer::failed) return verdict;
  tell_control_threads(result_.mesh, verdict.error);
  return verdict.error;
}

// Being unable to share memory is an answer, not a failure.
LinkMessage Bootstrap::share_on_host(MeshMaker& mesh) {
  AgreementTree tree(job_.rank, result_.locals, result_.mesh, deadline_);
  auto linked = mesh.connect_more(tree.neighbours(), result_.facts);
  if (!linked) return {.answer = Answer::failed, .error = linked.error()};
  const auto passes = [this](int r) { return peer(r).same_host; };
  const auto neighbours = tree.neighbours();
  LinkMessage own = std::all_of(neighbours.begin(), neighbours.end(), passes)
                        ? LinkMessage{}
                        : no(self() + "no AF_UNIX connection with a rank of this host");
  LinkMessage got = tree.agree(with_own_cores(std::move(own)), [this](LinkMessage all) {
    return all.answer == Answer::yes ? with_segments(std::move(all)) : std::move(all);
  });
  if (got.answer != Answer::yes) return got;
  return take_segments(got) ? map_segments(got.cpus) : no(self() + kNoRoom);
}

// The ranks have links with their neighbours only. False: not all of them share memory on one host.
Result<bool> Bootstrap::share_along_tree(MeshMaker& mesh) {
  AgreementTree tree(job_.rank, result_.mesh, deadline_);
  result_.locals.resize(static_cast<std::size_t>(job_.size));
  std::iota(result_.locals.begin(), result_.locals.end(), 0);
  // Later links are made between processes of one user.
  const auto of_own_user = [](const Peer& other) {
    return !other.link || is_of_own_user(other.link.get());
  };
  const auto& peers = result_.mesh.peers;
  const bool here = job_.transport != Transport::tcp && result_.mesh.one_host() &&
                    std::all_of(peers.begin(), peers.end(), of_own_user);
  LinkMessage own = here ? LinkMessage{} : no("the ranks are not all on one host");
  LinkMessage first = tree.agree(with_own_cores(std::move(own)), [this](LinkMessage all) {
    return all.answer == Answer::yes ? with_segments(std::move(all)) : std::move(all);
  });
  if (first.answer == Answer::failed) return first.error;
  if (first.answer == Answer::no) {
    why_not_ = first.error.what;
    return false;
  }

  own = take_segments(first) ? map_segments(first.cpus) : no(self() + kNoRoom);
  if (own.answer == Answer::yes) own = publish_contact(mesh);
  const auto verdict = conclude(tree, std::move(own), [this](LinkMessage all) {
    return all.answer == Answer::yes ? forget_addresses(with_cores(std::move(all)))
                                     : std::move(all);
  });
  if (!verdict) return verdict.error();
  if (verdict->answer == Answer::no) {
    share_nothing();
    why_not_ = verdict->error.what;
    return false;
  }
  failpoint("bootstrap.agreed");
  result_.least_cores = verdict->cores;
  use_segments();
  result_.mesh.sockets.reset();
  name_others();
  return true;
}

LinkMessage Bootstrap::with_segments(LinkMessage all) {
  LinkMessage made = make_segments();
  if (made.answer != Answer::yes) return made;
  all.fds.push_back(std::move(control_));
  all.fds.push_back(std::move(data_));
  return all;
}

// Where ranks that have no link with this one find it.
LinkMessage Bootstrap::publish_contact(MeshMaker& mesh) {
  const auto hex = mesh.open_listener();
  if (!hex) return no(self() + hex.error().what);
  const auto token = random_bytes(sizeof(Contact::token));
  if (!token) return no(self() + token.error().what);
  DL_ASSERT(hex->size() == sizeof(Contact::listener));
  Contact& own = *result_.contacts.of[static_cast<std::size_t>(job_.rank)];
  own.pid = static_cast<std::uint32_t>(::getpid());
  own_host_name().copy(own.host, sizeof own.host - 1);
  std::copy(hex->begin(), hex->end(), own.listener);
  std::copy(token->begin(), token->end(), own.token);
  return {};
}

// The ranks without a link.
void Bootstrap::name_others() {
  for (int r = 0; r < job_.size; ++r) {
    if (!peer(r).who.empty()) continue;
    if (!result_.facts.empty()) {
      peer(r).who = result_.facts[static_cast<std::size_t>(r)].at.who;
      continue;
    }
    const Contact& contact = *result_.contacts.of[static_cast<std::size_t>(r)];
    peer(r).who = describe_rank(job_.world_rank(r), static_cast<int>(contact.pid), contact.host);
  }
}

void Bootstrap::share_nothing() {
  result_.shm.reset();
  result_.lives = {};
  result_.contacts = {};
  result_.mesh.listener.reset();
  result_.memory.reset();
  result_.regions.reset();
  fault_in_ = nullptr;
  control_.reset();
  data_.reset();
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
