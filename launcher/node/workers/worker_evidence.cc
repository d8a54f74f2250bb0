#include "launcher/node/workers/worker_evidence.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/nccl_record.h"
#include "base/unique_fd.h"

namespace dlaunch {

void note_wait_status(WorkerEnd& end, const siginfo_t& info) {
  if (info.si_code == CLD_EXITED)
    end.exit_code = info.si_status;
  else
    end.signal = info.si_status;
  end.core_dumped = info.si_code == CLD_DUMPED;
}

std::optional<CorruptNote> corrupt_note(const WorkerPlace& place) {
  if (place.round_dir.empty()) return std::nullopt;
  const std::string text =
      read_left_file(place.round_dir + "/corrupt." + std::to_string(place.rank));
  const char* const end = text.data() + text.size();
  CorruptNote note;
  const auto rank = std::from_chars(text.data(), end, note.rank);
  if (rank.ec != std::errc() || rank.ptr == end || *rank.ptr != '\n') return std::nullopt;
  note.what.assign(rank.ptr + 1, end);
  while (note.what.ends_with('\n')) note.what.pop_back();
  return note;
}

void note_left_files(WorkerEnd& end, const WorkerPlace& place) {
  end.error_file = read_left_file(place.error_file);
  if (place.round_dir.empty()) return;
  auto operations = last_operations_of(place);
  end.flight = std::move(operations.entries);
  end.flight_is_nccl = operations.is_nccl;
  const std::string note =
      read_left_file(place.round_dir + "/peer_lost." + std::to_string(place.rank));
  int peer = -1;
  if (std::from_chars(note.data(), note.data() + note.size(), peer).ec == std::errc()) {
    end.peer_lost = peer;
  }
}

void note_corruption(WorkerEnd& end, const WorkerPlace& place) {
  auto corrupt = corrupt_note(place);
  if (!corrupt || (corrupt->rank >= 0 && corrupt->rank != place.rank)) return;
  end.corrupt_rank = corrupt->rank;
  end.corrupt = std::move(corrupt->what);
}

std::string flight_record_of(const WorkerPlace& place) {
  if (place.round_dir.empty()) return "";
  return read_left_file(flight_file(place.round_dir, place.rank));
}

std::string nccl_record_of(const WorkerPlace& place) {
  if (place.round_dir.empty()) return "";
  return read_left_file(nccl_file(place.round_dir, place.rank));
}

LastOperations last_operations_of(const WorkerPlace& place) {
  auto entries = read_flight(flight_record_of(place));
  if (!entries.empty()) return {.entries = std::move(entries), .is_nccl = false};
  return {.entries = read_nccl_flight(nccl_record_of(place)), .is_nccl = true};
}

void note_out_of_memory(WorkerEnd& end, OomCounter& before) {
  if (end.signal != SIGKILL || end.signal_we_sent == SIGKILL || end.by_chaos) return;
  end.oom_text = describe_oom(before, read_oom_counter());
  end.oom_evidence = !end.oom_text.empty();
  if (end.oom_evidence) ++before.kills;
}

std::string read_left_file(const std::string& path, std::size_t most) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  struct stat st {};
  if (!fd || ::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return "";
  std::string text(std::min<std::size_t>(static_cast<std::size_t>(st.st_size), most), '\0');
  std::size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t n = ::read(fd.get(), text.data() + filled, text.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    filled += static_cast<std::size_t>(n);
  }
  text.resize(filled);
  return text;
}

}  // namespace dlaunch
