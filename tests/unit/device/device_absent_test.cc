// libdlring built without the headers of CUDA and NCCL: everything works except GPUs.
#include <cstring>
#include <vector>

#include "tests/unit/ring/process_world.h"

using namespace dlaunch;

TEST_CASE("without the headers of CUDA and NCCL only memory on GPUs is refused") {
  all_well({2, "auto"}, [](int rank, dl_comm*& comm) {
    std::vector<float> x(1000, static_cast<float>(rank + 1));
    EXPECT(dl_set_stream(comm, nullptr) == DL_ERR_UNSUPPORTED);
    EXPECT(std::strstr(dl_last_error(comm), "without the headers of CUDA and NCCL") != nullptr);
    EXPECT(dl_set_stream_ordered(comm, 1) == DL_ERR_UNSUPPORTED);
    EXPECT(dl_sync(comm) == DL_OK);
    EXPECT(dl_all_reduce(comm, x.data(), x.data(), x.size(), DL_FLOAT32, DL_SUM) == DL_OK);
    EXPECT(x.front() == 3 && x.back() == 3);
    return 0;
  });
}
