// The endpoint of a site: strangers, wrong options, lives that end, journals, and forks.
#include "base/cpus.h"
#include "tests/unit/ring/sites_world.h"

using namespace dlaunch;

namespace {

UniqueFd connected(std::uint16_t port) {
  auto address = resolve("127.0.0.1", port);
  auto fd = connect_socket(address->front().get(), address->front().size, "a stranger",
                           steady_now() + 5s);
  return fd ? std::move(*fd) : UniqueFd();
}

// An endpoint without an optimizer, whose state has so many bytes.
SiteEndpointConfig endpoint_config(const SiteWorld& world, int site, const MergeId& id,
                                   std::size_t bytes) {
  SiteEndpointConfig config;
  config.sites = *parse_site_list(world.list);
  config.me = site;
  config.secret = Secret("a secret of all sites");
  config.host = "host " + SiteWorld::name(site);
  config.timeout = std::chrono::milliseconds(static_cast<int>(1000 * kTimeout));
  config.common = 1;
  config.state = {
      .id = id, .hash = 7 + id.number, .copy = std::make_shared<std::string>(bytes, 'x')};
  return config;
}

std::unique_ptr<SiteEndpoint> opened(SiteEndpointConfig config) {
  auto endpoint = SiteEndpoint::open(std::move(config));
  REQUIRE_MESSAGE(endpoint, endpoint.error().what);
  return std::move(*endpoint);
}

// The news of this kind; takes the states before it.
SiteNews news_of(SiteEndpoint& endpoint, SiteNews::Kind kind) {
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (true) {
    REQUIRE(std::chrono::steady_clock::now() < limit);
    auto news = endpoint.next(100ms, false);
    REQUIRE_MESSAGE(news, news.error().what);
    if (*news && (*news)->kind == kind) return std::move(**news);
  }
}

// This thread, and those that it starts, run on one CPU.
class OneCpu {
 public:
  OneCpu() { REQUIRE(run_on(only_cpu(cpus_in(before_).at(0))) == 0); }
  ~OneCpu() { (void)run_on(before_); }

 private:
  const std::string before_ = own_cpus();
};

// Copies of sockets and journals of this process.
int open_copies() {
  int count = 0;
  for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code none;
    const std::string what = std::filesystem::read_symlink(fd.path(), none).string();
    count += what.starts_with("socket:") || what.ends_with(".journal") ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("sites: strangers at the port change nothing") {
  const SiteWorld world(2);
  std::atomic<bool> over = false;
  std::thread stranger([&] {
    std::mt19937 random(1);
    while (!over) {
      const UniqueFd fd = connected(world.ports[0]);
      std::string garbage(1 + random() % 5000, '\0');
      for (char& c : garbage) c = static_cast<char>(random());
      if (fd) (void)::send(fd.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
      std::this_thread::sleep_for(5ms);
    }
  });
  SiteRun a(world, 0, {.outer = exact(2)}), b(world, 1, {.outer = exact(2)});
  a.join();
  b.join();
  over = true;
  stranger.join();
  CHECK(a.error == "");
  CHECK(b.error == "");
  CHECK(a.w == b.w);
}

TEST_CASE("sites: one with another secret is not let in") {
  SiteWorld world(2);
  const std::string right = world.secret;
  const std::string wrong = world.set_secret("quite another secret");
  world.secret = right;
  SiteRun a(world, 0, {.outer = exact(2)});
  SiteRun b(world, 1, {.outer = exact(2), .secret = wrong});
  std::this_thread::sleep_for(300ms);  // many attempts
  a.abort();
  b.abort();
  a.join();
  b.join();
  CHECK(a.error ==
        "dl_abort() was called on this rank; the outer optimizer continues when its "
        "state has been restored");
  CHECK(a.info.merges == 0);
  CHECK(b.done == 0);
}

TEST_CASE("sites: other options at one site are an error that names it") {
  for (const auto& other : {SiteRun::Plan{.outer = exact(3)},
                            {.outer = exact(2), .grace = 61},
                            {.outer = exact(2), .timeout = 60}}) {
    const SiteWorld world(2);
    SiteRun a(world, 0, {.outer = exact(2)}), b(world, 1, other);
    wait_for([&] { return a.over || b.over; });
    a.abort();
    b.abort();
    a.join();
    b.join();
    CHECK((a.error + b.error).find("other options or tensors") != std::string::npos);
  }
}

TEST_CASE("sites: wrong options are refused, with the reason") {
  dl_options options;
  dl_options_init(&options);
  options.rank = 0;
  options.size = 1;
  const SiteWorld world(2);
  options.secret_file = world.secret.c_str();
  dl_comm* comm = nullptr;
  REQUIRE(dl_init(nullptr, &options, &comm) == DL_OK);
  const auto refusal = [&](const char* list, const char* own, double timeout = -1) {
    dl_sites_options wanted;
    dl_sites_options_init(&wanted);
    wanted.sites = list;
    wanted.site = own;
    wanted.timeout_s = timeout;
    dl_sites* sites = nullptr;
    CHECK(dl_sites_open(comm, &wanted, &sites) == DL_ERR_INVALID);
    CHECK(sites == nullptr);
    return std::string(dl_last_error(comm));
  };
  CHECK(refusal(nullptr, nullptr) ==
        "dl_sites_open: DLAUNCH_SITES is not set: start the job with dlaunch --sites");
  CHECK(refusal("a=h:1,b=h:2", nullptr) == "dl_sites_open: DLAUNCH_SITE is not set");
  CHECK(refusal("a=h:1,b=h:2", "c") == "dl_sites_open: site 'c' is none of a and b");
  CHECK(refusal("a=h:1", "a") == "dl_sites_open: there are fewer than two sites");
  CHECK(refusal("a=h:1,b=h:2", "a", 0.01) == "dl_sites_open: the time-out is shorter than 0.1 s");
  dl_comm* const has_secret = std::exchange(comm, nullptr);
  options.secret_file = nullptr;
  REQUIRE(dl_init(nullptr, &options, &comm) == DL_OK);
  CHECK(refusal("a=h:1,b=h:2", "a") ==
        "dl_sites_open: the sites need a secret, the same at all of them: DLAUNCH_SECRET_FILE is "
        "not set; dlaunch --secret-file sets it");
  dl_finalize(std::exchange(comm, has_secret));
  dl_sites_options wanted;
  dl_sites_options_init(&wanted);
  wanted.sites = "a=h:1,b=h:2";
  wanted.site = "b";
  dl_sites* sites = nullptr;
  REQUIRE(dl_sites_open(comm, &wanted, &sites) == DL_OK);
  CHECK(std::string(dl_sites_name(sites, 1)) == "b");
  CHECK(dl_sites_name(sites, 2) == nullptr);
  float w = 0;
  float* at = &w;
  const std::size_t count = 1;
  dl::OuterOptions late = in_few_bits();
  late.sites = sites;
  late.delay = 3;
  dl_outer* outer = nullptr;
  CHECK(dl_outer_new(comm, &late, 1, &at, &count, &outer) == DL_ERR_INVALID);
  CHECK(std::string(dl_last_error(comm)) ==
        "dl_outer_new: delay is 3, and with sites it may be 2 at most, the steps from one fragment "
        "to the next");
  late.delay = 2;
  REQUIRE(dl_outer_new(comm, &late, 1, &at, &count, &outer) == DL_OK);
  dl_outer* second = nullptr;
  CHECK(dl_outer_new(comm, &late, 1, &at, &count, &second) == DL_ERR_INVALID);
  dl_outer_free(outer);
  dl_sites_close(sites);
  dl_finalize(comm);
}

TEST_CASE("sites: a site whose source of a state is lost takes the state of its next life") {
  const SiteWorld world(2);
  const MergeId held{5, 3};
  auto a = opened(endpoint_config(world, 0, held, 64 << 20));
  const auto b = opened(endpoint_config(world, 1, {}, 100));
  wait_for([&] { return b->traffic().received[0] > 1 << 20; });
  a.reset();
  a = opened(endpoint_config(world, 0, held, 32 << 20));
  // The first state may have come to its end.
  for (std::size_t bytes = 0; bytes != 32 << 20;) {
    const SiteNews news = news_of(*b, SiteNews::Kind::state);
    CHECK(news.id.number == 3);
    bytes = news.state->size();
    if (bytes == 64 << 20) break;
    b->holds({.id = news.id, .hash = 10, .copy = news.state});
  }
}

TEST_CASE("sites: one that comes back with other options ends alone") {
  const SiteWorld world(3);
  std::atomic<bool> over = false;
  SiteRun::Plan plan{.outer = exact(2), .steps = 24, .linger = 0};
  plan.before_step = [&](std::uint64_t steps) {
    if (steps == 14) wait_for([&] { return over.load(); });
  };
  SiteRun a(world, 0, plan), b(world, 1, plan);
  {
    SiteRun first(world, 2, {.outer = exact(2), .steps = 6, .finishes = false});
    first.join();
    REQUIRE(first.error == "");
  }
  wait_for([&] { return a.done > 8 && b.done > 8; });
  SiteRun c(world, 2, {.outer = exact(3)});
  c.join();
  over = true;
  CHECK(c.error.find("outer optimizers with other options or tensors") != std::string::npos);
  for (SiteRun* run : {&a, &b}) {
    run->join();
    CHECK(run->error == "");
    CHECK(run->done == 24);
  }
}

TEST_CASE("sites: an older life of a site that is there learns that it is there twice") {
  const SiteWorld world(2);
  const auto a = opened(endpoint_config(world, 0, {5, 3}, 100));
  const auto b = opened(endpoint_config(world, 1, {5, 3}, 100));
  (void)news_of(*b, SiteNews::Kind::adopted);
  HandshakeIdentity claims{
      .purpose = Purpose::site,
      .job_id = "of sites " + sha256_hex(to_string(*parse_site_list(world.list))).substr(0, 16),
      .from_rank = 1,
      .to_rank = 0,
      .who = "site b on another host"};
  auto twin = SiteConnection::connecting(connected(world.ports[0]), Secret("a secret of all sites"),
                                         claims, {.incarnation = 1, .common = 1});
  REQUIRE(twin);
  std::string why;
  wait_for([&] {
    pollfd fd{twin->fd(), twin->events(), 0};
    (void)::poll(&fd, 1, 100);
    const auto moved = twin->move(fd.revents, steady_now(), [&](std::string_view frame) {
      auto message = decode_site_message(frame);
      if (message && std::holds_alternative<SiteDenial>(*message)) {
        why = std::get<SiteDenial>(*message).why;
      }
      return Result<void>();
    });
    return !moved || !why.empty();
  });
  CHECK(why == "site b is there twice: site b on host b, and site b on another host");
  const auto none = b->next(100ms, false);
  CHECK(none);
}

// On one CPU, on which the other endpoint writes all blocks before this one reads the first.
TEST_CASE("sites: blocks that come in one read are taken, and asked for once") {
  const OneCpu one_cpu;
  const SiteWorld world(2);
  constexpr std::size_t kBytes = kSiteBlock + 90'000;
  constexpr int kMerges = 10;
  std::vector<std::unique_ptr<SiteEndpoint>> sites;
  for (int site : {0, 1}) {
    auto config = endpoint_config(world, site, {5, 3}, 100);
    config.most_payload = kBytes;
    config.timeout = std::chrono::seconds(5);
    sites.push_back(opened(std::move(config)));
  }
  MergeId id = news_of(*sites[1], SiteNews::Kind::adopted).id;
  for (int i = 0; i < kMerges; ++i) {
    id = id.next();
    for (const auto& site : sites) site->contribute(id, std::make_shared<std::string>(kBytes, 'x'));
    for (const auto& site : sites) {
      CHECK(news_of(*site, SiteNews::Kind::merge).payloads.size() == 2);
      site->holds({.id = id, .hash = 7, .copy = std::make_shared<std::string>("x")});
    }
  }
  CHECK(sites[0]->traffic().received[1] < kMerges * (kBytes + 20'000));
  CHECK(sites[1]->traffic().received[0] < kMerges * (kBytes + 20'000));
}

TEST_CASE("sites: idle strangers do not keep a site out") {
  const SiteWorld world(2);
  auto first = endpoint_config(world, 0, {5, 3}, 100),
       second = endpoint_config(world, 1, {5, 3}, 100);
  first.timeout = second.timeout = std::chrono::seconds(30);
  const auto a = opened(std::move(first));
  std::vector<UniqueFd> idle(40);
  for (UniqueFd& fd : idle) REQUIRE((fd = connected(world.ports[0])));
  const auto b = opened(std::move(second));
  const auto news = b->next(15s, false);
  REQUIRE(news);
  REQUIRE(*news);
  CHECK((*news)->kind == SiteNews::Kind::adopted);
}

TEST_CASE("sites: a stopped endpoint has written its journal") {
  const SiteWorld world(2);
  auto config = endpoint_config(world, 0, {5, 3}, 32 << 20);
  config.journal = world.folder.path.string();
  const auto a = opened(std::move(config));
  a->stop();
  const std::string file = bytes_of_file(world.journal(0));
  const auto replay = read_site_journal(file);
  REQUIRE(replay.snapshot);
  CHECK(replay.snapshot->state.size() == 32 << 20);
}

TEST_CASE("sites: a journal that cannot be opened ends a first start, and no later one") {
  const SiteWorld world(2);
  std::ofstream(world.journal(0)) << "notes";
  auto first = endpoint_config(world, 0, {}, 100);
  auto later = endpoint_config(world, 0, {5, 3}, 100);
  first.journal = later.journal = world.folder.path.string();
  const auto refused = SiteEndpoint::open(std::move(first));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().what.find("is not a journal of a site") != std::string::npos);
  std::string said;
  set_log_sink([&](LogLevel, std::string_view line) { said += line; });
  CHECK(SiteEndpoint::open(std::move(later)));
  set_log_sink({});
  CHECK(said.find("goes on without its journal") != std::string::npos);
}

TEST_CASE("sites: a forked child closes its copies") {
  const SiteWorld world(2);
  const int before = open_copies();
  auto config = endpoint_config(world, 0, {5, 3}, 100);
  config.journal = world.folder.path.string();
  const auto a = opened(std::move(config));
  const auto b = opened(endpoint_config(world, 1, {5, 3}, 100));
  (void)news_of(*b, SiteNews::Kind::adopted);
  CHECK(open_copies() >= before + 5);
  const pid_t child = ::fork();
  if (child == 0) {
    a->close_in_child();
    b->close_in_child();
    ::_exit(open_copies() - before);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("sites: a second endpoint in this process is refused by name") {
  const SiteWorld world(2);
  const auto a = opened(endpoint_config(world, 0, {}, 100));
  const auto again = SiteEndpoint::open(endpoint_config(world, 0, {}, 100));
  REQUIRE_FALSE(again);
  CHECK(
      again.error().what.find("another outer optimizer of this process averages over the sites") !=
      std::string::npos);
}

TEST_CASE("sites: a name is looked up in the background, a numeric address at once") {
  const UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  SiteLookup lookup(wake.get());
  lookup.ask(1, {"127.0.0.1", 80});
  auto numeric = lookup.take(1);
  REQUIRE(numeric);
  REQUIRE(*numeric);
  CHECK(numeric_host((*numeric)->front()) == "127.0.0.1");
  lookup.ask(2, {"localhost", 80});
  std::optional<SiteLookup::Addresses> named;
  wait_for([&] { return (named = lookup.take(2)).has_value(); });
  REQUIRE(*named);
  CHECK(is_loopback((*named)->front().get()));
  lookup.ask(3, {"no host", 80});
  wait_for([&] { return (named = lookup.take(3)).has_value(); });
  REQUIRE_FALSE(*named);
  CHECK(named->error().what.starts_with("resolve 'no host': "));
}

TEST_CASE("sites: the digest of a payload does not depend on its pieces") {
  std::string bytes(100, ' ');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(37 * i);
  for (const std::size_t size : {0, 7, 8, 100}) {
    for (const std::size_t piece : {1, 3, 8, 13, 100}) {
      PayloadDigest digest;
      for (std::size_t at = 0; at < size; at += piece) {
        digest.add(std::string_view(bytes).substr(at, std::min(piece, size - at)));
      }
      CHECK(digest.value() == digest_of(std::string_view(bytes).substr(0, size)));
    }
  }
}
