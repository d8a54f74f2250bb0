// Sites that train together, and what becomes of their work.
#include "tests/unit/ring/sites_world.h"

using namespace dlaunch;

namespace {

// Merges in a journal: replays it, and compares the hashes. Returns how many were computed again.
int replayed_merges(const std::string& path) {
  dl_journal* journal = nullptr;
  REQUIRE(dl_journal_open(path.c_str(), &journal) == DL_OK);
  int merges = 0;
  for (int end = 0;;) {
    dl_journal_entry entry;
    entry.struct_size = sizeof entry;
    REQUIRE_MESSAGE(dl_journal_next(journal, 1, &entry, &end) == DL_OK, dl_last_error(nullptr));
    if (end != 0) break;
    if (entry.replayed != 0) CHECK(entry.replayed_hash == entry.hash);
    merges += entry.kind == DL_JOURNAL_MERGE && entry.replayed != 0 ? 1 : 0;
  }
  CHECK(dl_journal_torn(journal) == 0);
  dl_journal_close(journal);
  return merges;
}

// What the site has given to the merges of a journal, of the first element of a fragment. Codec
// none.
double given_by(int site, const std::string& path, std::uint32_t fragment = 0) {
  const std::string file = bytes_of_file(path);
  SiteJournalReader reader(file);
  double sum = 0;
  std::map<Contribution, int> times;
  while (auto record = reader.next()) {
    const auto* payload = std::get_if<JournalPayload>(&*record);
    if (payload == nullptr || payload->contribution.member.site != site) continue;
    CHECK(++times[payload->contribution] == 1);
    if (head_of(payload->bytes)->fragment != fragment) continue;
    float first = 0;
    const std::size_t head = payload_bytes(WireCodec::none, 0);
    std::memcpy(&first, payload->bytes.data() + head, sizeof first);
    sum += first;
  }
  return sum;
}

// The site owes work since an earlier merge: in the first element so much that the means of the
// three sites below are exact, and in others what bf16 loses.
constexpr float kOwed = 33;
void owe(const SiteRun& run) {
  const auto residual = residual_of(run);
  for (std::size_t i = 0; i < residual.size(); ++i)
    residual[i] = kOwed + static_cast<float>(i % 7) / 16;
}

struct Traffic {
  std::uint64_t sent = 0, received = 0;
};
Traffic traffic_of(const SiteRun& run) {
  dl_sites_info info{};
  info.struct_size = sizeof info;
  dl_sites_get_info(run.sites, &info);
  const auto sum = [](const auto& bytes) {
    return std::accumulate(std::begin(bytes), std::end(bytes), std::uint64_t{0});
  };
  return {sum(info.bytes_sent), sum(info.bytes_received)};
}

// All end well and with the same weights, after so many steps; 0: after any number.
void check_equal_ends(const std::vector<SiteRun*>& runs, std::uint64_t steps = 0) {
  for (SiteRun* run : runs) {
    run->join();
    REQUIRE(run->error == "");
    CHECK(run->w == runs.front()->w);
    CHECK((steps == 0 || run->done == steps));
  }
}

}  // namespace

TEST_CASE("sites: three train as one, with the same bits, and each journal can be replayed") {
  const SiteWorld world(3);
  std::vector<std::unique_ptr<SiteRun>> runs;
  for (int site = 0; site < 3; ++site) {
    runs.push_back(std::make_unique<SiteRun>(world, site,
                                             SiteRun::Plan{.outer = in_few_bits(), .timeout = 10}));
  }
  for (auto& run : runs) run->join();
  for (int site = 0; site < 3; ++site) {
    const SiteRun& run = *runs[static_cast<std::size_t>(site)];
    CAPTURE(site);
    REQUIRE(run.error == "");
    CHECK(run.w == runs[0]->w);
    CHECK(run.done == 12);
    CHECK(run.info.sites == 3);
    CHECK(run.info.site == site);
    CHECK(run.info.merges >= 6);
    CHECK(run.info.contributed == 7);
    CHECK(run.info.carried == 0);
    CHECK(run.info.jumps == 0);
    CHECK(run.info.bytes_sent[(site + 1) % 3] + run.info.bytes_sent[(site + 2) % 3] > 0);
    CHECK(run.info.bytes_sent[site] == 0);
    CHECK(replayed_merges(world.journal(site)) == static_cast<int>(run.info.merges));
  }
}

TEST_CASE("sites: one vanishes, the others go on, and it comes back with their state") {
  const SiteWorld world(3);
  const auto plan = [](std::uint64_t steps) {
    return SiteRun::Plan{.outer = in_few_bits(), .steps = steps};
  };
  std::atomic<bool> back = false;
  auto others = plan(60);
  others.before_step = [&](std::uint64_t steps) {
    if (steps == 40) wait_for([&] { return back.load(); });
  };
  SiteRun a(world, 0, others), b(world, 1, others);
  {
    auto dies = plan(12);
    dies.finishes = false;
    SiteRun first(world, 2, dies);
    first.join();
    REQUIRE(first.error == "");
  }
  wait_for([&] { return a.done > 20 && b.done > 20; });  // nobody waits for it
  auto again = plan(60);
  again.before_step = [&](std::uint64_t steps) { back = back || steps > 12; };
  SiteRun c(world, 2, again);
  check_equal_ends({&a, &b, &c}, 60);
  CHECK(c.info.jumps > 0);
  for (int site = 0; site < 3; ++site) CHECK(replayed_merges(world.journal(site)) > 0);
}

TEST_CASE("sites: those that have finished wait for one that was lost, and give it the result") {
  const SiteWorld world(3);
  const auto plan = SiteRun::Plan{.outer = in_few_bits()};
  auto others = plan;
  others.steps = 30;
  SiteRun a(world, 0, others), b(world, 1, others);
  {
    auto dies = plan;
    dies.finishes = false;
    SiteRun first(world, 2, dies);
    first.join();
    REQUIRE(first.error == "");
  }
  wait_for([&] { return a.done == 30 && b.done == 30; });
  std::this_thread::sleep_for(100ms);
  CHECK_FALSE(a.over);
  SiteRun c(world, 2, others);
  check_equal_ends({&a, &b, &c}, 30);
}

TEST_CASE("sites: one that reaches no quorum ends with an error that names the missing sites") {
  const SiteWorld world(3);
  SiteRun alone(world, 1, {.outer = exact(2), .wait = 0.3});
  alone.join();
  CHECK(alone.error.starts_with(
      "site b has had no quorum of the sites for 300 ms (--site-wait): sites a and c did not "
      "come; start them and this site again, or, if they have ended, take the result from them"));
}

TEST_CASE("sites: what a late site has done counts once, with carry, or never, with drop") {
  for (const dl_sites_late late : {DL_SITES_CARRY, DL_SITES_DROP}) {
    CAPTURE(late);
    const SiteWorld world(2);
    std::atomic<std::uint64_t> merged = 0;
    SiteRun::Plan plan{
        .outer = exact(2), .steps = 12, .grace = kSanitized ? 3.0 : 1.0, .late = late};
    auto early = plan, slow = plan;
    early.amount = 1;
    early.before_step = [&](std::uint64_t steps) { merged = steps / 2; };
    slow.amount = 16;
    slow.before_step = [&](std::uint64_t steps) {
      // Its third contribution comes when the merge has been made without it.
      if (steps == 5) wait_for([&] { return merged >= 3; });
    };
    SiteRun a(world, 0, early), b(world, 1, slow);
    check_equal_ends({&a, &b});
    CHECK(a.info.carried == 0);
    CHECK(b.info.carried >= 1);
    const double given = given_by(1, world.journal(1));
    const double rest = b.residual.empty() ? 0 : b.residual.front();
    const double dropped =
        late == DL_SITES_CARRY ? 0 : 2 * 16 * static_cast<double>(b.info.carried);
    CHECK(given + rest == b.work - dropped);
    CHECK(given_by(1, world.journal(0)) == given);
  }
}

TEST_CASE(
    "sites: one that comes back over several merges carries the work in all of its fragments") {
  const SiteWorld world(2);
  dl::OuterOptions outer = exact(4);
  outer.fragments = 2;
  SiteRun::Plan plan{.outer = outer, .steps = 12, .grace = kSanitized ? 3.0 : 1.0};
  auto early = plan, slow = plan;
  early.amount = 1;
  slow.amount = 16;
  std::unique_ptr<SiteRun> a, b;
  std::atomic<bool> both = false;
  early.before_step = [&](std::uint64_t steps) {
    wait_for([&] { return both && (steps != 6 || b->done >= 6); });
  };
  slow.before_step = [&](std::uint64_t steps) {
    // Two merges are made without it.
    const auto knows = [&] { return b->sites.load()->endpoint->decided().number; };
    wait_for([&] { return both && (steps != 2 || knows() >= 3); });
    if (steps == 2) b->w[1] = NAN;  // what is not finite does not stay for ever
  };
  a = std::make_unique<SiteRun>(world, 0, early);
  b = std::make_unique<SiteRun>(world, 1, slow);
  both = true;
  check_equal_ends({a.get(), b.get()}, 12);
  CHECK(b->info.jumps >= 1);
  CHECK(std::isfinite(a->w[1]));
  const auto parts = slices_of(b->residual.size(), 2, kCodecUnit);
  for (const std::uint32_t f : {0U, 1U}) {
    CAPTURE(f);
    CHECK(given_by(1, world.journal(1), f) + static_cast<double>(b->residual[parts[f].first]) ==
          b->work);
  }
}

TEST_CASE("sites: the work of a site's earlier life counts once") {
  const SiteWorld world(3);
  dl::OuterOptions outer = exact(4);
  outer.delay = 1;
  SUBCASE("exact") {}
  SUBCASE("in few bits") { outer.codec = DL_CODEC_BF16; }
  SavedSite saved;
  SiteRun::Plan plan{.outer = outer, .steps = 12, .grace = kSanitized ? 3.0 : 1.0};
  auto others = plan, dies = plan, again = plan;
  others.amount = 1;
  dies.amount = again.amount = 16;
  std::unique_ptr<SiteRun> first, second, a, b;
  std::atomic<int> made = 0;
  std::atomic<bool> is_back = false;
  std::uint64_t sent_before = 0;
  // The first merge is made once the site is back, and has not contributed once more.
  others.before_step = [&](std::uint64_t steps) {
    if (steps == 3) wait_for([&] { return is_back.load(); });
    if (steps == 6) wait_for([&] { return second->done >= 4; });
  };
  dies.steps = 4;
  dies.finishes = false;
  dies.before_steps = [&] {
    wait_for([&] { return made >= 3; });
    owe(*first);
  };
  dies.before_step = [&](std::uint64_t steps) {
    if (steps == 2) saved.save(*first);
    if (steps == 3) sent_before = traffic_of(*first).sent;
  };
  const auto payload = payload_bytes(static_cast<WireCodec>(outer.codec), kCount);
  // Until one of the others has what it contributes, beside messages without payloads.
  dies.before_finish = [&] {
    wait_for([&] { return traffic_of(*first).sent > sent_before + payload + 2000; });
  };
  again.before_steps = [&] {
    wait_for([&] { return made == 4; });
    saved.restore(*second);
  };
  again.before_step = [&](std::uint64_t steps) {
    is_back = is_back || steps == 3;
    if (steps == 3) wait_for([&] { return a->merges() >= 1 && b->merges() >= 1; });
    if (steps == 5) {  // what it owes is in the merge
      const auto owed = residual_of(*second);
      CHECK(std::ranges::count(owed, 0.0F) == std::ssize(owed));
    }
  };
  first = std::make_unique<SiteRun>(world, 2, dies);
  a = std::make_unique<SiteRun>(world, 0, others);
  b = std::make_unique<SiteRun>(world, 1, others);
  made = 3;
  first->join();
  REQUIRE(first->error == "");
  second = std::make_unique<SiteRun>(world, 2, again);
  made = 4;
  check_equal_ends({a.get(), b.get(), second.get()});
  if (outer.codec != DL_CODEC_NONE) return;
  const double given = given_by(2, world.journal(0));
  // The four steps of the first life stand for those of the second one. The fifth and the ninth
  // were before an average was applied.
  CHECK(given + static_cast<double>(second->residual.front()) == 10 * 16 + kOwed);
}

TEST_CASE("sites: what an earlier life carried is not given again after the merge that has it") {
  const SiteWorld world(3);
  SavedSite saved;
  SiteRun::Plan plan{.outer = exact(4), .steps = 12, .grace = kSanitized ? 3.0 : 1.0};
  auto others = plan, dies = plan, again = plan;
  others.amount = 1;
  dies.amount = again.amount = 16;
  std::unique_ptr<SiteRun> first, second, a, b;
  std::atomic<int> made = 0;
  std::uint64_t a_before = 0, b_before = 0;
  std::atomic<bool> contributes = false;
  // The first merge is made while the site is away, with what it has sent.
  others.before_step = [&](std::uint64_t steps) {
    if (steps == 3) wait_for([&] { return first->over.load(); });
    if (steps == 6) wait_for([&] { return made == 4 && second->done >= 4; });
  };
  dies.before_steps = [&] {
    wait_for([&] { return made >= 3; });
    owe(*first);
  };
  dies.before_step = [&](std::uint64_t steps) {
    if (steps == 2) saved.save(*first);
    if (steps != 3) return;
    a_before = traffic_of(*a).received;
    b_before = traffic_of(*b).received;
    contributes = true;
  };
  again.before_steps = [&] {
    wait_for([&] { return made == 4; });
    saved.restore(*second);
  };
  first = std::make_unique<SiteRun>(world, 2, dies);
  a = std::make_unique<SiteRun>(world, 0, others);
  b = std::make_unique<SiteRun>(world, 1, others);
  made = 3;
  wait_for([&] {  // until both have what it contributes
    const auto payload = payload_bytes(WireCodec::none, kCount);
    return contributes && traffic_of(*a).received > a_before + payload &&
           traffic_of(*b).received > b_before + payload;
  });
  first->abort();  // it waits for the merge
  first->join();
  wait_for([&] { return a->merges() >= 1 && b->merges() >= 1; });
  second = std::make_unique<SiteRun>(world, 2, again);
  made = 4;
  check_equal_ends({a.get(), b.get(), second.get()}, 12);
  CHECK(given_by(2, world.journal(0)) + static_cast<double>(second->residual.front()) ==
        12 * 16 + kOwed);
}

TEST_CASE("sites: what a site carries stays in its state until a merge has it") {
  const SiteWorld world(2);
  dl::OuterOptions outer = exact(4);
  outer.delay = 1;
  SiteRun::Plan plan{.outer = outer, .steps = 12, .grace = kSanitized ? 3.0 : 1.0};
  auto early = plan, slow = plan;
  early.amount = 1;
  slow.amount = 16;
  std::unique_ptr<SiteRun> a, b;
  std::atomic<bool> both = false;
  early.before_step = [&](std::uint64_t steps) {
    wait_for([&] { return both && (steps != 7 || b->done >= 7); });
  };
  slow.before_steps = [&] {
    wait_for([&] { return both.load(); });
    owe(*b);
  };
  bool is_restored = false;
  slow.before_step = [&](std::uint64_t steps) {
    // The merge is made without it. It contributes, and is restored before it takes the merge.
    if (steps == 3) wait_for([&] { return a->merges() >= 1; });
    if (steps == 4 && !std::exchange(is_restored, true)) {
      CHECK(residual_of(*b).front() == kOwed);
      CHECK(dl_outer_restored(b->outer) == DL_OK);
    }
  };
  a = std::make_unique<SiteRun>(world, 0, early);
  b = std::make_unique<SiteRun>(world, 1, slow);
  both = true;
  check_equal_ends({a.get(), b.get()}, 12);
  // One step was before an average was applied.
  CHECK(given_by(1, world.journal(1)) + static_cast<double>(b->residual.front()) ==
        b->work - 16 + kOwed);
}

TEST_CASE("sites: finish takes the merge in the background first, and loses no work") {
  const SiteWorld world(2);
  dl::OuterOptions outer = exact(4);
  outer.fragments = 2;
  outer.delay = 1;
  const SiteRun::Plan plan{.outer = outer, .steps = 4, .amount = 1, .timeout = 10};
  SiteRun a(world, 0, plan), b(world, 1, plan);
  for (SiteRun* run : {&a, &b}) {
    run->join();
    REQUIRE(run->error == "");
    CHECK(run->info.merges == 4);
    // Of four steps. The third one was before the first fragment's average was applied.
    CHECK(run->w.front() == -2);
    CHECK(run->w.back() == -3);
  }
}

TEST_CASE(
    "sites: finish after a way back to fewer steps takes part up to its own number of steps") {
  const SiteWorld world(2);
  dl::OuterOptions outer = exact(4);
  outer.delay = 3;
  SiteRun::Plan plan{.outer = outer, .steps = 6, .amount = 1, .timeout = 10};
  std::unique_ptr<SiteRun> a, b;
  std::atomic<bool> both = false;
  auto restored = plan;
  restored.before_finish = [&] {
    // What it contributed after 4 steps is applied after 7, and the other one, which finishes, has
    // it before: its state is that after 4 steps.
    wait_for([&] { return both && b->merges() >= 1; });
    CHECK(dl_outer_restored(a->outer) == DL_OK);
  };
  b = std::make_unique<SiteRun>(world, 1, plan);
  a = std::make_unique<SiteRun>(world, 0, restored);
  both = true;
  for (SiteRun* run : {a.get(), b.get()}) {
    run->join();
    REQUIRE(run->error == "");
    CHECK(run->done == 6);
    CHECK(run->info.merges == 2);
    CHECK(run->w == std::vector<float>(kCount, -3));
  }
}

TEST_CASE("sites: finish where the others are further takes their parameters") {
  const SiteWorld world(2);
  dl::OuterOptions outer = exact(4);
  outer.fragments = 2;
  SiteRun::Plan plan{.outer = outer, .steps = 12, .grace = 0.2, .amount = 1};
  std::unique_ptr<SiteRun> a, b;
  std::atomic<bool> both = false, has_finished = false;
  auto early = plan, slow = plan;
  early.before_finish = [&] { wait_for([&] { return has_finished.load(); }); };
  slow.steps = 3;
  slow.before_finish = [&] {
    wait_for([&] { return both && a->done == 12; });
    CHECK(dl_outer_restored(b->outer) == DL_OK);
    CHECK(dl_outer_finish(b->outer) == DL_OK);
    CHECK(dl_outer_steps(b->outer) == 12);
    void* shared = nullptr;
    std::size_t bytes = 0;
    dl_outer_shared(b->outer, &shared, &bytes);
    const char* const anchor = static_cast<const char*>(shared) + 64;
    CHECK(std::memcmp(b->w.data(), anchor, kCount * sizeof(float)) == 0);
    has_finished = true;
  };
  a = std::make_unique<SiteRun>(world, 0, early);
  b = std::make_unique<SiteRun>(world, 1, slow);
  both = true;
  check_equal_ends({a.get(), b.get()});
}

TEST_CASE("sites: one that finish has moved to the steps of the others goes on with them") {
  const SiteWorld world(2);
  dl::OuterOptions outer = exact(4);
  outer.fragments = 2;
  SiteRun::Plan plan{.outer = outer, .steps = 12, .grace = 0.2, .amount = 1};
  std::unique_ptr<SiteRun> a, b;
  std::atomic<bool> both = false, a_has_finished = false, b_has_finished = false;
  const auto go_on = [](SiteRun& run) {
    dl_result done = DL_OK;
    while (done == DL_OK && dl_outer_steps(run.outer) < 20) {
      for (float& value : run.w) --value;
      done = dl_outer_step(run.outer);
    }
    CHECK(done == DL_OK);
  };
  auto early = plan, slow = plan;
  early.before_finish = [&] {
    wait_for([&] { return both.load(); });
    CHECK(dl_outer_finish(a->outer) == DL_OK);
    a_has_finished = true;
    wait_for([&] { return b_has_finished.load(); });
    go_on(*a);
  };
  slow.steps = 3;
  slow.before_finish = [&] {
    wait_for([&] { return a_has_finished.load(); });
    CHECK(dl_outer_restored(b->outer) == DL_OK);
    CHECK(dl_outer_finish(b->outer) == DL_OK);
    CHECK(dl_outer_steps(b->outer) == 12);
    b_has_finished = true;
    go_on(*b);
  };
  a = std::make_unique<SiteRun>(world, 0, early);
  b = std::make_unique<SiteRun>(world, 1, slow);
  both = true;
  check_equal_ends({a.get(), b.get()}, 20);
}

TEST_CASE("sites: a step after the sites were closed is an error on all ranks of the site") {
  for (const int delay : {0, 1}) {
    for (const int ranks : {1, 2}) {
      CAPTURE(delay);
      CAPTURE(ranks);
      const SiteWorld world(2);
      SiteRun::Plan plan{.outer = exact(2), .ranks = ranks};
      plan.outer.delay = delay;
      SiteRun a(world, 0, {.outer = plan.outer, .linger = 0});
      std::vector<std::unique_ptr<SiteRun>> b;
      std::atomic<bool> all = false;
      for (plan.rank = 0; plan.rank < ranks; ++plan.rank) {
        const auto own = static_cast<std::size_t>(plan.rank);
        plan.before_step = [&, own](std::uint64_t steps) {
          wait_for([&] { return all.load(); });
          if (steps == 5 && own == 0) dl_sites_leave(b[own]->sites);
        };
        b.push_back(std::make_unique<SiteRun>(world, 1, plan));
      }
      all = true;
      for (auto& run : b) {
        run->join();
        CHECK(run->error.starts_with("this site has left the others, because the program has "));
      }
      a.join();
      CHECK(a.error == "");
    }
  }
}

TEST_CASE("sites: ranks that wait for another site are in no long collective") {
  const SiteWorld world(2);
  std::vector<std::unique_ptr<SiteRun>> b;
  SiteRun::Plan plan{.outer = exact(2), .steps = 4, .ranks = 2, .op_timeout = 6};
  for (plan.rank = 0; plan.rank < 2; ++plan.rank) {
    b.push_back(std::make_unique<SiteRun>(world, 1, plan));
  }
  std::this_thread::sleep_for(8s);  // longer than a collective may take
  SiteRun a(world, 0, {.outer = exact(2), .steps = 4});
  check_equal_ends({&a, b[0].get(), b[1].get()});
}

TEST_CASE("sites: a rank that is lost while its site waits for the others ends the wait") {
  const SiteWorld world(2);
  std::vector<std::unique_ptr<SiteRun>> b;
  SiteRun::Plan plan{.outer = exact(2), .ranks = 2};
  for (plan.rank = 0; plan.rank < 2; ++plan.rank) {
    b.push_back(std::make_unique<SiteRun>(world, 1, plan));
  }
  wait_for_caller(world.ports[0]);  // the endpoint looks for site a
  b[1]->abort();
  for (auto& run : b) run->join();
  CHECK(b[0]->error.find("rank 1") != std::string::npos);
}
