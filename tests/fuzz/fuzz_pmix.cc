#include <cstddef>

#include "fuzz.h"
#include "launcher/node/mpi/loopback_owner.h"
#include "launcher/node/mpi/pmix_finder.h"
#include "launcher/node/mpi/pmix_job.h"

static int fuzz_pmix(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const std::string_view text = fuzz_text(data, size);
  // What is taken from another node comes out of our own hands as it was.
  if (const auto node = decode_node(text, 64)) {
    if (encode_node(*node) != text) __builtin_trap();
    std::vector<PmixNode> nodes = {*node, *node};
    (void)check_nodes(nodes, 64);
    if (nodes_with(nodes, {}).size() != 2) __builtin_trap();
  }
  if (const auto order = decode_order(text)) (void)encode_order(*order);
  (void)pmix_version_in(std::string(text));
  (void)pmix_port_in({std::string(text)});
  (void)owner_in_table(text, 1, 2);
  (void)has_in_table(text, 1, 2);
  (void)path_in_loader_cache(text, "libpmix.so.2");
  return 0;
}

static const FuzzTarget pmix_target("pmix", fuzz_pmix);
