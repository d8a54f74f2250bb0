#include "base/pickle.h"

#include <string>

#include <doctest/doctest.h>

#include "base/pickle_writer.h"

using namespace dlaunch;
using namespace std::string_literals;

TEST_CASE("a pickle of plain data, as Python writes it") {
  // pickle.dumps({"a": [1, -2, 300, 70000, 2**40], "b": ("x", None, True, 1.5)}, 2)
  const auto pickle = Pickle::read(
      "\x80\x02}q\x00(X\x01\x00\x00\x00"
      "aq\x01]q\x02(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01"
      "eX\x01\x00\x00\x00"
      "bq\x03(X\x01\x00\x00\x00xq\x04N\x88G?\xf8\x00\x00\x00\x00\x00\x00tq\x05u."s);
  REQUIRE(pickle);
  const auto list = pickle->items(*pickle->find(pickle->root(), "a"));
  REQUIRE(list.size() == 5);
  CHECK(list[0]->number == 1);
  CHECK(list[1]->number == -2);
  CHECK(list[2]->number == 300);
  CHECK(list[3]->number == 70000);
  CHECK(list[4]->number == 1LL << 40);
  const auto tuple = pickle->items(*pickle->find(pickle->root(), "b"));
  REQUIRE(tuple.size() == 4);
  CHECK(tuple[0]->words == "x");
  CHECK(tuple[1]->kind == PickleValue::none);
  CHECK(tuple[2]->number == 1);
  CHECK(tuple[3]->real_number == 1.5);
  CHECK(pickle->find(pickle->root(), "c") == nullptr);
  CHECK(pickle->integer(pickle->root(), "c", 7) == 7);
}

TEST_CASE("values that a pickle repeats come from its memo, and a list may hold itself") {
  // x = []; x.append(x)
  const auto itself = Pickle::read("\x80\x02]q\x00h\x00"s + "a."s);
  REQUIRE(itself);
  CHECK(itself->items(itself->root()).at(0) == &itself->root());
}

TEST_CASE("a pickle that calls something, or is damaged, is an error") {
  CHECK_FALSE(Pickle::read("cos\nsystem\n(S'true'\ntR."));
  CHECK_FALSE(
      Pickle::read("\x80\x02}q\x00(X\x01\x00\x00\x00"
                   "a"s));
  CHECK_FALSE(Pickle::read(""));
  CHECK_FALSE(Pickle::read("."));
  CHECK_FALSE(Pickle::read("\x80\x02K"s));
  CHECK_FALSE(Pickle::read("\x80\x02h\x05."s));
  CHECK_FALSE(Pickle::read("X\xff\xff\xff\xff."s));
  CHECK_FALSE(
      Pickle::read("K\x01K\x02"
                   "a."s));
  CHECK_FALSE(Pickle::read("e."));
}

TEST_CASE("a pickle that is written is read with the same values") {
  PickleWriter writer;
  writer.begin_dict();
  for (const char* const key : {"small", "large"}) {
    writer.text(key);
    writer.begin_list();
    const std::int64_t unit = key[0] == 's' ? 1 : 5'000'000'000;
    for (const std::int64_t value : {unit, -unit}) writer.integer(value);
    writer.end_list();
  }
  writer.text("pair");
  writer.begin_tuple();
  writer.text("small");
  writer.boolean(true);
  writer.end_tuple();
  writer.end_dict();
  const auto pickle = Pickle::read(writer.finish());
  REQUIRE(pickle);
  const auto values = [&](const char* key) {
    return pickle->items(*pickle->find(pickle->root(), key));
  };
  CHECK((values("small").at(0)->number == 1 && values("small").at(1)->number == -1));
  CHECK(values("large").at(0)->number == 5'000'000'000);
  CHECK(values("large").at(1)->number == -5'000'000'000);
  CHECK(values("pair").at(0)->words == "small");
  CHECK((values("pair").at(1)->kind == PickleValue::boolean && values("pair").at(1)->number == 1));
}
