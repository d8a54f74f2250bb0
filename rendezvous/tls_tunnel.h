// Tunnels: TLS around the TCP connections of a job (--tls), for code that knows nothing of it. What
// is written to the socket that tls_tunnel() gives comes out, in clear, of the one that it gave on
// the other side; between them it is encrypted (rendezvous/tls_channel.h). One thread of the
// process carries for all tunnels.
//
// It is like the socket that went in: non-blocking, closing it closes the connection once all is
// sent, and the end of the connection is its end. It differs in that it is an AF_UNIX socket
// (Carrier in base/socket.h tells which one carries it), and in that what is on its way
// is lost with the process where that is killed or calls _exit(); exit() waits for it, for at most
// a second.
#pragma once

#include "base/clock.h"
#include "base/result.h"
#include "base/secret.h"
#include "base/unique_fd.h"
#include "rendezvous/tls_channel.h"

namespace dlaunch {

// Returns at once; whoever does not hold the secret is told so in a REFUSE of
// rendezvous/handshake.h, which comes next on every connection of ours.
Result<UniqueFd> tls_tunnel(UniqueFd tcp, TlsChannel::Side side, const Secret& secret);

// The same where the secret asks for it, and else the socket itself.
Result<UniqueFd> secured(UniqueFd tcp, TlsChannel::Side side, const Secret& secret);

// Waits until what was written to them is in the kernel's hands, for at most so long. Any thread.
void flush_tunnels(Duration limit);

// To be called before the process's tunnels end: the last chance to write.
void before_tunnels_end(void (*hook)());

// As exit() does it, for a process that leaves by _exit(). Nothing moves afterwards.
void finish_tunnels();

}  // namespace dlaunch
