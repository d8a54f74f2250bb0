#include <cstddef>

#include "base/text.h"
#include "fuzz.h"
#include "launcher/node/mpi/pmi_core.h"

static int fuzz_pmi(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  // Two ranks on one of two nodes say the lines in turn; what a node gives the others is read by
  // it.
  PmiCore core;
  for (const int client : {0, 1}) {
    core.add(client, {.round = 1, .size = 4, .local_size = 2, .nodes = 2});
  }
  (void)core.exchanged(1, std::vector<std::string>{std::string(fuzz_text(data, size))});
  int client = 0;
  for (const auto line : split_words(fuzz_text(data, size), '\n')) {
    client ^= 1;
    const auto actions = core.said(client, line);
    if (!actions || !actions->exchange) continue;
    for (const auto& reply : core.exchanged(1, std::vector{actions->exchange->own}).replies) {
      if (reply.line != "cmd=barrier_out rc=0\n") __builtin_trap();
    }
  }
  return 0;
}

static const FuzzTarget pmi_target("pmi", fuzz_pmi);
