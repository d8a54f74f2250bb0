// Tests observe and control the socket calls of the code under test.
#pragma once

#include <sys/socket.h>

#include <atomic>

// How many sockets were made or accepted that a program started at that moment would have got.
extern std::atomic<int> inheritable_sockets;

// The next AF_INET socket is bound to this port of 127.0.0.1, as if the kernel had chosen it for
// the connection. 0: as it comes.
extern std::atomic<int> bind_next_socket_to;
