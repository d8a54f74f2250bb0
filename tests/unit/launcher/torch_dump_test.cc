#include "launcher/node/watch/torch_dump.h"

#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

// The opcodes of a pickle.
std::string utf8(const std::string& words) {
  return std::string("X") + static_cast<char>(words.size()) + std::string(3, '\0') + words;
}
std::string byte(std::uint8_t value) { return std::string("K") + static_cast<char>(value); }
std::string map(const std::string& items) { return "}(" + items + "u"; }
std::string list(const std::string& items) { return "](" + items + "e"; }
std::string pair_of(const std::string& name, const std::string& description) {
  return utf8(name) + utf8(description) + "\x86";
}

struct Entry {
  int seq = 1;
  std::string state = "completed";
  std::string name = "nccl:all_reduce";
  std::string group_name = "0", description = "default_pg";
  bool p2p = false;
};
std::string entry(const Entry& is) {
  return map(utf8("process_group") + pair_of(is.group_name, is.description) +
             utf8("collective_seq_id") + byte(static_cast<std::uint8_t>(is.seq)) + utf8("is_p2p") +
             (is.p2p ? "\x88" : "\x89") + utf8("profiling_name") + utf8(is.name) + utf8("state") +
             utf8(is.state));
}
std::string dump(const std::vector<Entry>& entries) {
  std::string all;
  for (const Entry& each : entries) all += entry(each);
  const std::string config =
      map(utf8("0") + map(utf8("name") + utf8("0") + utf8("desc") + utf8("default_pg")) +
          utf8("3") + map(utf8("name") + utf8("3") + utf8("desc") + utf8("undefined")));
  return "\x80\x02" +
         map(utf8("version") + utf8("2.10") + utf8("pg_config") + config + utf8("entries") +
             list(all)) +
         ".";
}

}  // namespace

TEST_CASE("PyTorch's dump: behind the last collective, or in the oldest that is not complete") {
  const auto over = read_torch_dump(dump({{.seq = 1}, {.seq = 2, .name = "nccl:broadcast"}}));
  REQUIRE(over);
  REQUIRE(over->size() == 2);
  CHECK(over->at(0).group == 0);
  CHECK(over->at(0).seq == 2);
  CHECK_FALSE(over->at(0).inside);
  CHECK(over->at(0).what == 3);
  CHECK(over->at(1).group == 3);
  CHECK(over->at(1).seq == 0);

  const auto open = read_torch_dump(dump({{.seq = 1},
                                          {.seq = 2, .state = "started"},
                                          {.seq = 3, .state = "scheduled"},
                                          {.seq = 9, .state = "started", .p2p = true}}));
  REQUIRE(open);
  CHECK(open->at(0).seq == 2);
  CHECK(open->at(0).inside);
}

TEST_CASE("PyTorch's dump: groups with other names have the same number in all ranks") {
  const Entry other{.seq = 4, .group_name = "tp_5f3", .description = "tp"};
  const auto first = read_torch_dump(dump({other})), second = read_torch_dump(dump({{}, other}));
  REQUIRE((first && second));
  CHECK(first->back().group == second->back().group);
  CHECK(first->back().group > 3);
}

TEST_CASE("PyTorch's dump: one that is being written is an error") {
  const std::string whole = dump({{.seq = 1}});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CHECK_FALSE(read_torch_dump(whole.substr(0, size)));
  }
  CHECK_FALSE(read_torch_dump("\x80\x02]."));
}
