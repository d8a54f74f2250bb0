#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "base/clock.h"
#include "base/codec.h"
#include "base/endpoint.h"
#include "base/rank_set.h"
#include "base/rate_limit.h"
#include "base/secret.h"
#include "base/socket.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/units.h"

using namespace dlaunch;
using namespace std::chrono_literals;

TEST_CASE("endpoints parse and print, IPv6 in brackets") {
  CHECK(*parse_endpoint("h1:29500") == Endpoint{"h1", 29500});
  CHECK(*parse_endpoint("[::1]:80") == Endpoint{"::1", 80});
  CHECK(*parse_endpoint("h1", 29400) == Endpoint{"h1", 29400});
  CHECK(to_string(Endpoint{"::1", 80}) == "[::1]:80");
  for (const char* bad :
       {"", "h1", ":1", "h:", "h:x", "h:65536", "h:-1", "::1:80", "[::1", "[::1]80"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_endpoint(bad));
  }
}

TEST_CASE("durations take the usual units and refuse the rest") {
  CHECK(*parse_duration("10") == 10s);
  CHECK(*parse_duration("250ms") == 250ms);
  CHECK(*parse_duration("1.5s") == 1500ms);
  CHECK(*parse_duration("2m") == 120s);
  CHECK(*parse_duration("0") == 0s);
  CHECK(*parse_duration("0.0000000001s") == 1ns);
  for (const char* bad : {"", "s", "-1", "1y", "nan", "inf", "1e400", "1 s", "9999999999999"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_duration(bad));
  }
}

TEST_CASE("sizes are powers of 1024") {
  CHECK(*parse_bytes("8") == 8);
  CHECK(*parse_bytes("4K") == 4096);
  CHECK(*parse_bytes("256M") == 256u << 20);
  CHECK(*parse_bytes("1GiB") == 1u << 30);
  CHECK(*parse_bytes("0.5k") == 512);
  for (const char* bad : {"", "K", "1.3", "1X", "-1", "99999999T", "4Kx"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_bytes(bad));
  }
}

TEST_CASE("rank sets round-trip") {
  CHECK(*parse_rank_set("0,2-5") == RankSet{0, 2, 3, 4, 5});
  CHECK(format_rank_set({0, 2, 3, 4, 5, 7}) == "0,2-5,7");
  CHECK(format_rank_set({}).empty());
  for (const char* bad : {"", ",", "1,", "5-2", "a", "-1", "1-", "0-99999999"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_rank_set(bad));
  }
}

TEST_CASE("a reader never reads past its end and says so once") {
  Writer writer;
  writer.put(std::uint16_t{7});
  writer.put_string("abc");
  Reader good(writer.bytes());
  CHECK(good.get<std::uint16_t>() == 7);
  CHECK(good.get_string(3) == "abc");
  CHECK(good.done());
  for (std::size_t cut = 0; cut < writer.bytes().size(); ++cut) {
    Reader bad(std::string_view(writer.bytes()).substr(0, cut));
    (void)bad.get<std::uint16_t>();
    (void)bad.get_string(3);
    CHECK_FALSE(bad.ok());
  }
  Reader capped(std::string_view(writer.bytes()).substr(2));
  CHECK(capped.get_string(2).empty());
  CHECK_FALSE(capped.ok());
}

TEST_CASE("deadlines do not overflow and poll time-outs round up") {
  const TimePoint now(1s);
  CHECK(deadline_after(now, Duration::max()) == kNever);
  CHECK(deadline_after(now, 2s) == TimePoint(3s));
  CHECK(poll_timeout_ms(now, now) == 0);
  CHECK(poll_timeout_ms(now, now + 1us) == 1);
  CHECK(poll_timeout_ms(now, kNever) == -1);
}

TEST_CASE("HMAC-SHA256 agrees with RFC 4231, test case 2") {
  const Mac mac = Secret("Jefe").mac("what do ya want for nothing?");
  const unsigned char want[] = {0x5b, 0xdc, 0xc1, 0x46};
  CHECK(std::equal(std::begin(want), std::end(want), mac.begin(),
                   [](unsigned char a, char b) { return a == static_cast<unsigned char>(b); }));
}

TEST_CASE("a secret file that others may read is refused") {
  char path[] = "/tmp/dlaunch-secret-XXXXXX";
  UniqueFd fd(::mkstemp(path));
  REQUIRE(fd);
  REQUIRE(::write(fd.get(), "0123456789abcdef\n", 17) == 17);
  CHECK(Secret::load(path)->bytes() == "0123456789abcdef");
  ::fchmod(fd.get(), 0644);
  CHECK_FALSE(Secret::load(path));
  ::unlink(path);
  CHECK_FALSE(Secret::load(path));
}

TEST_CASE("a socket connected to itself is recognized") {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const sa = reinterpret_cast<sockaddr*>(&address);
  const UniqueFd self(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK_FALSE(connected_to_itself(self.get()));
  REQUIRE(::bind(self.get(), sa, size) == 0);
  REQUIRE(::getsockname(self.get(), sa, &size) == 0);
  REQUIRE(::connect(self.get(), sa, size) == 0);
  CHECK(connected_to_itself(self.get()));

  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  address.sin_port = 0;
  REQUIRE(::bind(listener.get(), sa, size) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  REQUIRE(::getsockname(listener.get(), sa, &size) == 0);
  REQUIRE(::connect(client.get(), sa, size) == 0);
  CHECK_FALSE(connected_to_itself(client.get()));
}

TEST_CASE("text from outside is escaped to one harmless line, and only once") {
  const std::pair<std::string, std::string> cases[] = {
      {"rank 3 (pid 7)", "rank 3 (pid 7)"},
      {"Ünïcødé … 名 😀", "Ünïcødé … 名 😀"},
      {"a\nb\r\t\x1b[31mred\x7f", "a\\x0ab\\x0d\\x09\\x1b[31mred\\x7f"},
      {std::string("nul\0", 4), "nul\\x00"},
      {"\xc2\x9b"
       "31m",
       "\\xc2\\x9b31m"},  // C1: CSI in one character
      {"\xff\xc3", "\\xff\\xc3"},
      {"\xc0\x8a \xe0\x80\x8a \xed\xa0\x80", "\\xc0\\x8a \\xe0\\x80\\x8a \\xed\\xa0\\x80"},
      {"", ""},
  };
  for (const auto& [raw, clean] : cases) {
    CHECK(escaped(raw) == clean);
    CHECK(escaped(clean) == clean);
  }
}

TEST_CASE("words are split at a separator, or at any blank, and none is empty") {
  using Words = std::vector<std::string_view>;
  CHECK(split_words(",a,,b c,", ',') == Words{"a", "b c"});
  CHECK(split_words(" a\t\tb,c \r\v\fd\r") == Words{"a", "b,c", "d"});
  CHECK(split_words(" \t").empty());
  CHECK(split_words("").empty());
}

TEST_CASE("lower case changes the letters A to Z only") {
  CHECK(lower_case("AZaz09_@[`{\xc3\x84") == "azaz09_@[`{\xc3\x84");
  CHECK(lower_case("").empty());
}

TEST_CASE("a rate limit passes one event per subject and period, and has bounded memory") {
  RateLimit limit(10s, 2);
  const TimePoint start(100s);
  CHECK(limit.may_say(start, "a") == 0);
  for (int i = 0; i < 5; ++i) CHECK_FALSE(limit.may_say(start + 9s, "a"));
  CHECK(limit.may_say(start + 9s, "b") == 0);
  CHECK_FALSE(limit.may_say(start + 9s, "c"));
  CHECK(limit.may_say(start + 10s, "a") == 5);
  CHECK_FALSE(limit.may_say(start + 10s, "c"));
  CHECK(limit.may_say(start + 19s, "c") == 0);
}

TEST_CASE("a key is made once, for one user, also if several processes ask at once") {
  char folder[] = "/tmp/dlaunch-key-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/own/key";
  const auto made = Secret::load_or_make(path);
  REQUIRE(made);
  CHECK(made->bytes().size() == 64);
  CHECK(Secret::load_or_make(path)->bytes() == made->bytes());
  struct stat st {};
  REQUIRE(::stat(path.c_str(), &st) == 0);
  CHECK((st.st_mode & 0777) == 0600);
  CHECK(st.st_nlink == 1);
  ::chmod(path.c_str(), 0644);
  CHECK_FALSE(Secret::load_or_make(path));
  ::unlink(path.c_str());
  ::rmdir((std::string(folder) + "/own").c_str());
  CHECK_FALSE(Secret::load_or_make(std::string(folder) + "/none/own/key"));
  CHECK(::rmdir(folder) == 0);  // nothing else is left
}
