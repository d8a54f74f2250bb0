// The job's private folder: the secret, packages for its Pythons, and a folder for each round in
// which workers leave their error files and libdlring its notes on lost peers, by rank. Mode 0700,
// in folder_for_jobs(). The keeper or the agent removes it at the end, whichever lives longer. If
// both were killed, the user's next job removes the folder: its lock is free then.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/secret.h"
#include "base/unique_fd.h"

namespace dlaunch {

// $TMPDIR, if it is set. Else the first of these in which we may make files: /tmp,
// $XDG_RUNTIME_DIR, /run/user/UID, /run, /dev/shm; /tmp if there is none. A read-only root needs no
// TMPDIR.
std::string folder_for_jobs();

// The folders in `tmp` of this user's jobs that are running, by name.
std::vector<std::string> running_job_dirs(const std::string& tmp);

inline constexpr const char* kSecretInJobDir = "secret";  // the file's name, if there is one

class JobDir {
 public:
  static Result<JobDir> make(const std::string& tmp);

  const std::string& path() const { return path_; }
  // Writes the secret 0600 and returns the file's path.
  Result<std::string> write_secret(const Secret& secret) const;
  // Makes a folder for PYTHONPATH in which this package is, with this text, and returns its path.
  Result<std::string> write_package(const std::string& name, std::string_view text) const;
  // Makes the folder of a round and returns its path.
  Result<std::string> make_round_dir(int round) const;
  // Removes the folders of this round and of those before it, as far as they are there.
  void remove_round_dirs(int round) const;
  void remove() const;

 private:
  std::string path_;
  UniqueFd lock_;  // inherited by fork: held as long as keeper or agent lives
  // Locked as well: systemd-tmpfiles and the like leave such a folder in /tmp alone.
  UniqueFd folder_;
};

}  // namespace dlaunch
