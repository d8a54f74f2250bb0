#include "elastic/state/by_gpu.h"

#include <algorithm>
#include <vector>

namespace dlaunch {
namespace {

// One broadcast moves at most this: one operation has one time limit, and a line may be slow.
constexpr std::size_t kPortion = std::size_t{64} << 20;

// Which buffers are on GPUs. Empty: none is, or not on all ranks.
Result<std::vector<bool>> on_gpus(Rounds& rounds, std::span<const Bytes> buffers) {
  std::vector<std::uint64_t> words;
  for (const Bytes buffer : buffers) {
    const bool on_gpu = !buffer.empty() && rounds.on_gpu(buffer.data());
    words.push_back(on_gpu);
    words.push_back(!on_gpu);
  }
  if (auto r = rounds.maximum(words); !r) return r.error();
  std::vector<bool> on;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (words[2 * i] == words[2 * i + 1]) return std::vector<bool>();
    on.push_back(words[2 * i] != 0);
  }
  if (std::ranges::find(on, true) == on.end()) on.clear();
  return on;
}

// In portions.
Result<void> broadcast(Rounds& rounds, std::span<const Bytes> buffers, int root) {
  std::vector<Bytes> portion;
  std::size_t bytes = 0;
  for (Bytes rest : buffers) {
    while (!rest.empty()) {
      portion.push_back(rest.first(std::min(rest.size(), kPortion - bytes)));
      bytes += portion.back().size();
      rest = rest.subspan(portion.back().size());
      if (bytes < kPortion) continue;
      if (auto r = rounds.broadcast(portion, root); !r) return r;
      portion.clear();
      bytes = 0;
    }
  }
  return portion.empty() ? Result<void>() : rounds.broadcast(portion, root);
}

}  // namespace

Result<std::optional<Filled>> give_by_gpus(const Contribution& contribution,
                                           std::span<const Pull> pulls, Copy& copy) {
  std::optional<Filled> none;
  Rounds& rounds = contribution.rounds;
  const auto pull = std::ranges::find(pulls, kReplicated, &Pull::object);
  if (pull == pulls.end() || pull->receivers.empty() || pull->bytes == 0) return none;
  const auto buffers = contribution.registry.replicated();
  const auto on = on_gpus(rounds, buffers);
  if (!on) return on.error();
  if (on->empty()) return none;
  std::vector<Bytes> of_gpu, of_host;  // a list is of one kind
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    ((*on)[i] ? of_gpu : of_host).push_back(buffers[i]);
  }

  const int me = rounds.rank(), root = pull->sources.front();
  // The first broadcast on this communicator shows how they travel.
  const Bytes first_byte = of_gpu.front().first(1);
  if (auto r = rounds.broadcast({&first_byte, 1}, root); !r) return r.error();
  if (!rounds.gpu_to_gpu()) return none;

  Result<void> mine;
  if (me == root) mine = contribution.registry.restore_replicated(copy.bytes(kReplicated));
  if (auto r = agree(rounds, mine); !r) return r.error();
  if (auto r = broadcast(rounds, of_gpu, root); !r) return r.error();
  if (auto r = broadcast(rounds, of_host, root); !r) return r.error();
  const bool receives = std::ranges::find(pull->receivers, me) != pull->receivers.end();
  if (receives) mine = contribution.registry.capture_replicated(copy.bytes(kReplicated));
  if (auto r = agree(rounds, mine); !r) return r.error();

  Filled filled{.pull = static_cast<std::size_t>(pull - pulls.begin())};
  if (receives) filled.misfits = misfits(pulls, filled.pull, me, copy.bytes(kReplicated));
  filled.in_memory = me == root || (receives && filled.misfits.empty());
  return std::optional(std::move(filled));
}

}  // namespace dlaunch
