#include "rendezvous/etcd_election.h"

#include <utility>

#include "base/secret.h"
#include "base/text.h"

namespace dlaunch {
namespace {

class EtcdElection final : public LeaderElection {
 public:
  EtcdElection(std::unique_ptr<EtcdClient> client, const std::string& job_id, std::string nonce)
      : client_(std::move(client)),
        key_(client_->prefix() + job_id + "/leader"),
        journal_(client_->prefix() + job_id + "/journal"),
        nonce_(std::move(nonce)) {}

  Result<std::optional<Leader>> find(TimePoint deadline) override;
  void wait_change(TimePoint deadline) override { client_->wait_change(key_, seen_, deadline); }
  Result<bool> campaign(TimePoint deadline) override;
  Result<void> announce(const std::string& endpoint, TimePoint deadline) override;
  Result<void> keep(TimePoint deadline) override;
  Result<void> write_journal(const std::string& journal, TimePoint deadline) override {
    return write(journal_, journal, 0, deadline);
  }
  Result<std::string> read_journal(TimePoint deadline) override;
  void resign(TimePoint deadline) override;

 private:
  Result<void> write(const std::string& key, const std::string& value, std::int64_t lease,
                     TimePoint deadline);
  EtcdCondition ours() const { return {key_, EtcdCondition::Of::created, term_, ""}; }
  Error lost() const {
    return {.code = Errc::aborted, .what = client_->name() + ": another host leads this job now"};
  }

  std::unique_ptr<EtcdClient> client_;
  const std::string key_, journal_, nonce_;
  std::int64_t seen_ = 0;  // the revision of the latest answer
  std::int64_t lease_ = 0;
  std::int64_t term_ = 0;  // while we lead
};

Result<std::optional<Leader>> EtcdElection::find(TimePoint deadline) {
  auto answer = client_->transact({{}, {EtcdGet{key_}}, {}}, deadline);
  if (!answer) return answer.error();
  seen_ = answer->revision;
  if (answer->items.empty()) return std::optional<Leader>();
  const EtcdItem& item = answer->items.front();
  const auto space = item.value.find(' ');
  Leader leader{static_cast<std::uint64_t>(item.created), ""};
  if (space != item.value.npos) {
    leader.endpoint = escaped(std::string_view(item.value).substr(space + 1));
  }
  return std::optional(std::move(leader));
}

Result<bool> EtcdElection::campaign(TimePoint deadline) {
  const auto ttl = std::chrono::duration_cast<std::chrono::seconds>(kTtl).count();
  auto lease = client_->grant(ttl, deadline);
  if (!lease) return lease.error();
  const EtcdCondition nobody{.key = key_};
  auto answer = client_->transact(
      {{nobody}, {EtcdPut{key_, nonce_ + " ", *lease}, EtcdGet{key_}}, {EtcdGet{key_}}}, deadline);
  if (!answer) return answer.error();
  seen_ = answer->revision;
  // We also lead if the key was created and only the answer was lost.
  const bool won = !answer->items.empty() && answer->items.front().value.starts_with(nonce_) &&
                   answer->items.front().lease == *lease;
  if (!won) {
    (void)client_->revoke(*lease, deadline);
    return false;
  }
  lease_ = *lease;
  term_ = answer->items.front().created;
  return true;
}

Result<void> EtcdElection::announce(const std::string& endpoint, TimePoint deadline) {
  return write(key_, nonce_ + " " + endpoint, lease_, deadline);
}

Result<void> EtcdElection::write(const std::string& key, const std::string& value,
                                 std::int64_t lease, TimePoint deadline) {
  if (term_ == 0) return lost();
  auto answer = client_->transact({{ours()}, {EtcdPut{key, value, lease}}, {}}, deadline);
  if (!answer) return answer.error();
  if (!answer->held) return lost();
  return {};
}

Result<std::string> EtcdElection::read_journal(TimePoint deadline) {
  auto answer = client_->transact({{}, {EtcdGet{journal_}}, {}}, deadline);
  if (!answer) return answer.error();
  return answer->items.empty() ? std::string() : std::move(answer->items.front().value);
}

Result<void> EtcdElection::keep(TimePoint deadline) {
  auto kept = client_->keep(lease_, deadline);
  if (!kept) return kept.error();
  if (!*kept) return lost();
  return {};
}

void EtcdElection::resign(TimePoint deadline) {
  if (term_ == 0) return;
  (void)client_->transact({{ours()}, {EtcdDelete{.key = journal_}}, {}}, deadline);
  (void)client_->revoke(lease_, deadline);
  term_ = lease_ = 0;
}

}  // namespace

Result<std::unique_ptr<LeaderElection>> open_etcd_election(EtcdAccess access,
                                                           const std::string& job_id) {
  auto client = EtcdClient::open(std::move(access));
  if (!client) return client.error();
  auto nonce = random_hex(8);
  if (!nonce) return nonce.error();
  return std::unique_ptr<LeaderElection>(
      new EtcdElection(std::move(*client), job_id, std::move(*nonce)));
}

}  // namespace dlaunch
