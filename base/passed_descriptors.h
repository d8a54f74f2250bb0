// Descriptors that travel with the bytes of a message on an AF_UNIX socket (SCM_RIGHTS).
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "base/unique_fd.h"

namespace dlaunch {

// The data that sendmsg() and recvmsg() need for at most kMost descriptors. It must outlive the
// call; use it for one call only.
template <std::size_t kMost>
class PassedDescriptors {
 public:
  // The message takes these along; the caller keeps its own.
  void send_with(msghdr& message, std::span<const int> descriptors) {
    if (descriptors.empty()) return;
    message.msg_control = control_;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }

  // Call it before recvmsg(), which reports MSG_CTRUNC if there was no room for all descriptors.
  void receive_with(msghdr& message) {
    message.msg_control = control_;
    message.msg_controllen = CMSG_LEN(sizeof(int) * kMost);
  }
  // Call it after recvmsg(): returns the descriptors that came.
  static std::vector<UniqueFd> taken_from(msghdr& message) {
    std::vector<UniqueFd> taken;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof descriptor, sizeof descriptor);
        taken.emplace_back(descriptor);
      }
    }
    return taken;
  }

 private:
  alignas(cmsghdr) char control_[CMSG_SPACE(sizeof(int) * kMost)] = {};
};

}  // namespace dlaunch
