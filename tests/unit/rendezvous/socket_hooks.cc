#include "socket_hooks.h"

#include <arpa/inet.h>
#include <sys/syscall.h>
#include <unistd.h>

std::atomic<int> inheritable_sockets{0};
std::atomic<int> bind_next_socket_to{0};

// In place of libc's: what the code under test calls ends up here.
extern "C" int socket(int family, int type, int protocol) noexcept {
  if ((type & SOCK_CLOEXEC) == 0) ++inheritable_sockets;
  const int fd = static_cast<int>(::syscall(SYS_socket, family, type, protocol));
  const int port = family == AF_INET ? bind_next_socket_to.exchange(0) : 0;
  if (fd < 0 || port == 0) return fd;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

extern "C" int accept(int fd, sockaddr* address, socklen_t* size) {
  ++inheritable_sockets;
  return ::accept4(fd, address, size, 0);
}
