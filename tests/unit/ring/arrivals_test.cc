#include "ring/links/arrivals.h"

#include <doctest/doctest.h>

using namespace dlaunch;

TEST_CASE("arrivals: the text has only known ranks") {
  CHECK(describe({.ranks = 5, .missing = {1, 2, 4}}) == "rank 1-2,4 of 5 have not arrived");
  CHECK(describe({.ranks = 3, .missing = {1}, .unconnected = {2}}) ==
        "rank 1 of 3 has not arrived");
  CHECK(describe({.ranks = 4, .missing = {1}, .unknown = {2, 3}, .why = "no store"}) ==
        "rank 1 of 4 has not arrived; of rank 2-3 this is not known: no store");
  CHECK(describe({.ranks = 4, .unknown = {3}, .why = "no store", .unconnected = {2}}) ==
        "rank 3 of 4 has not connected; whether it has arrived is not known: no store");
  CHECK(describe({.ranks = 4, .unconnected = {2, 3}}) ==
        "all 4 ranks have arrived, but rank 2-3 have not connected (a firewall?)");
  CHECK(describe({.ranks = 2, .in_group = true, .missing = {7}}) ==
        "of a group of 2 the job's rank 7 has not arrived");
  CHECK(describe({.ranks = 4, .in_group = true, .unconnected = {2, 3}}) ==
        "all 4 ranks of the group have arrived, but the job's rank 2-3 have not connected (a "
        "firewall?)");
}
