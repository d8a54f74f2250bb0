// Even and odd ranks form a group each, which sums up for ever; prints the reason of its end.
#include <cstdio>
#include <vector>

#include <dlaunch/ring.h>

int main() {
  dl_comm *world = nullptr, *group = nullptr;
  if (dl_init(nullptr, nullptr, &world) != DL_OK ||
      dl_split(world, dl_rank(world) % 2, 0, &group) != DL_OK) {
    std::fprintf(stderr, "no group: %s\n", dl_last_error(world));
    return 2;
  }
  std::vector<float> x(1 << 18, 1.0f);
  for (int i = 0;; ++i) {
    const dl_result done = dl_all_reduce(group, x.data(), x.data(), x.size(), DL_FLOAT32, DL_MAX);
    if (done != DL_OK) {
      std::fprintf(stderr, "%s, lost %d: %s\n", dl_result_name(done), dl_peer_lost(group),
                   dl_last_error(group));
      return 1;
    }
    if (i == 3) {
      std::puts("goes on");
      std::fflush(stdout);
    }
  }
}
