#include "rendezvous/worker_message.h"

#include <doctest/doctest.h>

using namespace dlaunch;

TEST_CASE("messages between worker and agent are read as written") {
  const auto ready = decode_worker_message(encode(Ready{7, 3, 41, "it stands still"}));
  REQUIRE(ready);
  REQUIRE(std::holds_alternative<Ready>(*ready));
  CHECK(std::get<Ready>(*ready).worker == 7);
  CHECK(std::get<Ready>(*ready).left == 3);
  CHECK(std::get<Ready>(*ready).version == 41);
  CHECK(std::get<Ready>(*ready).why == "it stands still");

  const auto round = decode_worker_message(encode(RoundNotice{.round = 4,
                                                              .rank = 1,
                                                              .size = 3,
                                                              .local_cores = 8,
                                                              .store_url = "tcp://[::1]:5",
                                                              .round_dir = "/d"}));
  REQUIRE(round);
  const auto& notice = std::get<RoundNotice>(*round);
  CHECK(notice.round == 4);
  CHECK(notice.rank == 1);
  CHECK(notice.size == 3);
  CHECK(notice.local_cores == 8);
  CHECK(notice.store_url == "tcp://[::1]:5");
  CHECK(notice.round_dir == "/d");

  const auto progress = decode_worker_message(encode(ProgressNotice{7, 99}));
  REQUIRE(progress);
  CHECK(std::get<ProgressNotice>(*progress).worker == 7);
  CHECK(std::get<ProgressNotice>(*progress).version == 99);

  const auto goodbye = decode_worker_message(encode(Goodbye{7}));
  REQUIRE(goodbye);
  CHECK(std::get<Goodbye>(*goodbye).worker == 7);

  const auto fence = decode_worker_message(encode(FenceNotice{5, -1}));
  REQUIRE(fence);
  CHECK(std::get<FenceNotice>(*fence).round == 5);
  CHECK(std::get<FenceNotice>(*fence).lost == -1);
}

TEST_CASE("malformed input is refused") {
  const std::string good = encode(RoundNotice{.round = 1, .size = 2, .store_url = "s"});
  REQUIRE(decode_worker_message(good));
  for (std::size_t size = 0; size < good.size(); ++size) {
    CHECK_FALSE(decode_worker_message(std::string_view(good).substr(0, size)));
  }
  CHECK_FALSE(decode_worker_message(good + "x"));
  CHECK_FALSE(decode_worker_message("\x09"));
  CHECK_FALSE(decode_worker_message(encode(RoundNotice{.round = 1, .rank = 2, .size = 2})));
  CHECK_FALSE(decode_worker_message(encode(RoundNotice{.round = 0, .rank = 0, .size = 1})));
}
