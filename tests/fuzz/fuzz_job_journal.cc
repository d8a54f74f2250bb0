#include "fuzz.h"
#include "launcher/wire/job_journal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const auto journal = decode_job_journal(fuzz_text(data, size));
  if (!journal) return -1;
  // What is accepted means the same once it was written again.
  const std::string written = encode(*journal);
  const auto again = decode_job_journal(written);
  if (!again || encode(*again) != written) __builtin_trap();
  return 0;
}
