// Tunnels: TLS around the TCP connections of a job (--tls), for code that knows nothing of it. The
// socket that tls_tunnel() returns here and the one it returns on the other side exchange clear
// bytes; between them the bytes are encrypted (rendezvous/tls_channel.h). One thread of the process
// serves all tunnels.
//
// The returned socket behaves like the original one: it is non-blocking, closing it closes the
// connection once all is sent, and the end of the connection is its end. Two differences: it is an
// AF_UNIX socket (Carrier in base/socket.h finds the one that carries it), and bytes on their way
// are lost if the process is killed or calls _exit(). exit() waits for them, for at most a second.
#pragma once

#include "base/clock.h"
#include "base/result.h"
#include "base/secret.h"
#include "base/unique_fd.h"
#include "rendezvous/tls_channel.h"

namespace dlaunch {

// Returns at once. A peer without the secret gets a REFUSE of rendezvous/handshake.h, which comes
// next on every connection of ours.
Result<UniqueFd> tls_tunnel(UniqueFd tcp, TlsChannel::Side side, const Secret& secret);

// A tunnel if the secret asks for encryption, else the socket itself.
Result<UniqueFd> secured(UniqueFd tcp, TlsChannel::Side side, const Secret& secret);

// Waits until the kernel has what was written to the tunnels, for at most so long. Any thread.
void flush_tunnels(Duration limit);

// The hook runs before the process's tunnels end: the last chance to write.
void before_tunnels_end(void (*hook)());

// Does what exit() does, for a process that leaves by _exit(). No bytes move afterwards.
void finish_tunnels();

}  // namespace dlaunch
