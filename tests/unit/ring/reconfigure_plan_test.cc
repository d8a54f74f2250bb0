// Members of a communicator by their handles: their ranks, and the place where they meet.
#include "ring/torch/reconfigure_plan.h"

#include <set>

#include <doctest/doctest.h>

using namespace dlring_torch;

namespace {

const std::string kSecret(64, 'a');

std::string handle(int process, const std::string& address = "10.0.0.7", std::uint64_t group = 1) {
  const std::string secret = std::string(63, 'b') + "0123456789"[process % 10];
  return text_of({std::to_string(process) + "@host", group, secret, 4000 + process, address});
}

std::string refused_with(const std::string& own, const std::vector<std::string>& handles) {
  try {
    (void)plan_reconfigure(own, 1, handles);
    return "";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("reconfigure: a handle is read as it was written") {
  for (const char* address : {"10.0.0.7", "::1", "fe80::1%eth0"}) {
    const Handle given{"12@a-b.c", 3, kSecret, 65535, address};
    const auto read = parse_handle(text_of(given));
    REQUIRE(read);
    CHECK(text_of(*read) == text_of(given));
    CHECK(read->who == given.who);
    CHECK(read->group == 3);
    CHECK(read->secret == kSecret);
    CHECK(read->port == 65535);
    CHECK(read->address == address);
  }
}

TEST_CASE("reconfigure: malformed handles are refused") {
  const std::string good = text_of({"12@a", 3, kSecret, 4711, "10.0.0.7"});
  REQUIRE(parse_handle(good));
  for (std::size_t length = 0; length < good.size() - 7; ++length) {
    CHECK_FALSE(parse_handle(good.substr(0, length)));
  }
  const std::string tail = ":" + kSecret + ":4711:10.0.0.7";
  const std::string wrong[] = {
      "gloo:0:-1:0:127.0.0.1:29755",
      "dlring::3" + tail,
      "dlring:12@a:-3" + tail,
      "dlring:12@a:3x" + tail,
      "dlring:12@a:3:" + std::string(31, 'a') + ":4711:10.0.0.7",
      "dlring:12@a:3:" + std::string(64, 'g') + ":4711:10.0.0.7",
      "dlring:12@a:3:" + kSecret + ":0:10.0.0.7",
      "dlring:12@a:3:" + kSecret + ":65536:10.0.0.7",
      "dlring:12@a:3:" + kSecret + ":4711:",
      "dlring:12@a:3:" + kSecret + ":4711:host/path",
      good + std::string(1024, '1'),
  };
  for (const auto& text : wrong) {
    CAPTURE(text);
    CHECK_FALSE(parse_handle(text));
  }
}

TEST_CASE("reconfigure: a rank is the position in the list, and rank 0 leads") {
  const std::vector<std::string> handles = {handle(2), handle(1, "::1"), handle(3)};
  std::set<std::string> urls;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    const auto plan = plan_reconfigure(handles[i], 7, handles);
    CHECK(plan.rank == static_cast<int>(i));
    CHECK(plan.size == 3);
    CHECK(plan.secret == parse_handle(handles[0])->secret);
    CHECK(plan.members == "0 is 2@host, 1 is 1@host, 2 is 3@host");
    urls.insert(plan.url);
  }
  REQUIRE(urls.size() == 1);
  CHECK(urls.begin()->starts_with("tcp://10.0.0.7:4002/"));
  const auto v6 = plan_reconfigure(handles[1], 7, {handles[1], handles[0]});
  CHECK(v6.url.starts_with("tcp://[::1]:4001/"));
}

TEST_CASE("reconfigure: only members with the same number and handles meet") {
  const std::string a = handle(1), b = handle(2), c = handle(3);
  std::set<std::string> urls;
  const auto meet = [&](std::int64_t uuid, const std::vector<std::string>& handles) {
    urls.insert(plan_reconfigure(a, uuid, handles).url);
  };
  meet(1, {a, b, c});
  meet(1, {a, c, b});
  meet(1, {a, b});
  meet(2, {a, b, c});
  meet(-1, {a, b, c});
  meet(1, {a, b, handle(3, "10.0.0.7", 2)});
  CHECK(urls.size() == 6);
  // The name is the same in all versions, which may meet.
  CHECK(hex_of(digest_of(1, {"x"})) == "7b1eedf1c827008c");
}

TEST_CASE("reconfigure: the error says what is wrong with the handles") {
  const std::string a = handle(1), b = handle(2);
  CHECK(refused_with(a, {a, b}).empty());
  CHECK(refused_with(a, {}) == "dlring: reconfigure: no handle was given");
  CHECK(refused_with(a, {b}) == "dlring: reconfigure: the handle of this group itself is missing");
  CHECK(refused_with(a, {a, b, b}) == "dlring: reconfigure: the handle of 2@host was given twice");
  CHECK(refused_with(a, {a, "gloo:1"}) == "dlring: reconfigure: 'gloo:1' is no handle of dlring");
}

TEST_CASE("reconfigure: a message about many members names the first ones") {
  std::vector<std::string> handles;
  for (int i = 0; i < 40; ++i) handles.push_back(handle(i + 1));
  const auto plan = plan_reconfigure(handles[39], 1, handles);
  CHECK(plan.members.find("15 is 16@host and so on up to 39") != std::string::npos);
}
