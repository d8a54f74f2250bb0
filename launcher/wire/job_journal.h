// JobJournal: what the leader of a job writes down for the next leader: the slots and their nodes,
// and the state of JobCore. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "elastic/job_core.h"

namespace dlaunch {

struct JobJournal {
  struct Host {  // by node
    std::string name;
    int nproc = 0;          // 0: it has never joined
    std::string rack = {};  // elastic/rack_order.h
    bool operator==(const Host&) const = default;
  };
  struct Drained {  // a host that the user has taken out
    std::string name;
    int node = 0;
    bool left = false;  // its dlaunch has ended
    bool operator==(const Drained&) const = default;
  };
  std::string run;  // name of this run of the job; unique
  int size = 0;     // workers at the start
  std::vector<Host> hosts;
  std::vector<int> nodes;  // by slot of the job: its node
  int led = -1;            // the leader's own node; -1: none
  std::string slurm_job;   // as NodesPlan, both
  int requeued = 0;
  std::vector<Drained> drained;
  JobRecord job;
  bool operator==(const JobJournal&) const = default;
};

std::string encode(const JobJournal& journal);
// Errc::protocol: something does not fit, or names nodes and slots that do not exist.
Result<JobJournal> decode_job_journal(std::string_view bytes);

}  // namespace dlaunch
