// The part of the PMIx standard's interface that is used here (pmix-standard.org: version 4.1 and
// its ABI, which libpmix keeps from 3 on): the library is found at run time only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dlaunch::pmix {

using Status = int;
constexpr Status kSuccess = 0, kError = -1, kNotSupported = -47;
constexpr Status kSucceededAtOnce = -157;  // no callback follows

using Rank = std::uint32_t;
constexpr Rank kAllRanks = UINT32_MAX - 1;  // of a namespace

enum Type : std::uint16_t {
  kBool = 1,
  kString = 3,
  kUint16 = 13,
  kUint32 = 14,
  kInfo = 24,
  kDataArray = 39,
  kProcRank = 40,
  kRegex = 49
};

struct Proc {
  char nspace[256];
  Rank rank;
};

struct DataArray {
  std::uint16_t type;
  std::size_t size;
  void* array;
};

struct Value {
  std::uint16_t type;
  union {
    bool flag;
    char* string;
    std::uint16_t uint16;
    std::uint32_t uint32;
    Rank rank;
    DataArray* array;
    struct {
      char* bytes;
      std::size_t size;
    } object;
    struct {
      char *name, *value;
      char separator;
    } variable;  // the longest of those that are not used here
  } data;
};

struct Info {
  char key[512];
  std::uint32_t flags;
  Value value;
};

using Done = void (*)(Status, void* caller);
using Release = void (*)(void* caller);
using Exchanged = void (*)(Status, const char* data, std::size_t size, void* caller,
                           Release release, void* to_release);

// pmix_server_module_t: the library's calls to its host. Null: not offered.
struct ServerModule {
  Status (*client_connected)(const Proc*, void* object, Done, void* caller) = nullptr;
  Status (*client_finalized)(const Proc*, void* object, Done, void* caller) = nullptr;
  Status (*abort)(const Proc*, void* object, int status, const char* message, Proc procs[],
                  std::size_t count, Done, void* caller) = nullptr;
  // `data` is from malloc(); the host frees it.
  Status (*fence)(const Proc procs[], std::size_t count, const Info info[], std::size_t infos,
                  char* data, std::size_t size, Exchanged, void* caller) = nullptr;
  void* not_offered[4] = {};
  Status (*spawn)(const Proc*, const Info job_infos[], std::size_t infos, const void* programs,
                  std::size_t count, void* done, void* caller) = nullptr;
  void* nor_those[10] = {};
  Status (*job_control)(const Proc*, const Proc targets[], std::size_t count, const Info info[],
                        std::size_t infos, void* done, void* caller) = nullptr;
  void* nor_these[44] = {};  // more than any version has
};

}  // namespace dlaunch::pmix
