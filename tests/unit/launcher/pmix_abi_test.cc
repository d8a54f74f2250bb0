// Compares our declarations of libpmix's interface with its headers, if these are installed.
#include "launcher/node/mpi/pmix_abi.h"

#include <doctest/doctest.h>

#include "launcher/node/mpi/pmix_infos.h"

#if __has_include(<pmix_server.h>)
#include <pmix_server.h>

using namespace dlaunch;

static_assert(PMIX_SUCCESS == pmix::kSuccess && PMIX_ERROR == pmix::kError);
static_assert(PMIX_ERR_NOT_SUPPORTED == pmix::kNotSupported);
static_assert(PMIX_OPERATION_SUCCEEDED == pmix::kSucceededAtOnce);
static_assert(PMIX_RANK_WILDCARD == pmix::kAllRanks);
static_assert(PMIX_BOOL == pmix::kBool && PMIX_STRING == pmix::kString);
static_assert(PMIX_UINT16 == pmix::kUint16 && PMIX_UINT32 == pmix::kUint32);
static_assert(PMIX_INFO == pmix::kInfo && PMIX_DATA_ARRAY == pmix::kDataArray);
static_assert(PMIX_PROC_RANK == pmix::kProcRank);
#ifdef PMIX_REGEX
static_assert(PMIX_REGEX == pmix::kRegex);
#endif

static_assert(sizeof(pmix_proc_t) == sizeof(pmix::Proc));
static_assert(offsetof(pmix_proc_t, rank) == offsetof(pmix::Proc, rank));
static_assert(sizeof(pmix_value_t) == sizeof(pmix::Value));
static_assert(offsetof(pmix_value_t, data) == offsetof(pmix::Value, data));
static_assert(sizeof(pmix_info_t) == sizeof(pmix::Info));
static_assert(offsetof(pmix_info_t, value) == offsetof(pmix::Info, value));
static_assert(sizeof(pmix_data_array_t) == sizeof(pmix::DataArray));
static_assert(offsetof(pmix_data_array_t, array) == offsetof(pmix::DataArray, array));

using Theirs = pmix_server_module_t;
static_assert(sizeof(Theirs) <= sizeof(pmix::ServerModule));
static_assert(offsetof(Theirs, abort) == offsetof(pmix::ServerModule, abort));
static_assert(offsetof(Theirs, fence_nb) == offsetof(pmix::ServerModule, fence));
static_assert(offsetof(Theirs, spawn) == offsetof(pmix::ServerModule, spawn));
static_assert(offsetof(Theirs, job_control) == offsetof(pmix::ServerModule, job_control));
#else
TEST_CASE("pmix abi: nothing to compare with") {
  MESSAGE("no pmix_server.h: our idea of libpmix's interface is not compared with its own");
}
#endif

TEST_CASE("pmix infos: pointers stay valid when infos move and grow") {
  dlaunch::PmixInfos outer;
  for (unsigned i = 0; i < 100; ++i) {
    dlaunch::PmixInfos inner;
    inner.add_text("name", "n" + std::to_string(i));
    inner.add_uint16("number", i);
    outer.add_list("one", std::move(inner));
  }
  outer.add_regex("map", "pmix[a]");
  const dlaunch::PmixInfos moved = std::move(outer);
  auto* infos = const_cast<dlaunch::PmixInfos&>(moved).data();
  REQUIRE(moved.size() == 101);
  for (unsigned i = 0; i < 100; ++i) {
    CHECK(infos[i].key == std::string("one"));
    const auto* list = infos[i].value.data.array;
    REQUIRE(list->size == 2);
    const auto* first = static_cast<dlaunch::pmix::Info*>(list->array);
    CHECK(first[0].value.data.string == "n" + std::to_string(i));
    CHECK(first[1].value.data.uint16 == i);
  }
  CHECK(infos[100].value.type == dlaunch::pmix::kRegex);
  CHECK(infos[100].value.data.object.size == 8);
}
