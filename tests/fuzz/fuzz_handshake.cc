#include "fuzz.h"
#include "rendezvous/handshake.h"

static int fuzz_handshake(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const std::string_view bytes = fuzz_text(data, size);
  const HandshakeIdentity self{Purpose::ring_link, "job", 1, 0, -1, "rank 0"};
  for (const bool accepts : {true, false}) {
    auto end = accepts ? Handshake::acceptor(Secret(), self, std::string(kNonceBytes, 'n'))
                       : Handshake::connector(Secret(), self, std::string(kNonceBytes, 'n'));
    (void)end.feed(bytes);
    if (end.done() || end.wanted() > 1026) __builtin_trap();
  }
  return 0;
}

static const FuzzTarget handshake_target("handshake", fuzz_handshake);
