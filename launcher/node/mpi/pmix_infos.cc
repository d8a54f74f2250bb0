#include "launcher/node/mpi/pmix_infos.h"

#include <cstring>
#include <utility>

#include "base/check.h"

namespace dlaunch {

pmix::Value& PmixInfos::add(const char* key, pmix::Type type) {
  pmix::Info& info = infos_.emplace_back();
  DL_ASSERT(std::strlen(key) < sizeof info.key);
  std::strcpy(info.key, key);
  info.value.type = type;
  return info.value;
}

void PmixInfos::add_text(const char* key, std::string_view text) {
  add(key, pmix::kString).data.string = texts_.emplace_back(text).data();
}

void PmixInfos::add_regex(const char* key, std::string_view text) {
  std::string& kept = texts_.emplace_back(text);
  add(key, pmix::kRegex).data.object = {kept.data(), kept.size() + 1};
}

void PmixInfos::add_flag(const char* key, bool flag) { add(key, pmix::kBool).data.flag = flag; }

void PmixInfos::add_uint16(const char* key, unsigned number) {
  add(key, pmix::kUint16).data.uint16 = static_cast<std::uint16_t>(number);
}

void PmixInfos::add_uint32(const char* key, unsigned number) {
  add(key, pmix::kUint32).data.uint32 = number;
}

void PmixInfos::add_rank(const char* key, int rank) {
  add(key, pmix::kProcRank).data.rank = static_cast<pmix::Rank>(rank);
}

void PmixInfos::add_list(const char* key, PmixInfos list) {
  PmixInfos& kept = lists_.emplace_back(std::move(list));
  add(key, pmix::kDataArray).data.array =
      &arrays_.emplace_back(pmix::DataArray{pmix::kInfo, kept.size(), kept.data()});
}

}  // namespace dlaunch
