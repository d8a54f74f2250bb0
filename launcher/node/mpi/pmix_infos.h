// PmixInfos: a list of pmix_info_t, with the memory that they point to.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/node/mpi/pmix_abi.h"

namespace dlaunch {

class PmixInfos {
 public:
  void add_text(const char* key, std::string_view text);
  // A text that the library made a map of; its terminator is part of it.
  void add_regex(const char* key, std::string_view text);
  void add_flag(const char* key, bool flag);
  void add_uint16(const char* key, unsigned number);
  void add_uint32(const char* key, unsigned number);
  void add_rank(const char* key, int rank);
  void add_list(const char* key, PmixInfos list);

  // Valid until something is added.
  pmix::Info* data() { return infos_.data(); }
  std::size_t size() const { return infos_.size(); }

 private:
  pmix::Value& add(const char* key, pmix::Type type);

  std::vector<pmix::Info> infos_;
  std::deque<std::string> texts_;
  std::deque<PmixInfos> lists_;
  std::deque<pmix::DataArray> arrays_;
};

}  // namespace dlaunch
