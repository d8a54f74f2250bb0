#include "launcher/wire/job_journal.h"

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

JobJournal some_journal() {
  JobJournal journal{
      .run = "4f", .size = 2, .hosts = {}, .nodes = {0, 1, 1}, .drained = {}, .job = {}};
  journal.hosts = {{"a", 1}, {"b c", 2, "s0.s1"}};
  journal.led = 1;
  journal.slurm_job = "12";
  journal.requeued = 2;
  journal.drained = {{"b c", 1, true}, {"a", 0, false}};
  journal.job.round = 7;
  journal.job.live = 5;
  journal.job.wished_size = 3;
  journal.job.restarts_used = 4;
  journal.job.restarts_left = 1;
  journal.job.used_for_sigterm = 1;
  journal.job.time_left = std::chrono::minutes(3);
  journal.job.roster = {2, 0};
  journal.job.leaving = {{1, 1}};
  journal.job.members = {1};
  journal.job.done = {2};
  journal.job.accused = {{1, {0, 2}}};
  return journal;
}

}  // namespace

TEST_CASE("a journal is read as it was written") {
  const auto back = decode_job_journal(encode(some_journal()));
  REQUIRE(back);
  CHECK(*back == some_journal());
}

TEST_CASE("a malformed or incomplete journal is refused") {
  const std::string bytes = encode(some_journal());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(decode_job_journal(bytes.substr(0, size)));
  }
  CHECK_FALSE(decode_job_journal(bytes + "x"));
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const char bits : {'\x80', '\xff'}) {
      std::string other = bytes;
      other[at] = static_cast<char>(other[at] ^ bits);
      const auto read = decode_job_journal(other);
      if (!read) continue;
      for (const int node : read->nodes) CHECK(node < static_cast<int>(read->hosts.size()));
      for (const auto& [slot, rank] : read->job.leaving) {
        CHECK(slot < static_cast<int>(read->nodes.size()));
      }
      for (const Slot slot : read->job.members) CHECK(slot < static_cast<int>(read->nodes.size()));
      for (const Slot slot : read->job.done) CHECK(slot < static_cast<int>(read->nodes.size()));
      for (const Slot slot : read->job.roster) CHECK(slot < static_cast<int>(read->nodes.size()));
    }
  }
  auto no_slot = some_journal();
  no_slot.job.roster = {3};
  CHECK_FALSE(decode_job_journal(encode(no_slot)));
  auto no_accuser = some_journal();
  no_accuser.job.accused = {{1, {3}}};
  CHECK_FALSE(decode_job_journal(encode(no_accuser)));
  auto drained_nowhere = some_journal();
  drained_nowhere.drained = {{"c", 2, true}};
  CHECK_FALSE(decode_job_journal(encode(drained_nowhere)));
  auto no_node = some_journal();
  no_node.nodes = {0, 2};
  CHECK_FALSE(decode_job_journal(encode(no_node)));
}
