// PmixLibrary: the functions of libpmix that a server needs, loaded at run time.
#pragma once

#include <string>

#include "base/result.h"
#include "launcher/node/mpi/pmix_abi.h"
#include "launcher/node/mpi/pmix_job.h"

namespace dlaunch {

inline constexpr int kOldestPmix = 3;
// DLAUNCH_PMIX_LIBRARY, or the system's name for the library.
std::string pmix_library_name();

struct PmixLibrary {
  PmixVersion version;
  pmix::Status (*init)(pmix::ServerModule*, pmix::Info*, std::size_t);
  pmix::Status (*finalize)();
  pmix::Status (*register_nspace)(const char* nspace, int local, pmix::Info*, std::size_t,
                                  pmix::Done, void*);
  void (*deregister_nspace)(const char* nspace, pmix::Done, void*);
  pmix::Status (*register_client)(const pmix::Proc*, uid_t, gid_t, void* object, pmix::Done, void*);
  pmix::Status (*setup_fork)(const pmix::Proc*, char*** environment);
  pmix::Status (*generate_regex)(const char* nodes, char** regex);
  pmix::Status (*generate_ppn)(const char* ranks, char** regex);
  const char* (*error_string)(pmix::Status);

  // Errc::unsupported: there is no library that can be used.
  static Result<PmixLibrary> load();
  // Error: "what: why"; none if the status is a success.
  Result<void> check(const char* what, pmix::Status status) const;
};

}  // namespace dlaunch
