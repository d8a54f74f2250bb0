// Contacts: how a rank reaches another rank of its host with which it has no link yet. Each rank
// writes its own into shared memory, which only the ranks of the job have mapped, before any rank's
// dl_init() returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace dlaunch {

// The random part of the name of a rank's AF_UNIX listener (ring/links/listener.h), in characters.
inline constexpr std::size_t kListenerHex = 32;

struct Contact {
  std::uint32_t pid = 0;             // this and the next as the rank itself sees them
  char host[60] = {};                // as long as there is room; ends with zero
  char listener[kListenerHex] = {};  // see listener_name()
  unsigned char token[16] = {};      // random; a rank that connects has to know it
};

// By rank.
struct Contacts {
  std::vector<Contact*> of;
  std::shared_ptr<void> keep;  // unmaps them
};

}  // namespace dlaunch
