#include "launcher/lead/report/flight_dump.h"

#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/pickle.h"
#include "launcher/node/watch/torch_dump.h"

using namespace dlaunch;

namespace {

struct Made {
  std::uint64_t number = 1, seq = 1;
  FlightState state = FlightState::done;
  std::uint32_t group = 0;
  std::uint8_t kind = 0;
  std::uint64_t count = 8;
};
WorkerEnd worker_with(int rank, const std::vector<Made>& operations) {
  WorkerEnd end;
  end.rank = rank;
  for (const Made& made : operations) {
    end.flight.push_back({.what = {},
                          .state = made.state,
                          .started = end.ended,
                          .ended = end.ended,
                          .number = made.number,
                          .seq = made.seq,
                          .count = made.count,
                          .group = made.group,
                          .kind = made.kind,
                          .dtype = 8});
  }
  return end;
}

std::vector<std::int64_t> numbers_in(const std::string& dump) {
  const auto pickle = Pickle::read(dump);
  REQUIRE(pickle);
  std::vector<std::int64_t> numbers;
  for (const PickleValue* entry : pickle->items(*pickle->find(pickle->root(), "entries"))) {
    numbers.push_back(pickle->integer(*entry, "collective_seq_id", -1));
  }
  return numbers;
}

}  // namespace

TEST_CASE("flight dumps: our own reader finds where each rank stands") {
  const auto dumps = flight_dumps(
      {worker_with(0, {{.seq = 1}, {.number = 2, .seq = 2, .state = FlightState::running}}),
       worker_with(1, {{.seq = 1}}),
       worker_with(2, {{.seq = 1}, {.number = 2, .seq = 2, .state = FlightState::failed}})},
      4);
  REQUIRE(dumps.size() == 3);
  const auto waits = read_torch_dump(dumps.at(0)), lacks = read_torch_dump(dumps.at(1));
  REQUIRE((waits && lacks));
  CHECK((waits->at(0).seq == 2 && waits->at(0).inside));
  CHECK((lacks->at(0).seq == 1 && !lacks->at(0).inside));
  CHECK(read_torch_dump(dumps.at(2))->at(0).inside);
  const auto pickle = Pickle::read(dumps.at(1));
  const auto* const groups = pickle->find(pickle->root(), "pg_config");
  CHECK(pickle->text(*pickle->find(*groups, "0"), "ranks") == "[0, 1, 2, 3]");
}

TEST_CASE("flight dumps: they begin where the records of all members of a group begin") {
  const auto dumps =
      flight_dumps({worker_with(0, {{.number = 9, .seq = 5}, {.number = 10, .seq = 6}}),
                    worker_with(1, {{.seq = 4}, {.number = 2, .seq = 5}, {.number = 3, .seq = 6}}),
                    worker_with(2, {{.seq = 3, .group = 7}, {.number = 2, .seq = 6}})},
                   3);
  CHECK(numbers_in(dumps.at(0)) == std::vector<std::int64_t>{5, 6});
  CHECK(numbers_in(dumps.at(1)) == std::vector<std::int64_t>{5, 6});
  CHECK(numbers_in(dumps.at(2)) == std::vector<std::int64_t>{3, 6});
  const auto pickle = Pickle::read(dumps.at(2));
  const auto* const groups = pickle->find(pickle->root(), "pg_config");
  CHECK(pickle->text(*pickle->find(*groups, "7"), "ranks") == "[2]");
  CHECK(Pickle::read(dumps.at(0))->items(*groups).empty());
}

TEST_CASE("flight dumps: no messages, and one size where the ranks give different ones") {
  const auto dumps = flight_dumps(
      {worker_with(0, {{.kind = 2, .count = 3}, {.number = 2, .seq = 0, .kind = kFlightSend}}),
       worker_with(1, {{.kind = 2, .count = 5}})},
      2);
  CHECK(numbers_in(dumps.at(0)) == std::vector<std::int64_t>{1});
  for (const auto& [rank, dump] : dumps) {
    const auto pickle = Pickle::read(dump);
    const auto* const entry = pickle->items(*pickle->find(pickle->root(), "entries")).at(0);
    const auto size = [&](const char* key) {
      return pickle->items(*pickle->items(*pickle->find(*entry, key)).at(0)).at(0)->number;
    };
    CHECK((size("input_sizes") == 5 && size("output_sizes") == 10));
  }
}

TEST_CASE("flight dumps: a rank without a flight record has none") {
  CHECK(flight_dumps({worker_with(0, {}), worker_with(5, {{}})}, 2).empty());
}
