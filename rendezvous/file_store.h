// The file:// Store: a journal in a folder that all members share, on a local or network file
// system. Pieces of the format, all little-endian:
//
//   record   u32 size of the rest, 8 bytes checksum of the body, body
//   body     u8 kind (1 set, 2 delete prefix), key, value     (u32 length and bytes each)
//
// A writer holds an fcntl lock on the journal while it appends, so a holder that crashes leaves no
// lock behind. It leaves at worst one torn record at the end, which readers reject and the next
// writer cuts off. Readers need no lock. Waiting uses inotify and, for file systems that do not
// report other hosts' writes, a look at least every 50 ms.
//
// A journal that has grown to several times its live content is rewritten beside the old one, which
// it then replaces under the lock. A crash leaves one or the other, and at worst a file "…~" that
// the next rewrite overwrites. A process that has the old one open notices, and reads the new one
// from its start.
//
// The folder's permissions decide which users may take part. Use a new folder, or a new job id, for
// each job.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/store.h"

namespace dlaunch {

// Makes the folder if only its last component is missing. The job id names the journal.
Result<std::unique_ptr<Store>> open_file_store(const std::string& folder,
                                               const std::string& job_id);

// FOLDER/dlaunch-WHAT-JOB: a file of the job in a shared folder; the folder as above.
Result<std::string> job_file(const std::string& folder, const std::string& what,
                             const std::string& job_id);

}  // namespace dlaunch
