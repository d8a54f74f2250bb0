// Hosts as users list them, as values. One parser reads the hostfiles of Open MPI ("node01 slots=8
// max_slots=16"), Horovod ("node01 slots=8") and MPICH ("node01:8"), with or without "user@",
// "port=22", ranges ("node[01-16,20]:8") and comments; another reads the lists of --hosts
// ("node01:8,node[02-04]:8"), and a third one names only.
//
// Pure. A host named twice gets the slots of both, as in Open MPI.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace dlaunch {

struct HostEntry {
  std::string host;
  std::string user;              // "": ours
  std::optional<int> slots;      // nullopt: not given
  std::optional<int> max_slots;  // never more workers than this; nullopt: not given
  std::optional<int> port;       // of its sshd; nullopt: the usual one
  int line = 0;                  // of its first mention; 0 in a --hosts list

  bool operator==(const HostEntry&) const = default;
};

// Malformed: Errc::protocol, "<name>:<line>: …". A file without hosts is malformed.
Result<std::vector<HostEntry>> parse_hostfile(std::string_view text, std::string_view name);

// Malformed: Errc::usage.
Result<std::vector<HostEntry>> parse_host_list(std::string_view text);

// The names of such a list, each as often as it is there: "node[01-03],login". Slurm writes its
// nodes so, without users and slots. Malformed: Errc::usage.
Result<std::vector<std::string>> parse_name_list(std::string_view text);

// "node[01-03,7]b" -> node01b node02b node03b node7b. Several ranges multiply; the width of a
// range's first number is kept. At most 65536 names.
Result<std::vector<std::string>> expand_ranges(std::string_view text);

}  // namespace dlaunch
