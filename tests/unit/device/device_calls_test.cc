// Collectives on device memory, through the C API, with the imitations of CUDA and NCCL: buffers,
// offsets, types, ops and order. A real GPU is not tested.
#include <cstring>
#include <thread>

#include <dlaunch/bucket_hooks.hpp>
#include <dlaunch/outer.h>

#include "device_world.h"

using namespace dlaunch;

namespace {

using Bytes = std::vector<unsigned char>;

// Small whole numbers: every sum, product and average of them here is exact in every type.
template <class T>
void fill(Bytes& bytes, int rank, bool alike) {
  for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    const T value = static_cast<T>((i + (alike ? 0 : static_cast<std::size_t>(rank))) % 4 + 1);
    std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
  }
}

Bytes input(std::size_t count, dl_dtype dtype, int rank, bool alike) {
  Bytes bytes(count * dl_dtype_bytes(dtype));
  if (dtype == DL_FLOAT32)
    fill<float>(bytes, rank, alike);
  else if (dtype == DL_FLOAT64)
    fill<double>(bytes, rank, alike);
  else if (dtype == DL_FLOAT16 || dtype == DL_BFLOAT16) {
    const std::uint16_t half[] = {0x3c00, 0x4000, 0x4200, 0x4400};
    const std::uint16_t brain[] = {0x3f80, 0x4000, 0x4040, 0x4080};
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = (i + (alike ? 0 : static_cast<std::size_t>(rank))) % 4;
      std::memcpy(&bytes[2 * i], dtype == DL_FLOAT16 ? &half[at] : &brain[at], 2);
    }
  } else if (dl_dtype_bytes(dtype) == 1) {
    fill<std::uint8_t>(bytes, rank, alike);
  } else if (dl_dtype_bytes(dtype) == 4) {
    fill<std::uint32_t>(bytes, rank, alike);
  } else {
    fill<std::uint64_t>(bytes, rank, alike);
  }
  return bytes;
}

constexpr int kRanks = 3;

// Makes the call on the host and on the GPU; the results must be equal. in_count and out_count in
// elements.
template <class Make>
int same_as_on_host(int rank, dl_comm* comm, int gpu, std::size_t in_count, std::size_t out_count,
                    dl_dtype dtype, bool alike, Make make) {
  Bytes in = input(in_count, dtype, rank, alike);
  const auto before = static_cast<unsigned char>(0x50 + rank);
  Bytes out(out_count * dl_dtype_bytes(dtype), before);
  DeviceVector<unsigned char> device_in(in.size() + 1, gpu),
      device_out(out.size() + 1, gpu, before);
  device_in.set(in);
  EXPECT(make(in.data(), out.data()) == DL_OK);
  EXPECT(make(device_in.data(), device_out.data()) == DL_OK);
  out.push_back(before);  // nothing is written behind it
  EXPECT(device_out.copy() == out);
  return 0;
}

int all_calls(int rank, dl_comm* comm, int gpu, std::size_t count, dl_dtype dtype, dl_op op) {
  const bool alike = op == DL_AVG;
  const std::size_t all = count * kRanks;
  const std::size_t counts[] = {count, 0, 2 * count};
  int code = 0;
  const auto check = [&](std::size_t in_count, std::size_t out_count, auto make) {
    if (code == 0) code = same_as_on_host(rank, comm, gpu, in_count, out_count, dtype, alike, make);
  };
  check(count, count,
        [&](void* in, void* out) { return dl_all_reduce(comm, in, out, count, dtype, op); });
  check(all, count,
        [&](void* in, void* out) { return dl_reduce_scatter(comm, in, out, count, dtype, op); });
  check(count, count,
        [&](void* in, void* out) { return dl_reduce(comm, in, out, count, dtype, op, 1); });
  check(count + 2 * count, counts[rank],
        [&](void* in, void* out) { return dl_reduce_scatter_v(comm, in, out, counts, dtype, op); });
  if (op != DL_SUM) return code;
  check(count, all,
        [&](void* in, void* out) { return dl_all_gather(comm, in, out, count, dtype); });
  check(counts[rank], all,
        [&](void* in, void* out) { return dl_all_gather_v(comm, in, out, counts, dtype); });
  check(count, all, [&](void* in, void* out) { return dl_gather(comm, in, out, count, dtype, 2); });
  check(counts[rank], all,
        [&](void* in, void* out) { return dl_gather_v(comm, in, out, counts, dtype, 0); });
  check(all, count,
        [&](void* in, void* out) { return dl_scatter(comm, in, out, count, dtype, 1); });
  check(all, all, [&](void* in, void* out) { return dl_all_to_all(comm, in, out, count, dtype); });
  check(all, counts[rank],
        [&](void* in, void* out) { return dl_scatter_v(comm, in, out, counts, dtype, 1); });
  // Rank r gives counts[t] and takes counts[r] if r + t is even, else nothing.
  std::size_t to[kRanks] = {}, from[kRanks] = {};
  for (int r = rank % 2; r < kRanks; r += 2) {
    to[r] = counts[r];
    from[r] = counts[rank];
  }
  check(to[0] + to[1] + to[2], from[0] + from[1] + from[2],
        [&](void* in, void* out) { return dl_all_to_all_v(comm, in, to, out, from, dtype); });
  check(0, count, [&](void*, void* out) { return dl_broadcast(comm, out, count, dtype, 2); });
  return code;
}

}  // namespace

TEST_CASE("device: every collective, type and op gives the host's results on a GPU") {
  for (const Gpus gpus : kGpus) {
    for (const char* transport : kTransports) {
      all_well({kRanks, transport}, [gpus](int rank, dl_comm*& comm) {
        for (int dtype = DL_INT8; dtype <= DL_FLOAT8_E5M2; ++dtype) {
          for (int op = DL_SUM; op <= DL_BXOR; ++op) {
            if (dtype >= DL_FLOAT16 && op >= DL_BAND) continue;
            const bool is_complex = dtype == DL_COMPLEX64 || dtype == DL_COMPLEX128;
            if (is_complex && (op == DL_MAX || op == DL_MIN)) continue;
            const int code = all_calls(rank, comm, gpu_of(gpus, rank), 5,
                                       static_cast<dl_dtype>(dtype), static_cast<dl_op>(op));
            EXPECT(code == 0);
          }
        }
        EXPECT((fake_nccl_launches() > 0) == (gpus == Gpus::own));
        EXPECT(dl_barrier(comm) == DL_OK);
        return 0;
      });
    }
  }
}

namespace {

int check_factor(int rank, dl_comm* comm, int gpu, double factor) {
  const auto size = static_cast<std::size_t>(dl_size(comm));
  dl_op op = DL_OP_ANY_INT;
  EXPECT(dl_op_create_premul_sum(factor, &op) == DL_OK);
  for (const dl_dtype dtype :
       {DL_FLOAT16, DL_BFLOAT16, DL_FLOAT32, DL_FLOAT64, DL_COMPLEX64, DL_FLOAT8_E4M3}) {
    const auto same = [&](std::size_t in_count, auto make) {
      return same_as_on_host(rank, comm, gpu, in_count, 5, dtype, true, make);
    };
    EXPECT(same(5, [&](void* in, void* out) {
             return dl_all_reduce(comm, in, out, 5, dtype, op);
           }) == 0);
    EXPECT(same(5, [&](void* in, void* out) {
             return dl_reduce(comm, in, out, 5, dtype, op, 0);
           }) == 0);
    EXPECT(same(5 * size, [&](void* in, void* out) {
             return dl_reduce_scatter(comm, in, out, 5, dtype, op);
           }) == 0);
  }
  DeviceVector<int> whole(5, gpu);
  EXPECT(dl_all_reduce(comm, whole.data(), whole.data(), 5, DL_INT32, op) == DL_ERR_UNSUPPORTED);
  EXPECT(dl_op_free(op) == DL_OK);
  return 0;
}

}  // namespace

TEST_CASE("device: a sum of products, by NCCL and through the host") {
  for (const int ranks : {1, kRanks}) {
    for (const Gpus gpus : kGpus) {
      all_well({ranks, "shm"}, [gpus](int rank, dl_comm*& comm) {
        // 16 bits do not have the second factor, but have all products of the rounded one. The
        // other ranks give zeros then, so that sums are exact.
        for (const double factor : {rank + 0.5, rank == 0 ? 0.5 + 0.9 / 512 : 0.0}) {
          EXPECT(check_factor(rank, comm, gpu_of(gpus, rank), factor) == 0);
        }
        EXPECT(dl_barrier(comm) == DL_OK);
        return 0;
      });
    }
  }
}

TEST_CASE("device: a function of the program reduces on the host only") {
  all_well({kRanks, "shm"}, [](int rank, dl_comm*& comm) {
    dl_op op = DL_OP_ANY_INT;
    EXPECT(dl_op_create([](const void*, void*, std::size_t, dl_dtype, void*) { return 0; }, 1,
                        nullptr, &op) == DL_OK);
    DeviceVector<float> x(5, gpu_of(Gpus::own, rank));
    EXPECT(dl_all_reduce(comm, x.data(), x.data(), 5, DL_FLOAT32, op) == DL_ERR_UNSUPPORTED);
    EXPECT(std::string(dl_last_error(comm)).find("a function of the program") != std::string::npos);
    void* at[] = {x.data()};
    const std::size_t counts[] = {5};
    EXPECT(dl_all_reduce_list(comm, 1, at, at, counts, DL_FLOAT32, op) == DL_ERR_UNSUPPORTED);
    EXPECT(dl_barrier(comm) == DL_OK);
    return 0;
  });
}

TEST_CASE("device: an all_to_all_v of several granules through the host") {
  all_well({2, "shm"}, [](int rank, dl_comm*& comm) {
    constexpr std::size_t kLong = 2'500'000;
    const std::size_t parts[2][2] = {{1000, kLong}, {3, 1000}};
    const std::size_t* const to = parts[rank];
    const std::size_t from[] = {parts[0][rank], parts[1][rank]};
    return same_as_on_host(
        rank, comm, 0, to[0] + to[1], from[0] + from[1], DL_UINT8, false,
        [&](void* in, void* out) { return dl_all_to_all_v(comm, in, to, out, from, DL_UINT8); });
  });
}

TEST_CASE("device: a rank without elements that shows no memory is found, and no rank hangs") {
  for (const Gpus gpus : kGpus) {
    all_well({2, "shm"}, [gpus](int rank, dl_comm*& comm) {
      DeviceVector<float> one(1, gpu_of(gpus, rank)), other(1, gpu_of(gpus, rank));
      const std::size_t counts[] = {rank == 0 ? 1U : 0U, 0};
      const auto result = dl_all_to_all_v(comm, rank == 0 ? one.data() : nullptr, counts,
                                          rank == 0 ? other.data() : nullptr, counts, DL_FLOAT32);
      EXPECT((result == DL_ERR_MISMATCH || result == DL_ERR_PEER_LOST));
      EXPECT(std::string(dl_last_error(comm)).find("memory on a GPU") != std::string::npos);
      return 0;
    });
  }
}

TEST_CASE("device: large calls, in place and as lists, of several granules through the host") {
  all_well({2, "shm"}, [](int rank, dl_comm*& comm) {
    constexpr std::size_t kCount = 2'500'000;
    DeviceVector<float> x(2 * kCount, 0);
    const auto refill = [&] {
      std::vector<float> values(2 * kCount);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i % 1000) + static_cast<float>(rank);
      }
      x.set(values);
    };
    const auto value = [](std::size_t i, int of) {
      return static_cast<float>(i % 1000) + static_cast<float>(of);
    };
    refill();
    EXPECT(dl_all_reduce(comm, x.data(), x.data(), kCount, DL_FLOAT32, DL_SUM) == DL_OK);
    auto all = x.copy();
    for (std::size_t i = 0; i < kCount; ++i) EXPECT(all[i] == value(i, 0) + value(i, 1));

    refill();
    float* const own = x.data() + static_cast<std::size_t>(rank) * kCount;
    EXPECT(dl_reduce_scatter(comm, x.data(), own, kCount, DL_FLOAT32, DL_SUM) == DL_OK);
    EXPECT(dl_all_gather(comm, own, x.data(), kCount, DL_FLOAT32) == DL_OK);
    all = x.copy();
    for (std::size_t i = 0; i < 2 * kCount; ++i) EXPECT(all[i] == value(i, 0) + value(i, 1));

    refill();
    void* tensors[] = {x.data(), x.data() + 3, x.data() + kCount};
    const std::size_t counts[] = {3, kCount - 3, kCount};
    EXPECT(dl_all_reduce_list(comm, 3, tensors, tensors, counts, DL_FLOAT32, DL_SUM) == DL_OK);
    all = x.copy();
    for (std::size_t i = 0; i < 2 * kCount; ++i) EXPECT(all[i] == value(i, 0) + value(i, 1));

    refill();
    EXPECT(dl_broadcast(comm, x.data(), 2 * kCount, DL_FLOAT32, 1) == DL_OK);
    all = x.copy();
    for (std::size_t i = 0; i < 2 * kCount; ++i) EXPECT(all[i] == value(i, 1));
    EXPECT(fake_nccl_launches() == 0);
    return 0;
  });
}

TEST_CASE("device: a call begins after the earlier work of its stream") {
  for (const Gpus gpus : kGpus) {
    all_well({2, "shm"}, [gpus](int rank, dl_comm*& comm) {
      const int gpu = gpu_of(gpus, rank);
      DeviceVector<std::int32_t> x(4, gpu, 1);
      const CUstream stream = make_stream(gpu);
      EXPECT(dl_set_stream(comm, stream) == DL_OK);
      for (int turn = 0; turn < 5; ++turn) {
        // Work of the user's that is still to come when the call is made, or started.
        Gate gate;
        fake_gpu_enqueue(stream, [&] {
          gate.pass();
          for (std::size_t i = 0; i < 4; ++i) x[i] = 10 + turn;
        });
        dl_request* request = nullptr;
        if (turn % 2 == 0) {
          EXPECT(dl_iall_reduce(comm, x.data(), x.data(), 4, DL_INT32, DL_SUM, &request) == DL_OK);
          int done = 1;
          EXPECT(dl_test(&request, &done) == DL_OK);
          EXPECT(done == 0);
          gate.open();
          EXPECT(dl_wait(&request) == DL_OK);
        } else {
          std::thread opener([&] { gate.open(); });
          const dl_result result = dl_all_reduce(comm, x.data(), x.data(), 4, DL_INT32, DL_SUM);
          opener.join();
          EXPECT(result == DL_OK);
        }
        EXPECT(x.copy() == std::vector<std::int32_t>(4, 20 + 2 * turn));
      }
      EXPECT(dl_set_stream(comm, nullptr) == DL_OK);
      cuStreamDestroy(stream);
      return 0;
    });
  }
}

TEST_CASE("device: in stream order a call returns at once, and the stream continues after it") {
  for (const int ranks : {1, 2}) {
    CAPTURE(ranks);
    all_well({ranks, "shm"}, [ranks](int rank, dl_comm*& comm) {
      DeviceVector<std::int32_t> x(4, rank), seen(1, rank);
      const CUstream stream = make_stream(rank), other = make_stream(rank);
      EXPECT(dl_set_stream(comm, stream) == DL_OK);
      EXPECT(dl_set_stream_ordered(comm, 1) == DL_OK);
      for (int turn = 0; turn < 5; ++turn) {
        Gate gate;
        fake_gpu_enqueue(stream, [&] {
          gate.pass();
          for (std::size_t i = 0; i < 4; ++i) x[i] = 10 + turn;
        });
        EXPECT(dl_all_reduce(comm, x.data(), x.data(), 4, DL_INT32, DL_SUM) == DL_OK);
        fake_gpu_enqueue(stream, [&] { seen[0] = x[3]; });
        std::int32_t meanwhile = 1;  // the host goes on
        EXPECT(dl_all_reduce(comm, &meanwhile, &meanwhile, 1, DL_INT32, DL_SUM) == DL_OK);
        EXPECT(meanwhile == ranks);
        gate.open();
        EXPECT(dl_sync(comm) == DL_OK);
        EXPECT(cuStreamSynchronize(stream) == CUDA_SUCCESS);
        EXPECT(seen[0] == ranks * (10 + turn));
      }
      // One that comes by another stream, and one that nobody asks about before the end.
      for (const CUstream next : {other, stream}) {
        EXPECT(dl_set_stream(comm, next) == DL_OK);
        EXPECT(dl_all_reduce(comm, x.data(), x.data(), 4, DL_INT32, DL_SUM) == DL_OK);
      }
      dl_finalize(comm);
      comm = nullptr;
      EXPECT(x[3] == ranks * ranks * ranks * 14);
      cuStreamDestroy(stream);
      cuStreamDestroy(other);
      return 0;
    });
  }
}

TEST_CASE("device: in stream order hundreds of calls may follow each other") {
  for (const Gpus gpus : kGpus) {
    all_well({3, "shm"}, [gpus](int rank, dl_comm*& comm) {
      constexpr int kCalls = 300;
      const int gpu = gpu_of(gpus, rank);
      DeviceVector<std::int64_t> x(1, gpu, rank), y(1, gpu, 1);
      EXPECT(dl_set_stream_ordered(comm, 1) == DL_OK);
      for (int i = 0; i < kCalls; ++i) {
        EXPECT(dl_all_reduce(comm, x.data(), x.data(), 1, DL_INT64, DL_MAX) == DL_OK);
        const bool own = i % 7 == 0;  // and a request now and then
        dl_request* request = nullptr;
        if (own) {
          EXPECT(dl_iall_reduce(comm, y.data(), y.data(), 1, DL_INT64, DL_MIN, &request) == DL_OK);
        }
        EXPECT(dl_broadcast(comm, x.data(), 1, DL_INT64, i % 3) == DL_OK);
        if (own) EXPECT(dl_wait(&request) == DL_OK);
      }
      EXPECT(dl_sync(comm) == DL_OK);
      EXPECT(x[0] == 2);
      EXPECT(y[0] == 1);
      return 0;
    });
  }
}

TEST_CASE("device: operations in the background, of host and device memory, keep their order") {
  for (const Gpus gpus : kGpus) {
    all_well({3, "shm"}, [gpus](int rank, dl_comm*& comm) {
      constexpr std::size_t kOps = 30;
      const int gpu = gpu_of(gpus, rank);
      DeviceVector<std::int64_t> on_device(kOps, gpu);
      std::vector<std::int64_t> on_host(kOps);
      std::vector<dl_request*> requests(kOps);
      for (std::size_t i = 0; i < kOps; ++i) {
        on_host[i] = on_device[i] = static_cast<std::int64_t>(i) + rank;
        void* const x = i % 3 == 0 ? on_host.data() + i : on_device.data() + i;
        EXPECT(dl_iall_reduce(comm, x, x, 1, DL_INT64, DL_SUM, &requests[i]) == DL_OK);
      }
      std::int64_t one = 1;
      EXPECT(dl_all_reduce(comm, &one, &one, 1, DL_INT64, DL_SUM) == DL_OK);
      EXPECT(one == 3);
      EXPECT(dl_wait_all(kOps, requests.data()) == DL_OK);
      for (std::size_t i = 0; i < kOps; ++i) {
        EXPECT((i % 3 == 0 ? on_host[i] : on_device[i]) == 3 * static_cast<std::int64_t>(i) + 3);
      }
      return 0;
    });
  }
}

TEST_CASE("device: groups have NCCL communicators of their own") {
  all_well({4, "shm"}, [](int rank, dl_comm*& comm) {
    DeviceVector<std::int32_t> x(2, rank, 1 + rank);
    EXPECT(dl_all_reduce(comm, x.data(), x.data(), 2, DL_INT32, DL_SUM) == DL_OK);
    EXPECT(x.copy() == std::vector<std::int32_t>(2, 10));
    dl_comm* group = nullptr;
    EXPECT(dl_split(comm, rank % 2, 0, &group) == DL_OK);
    DeviceVector<std::int32_t> y(1, rank, 1 + rank);
    const dl_result result = dl_all_reduce(group, y.data(), y.data(), 1, DL_INT32, DL_SUM);
    dl_finalize(group);
    EXPECT(result == DL_OK);
    EXPECT(y[0] == (rank % 2 == 0 ? 4 : 6));
    EXPECT(dl_all_reduce(comm, x.data(), x.data(), 2, DL_INT32, DL_MAX) == DL_OK);
    return 0;
  });
}

TEST_CASE("device: one rank alone copies on its GPU") {
  const TempFolder folder;
  CHECK(end_of(start_rank(folder.url(), {1}, 0, [](int rank, dl_comm*& comm) {
          DeviceVector<float> x(3, 5, 2), y(3, 5);
          EXPECT(dl_all_reduce(comm, x.data(), y.data(), 3, DL_FLOAT32, DL_SUM) == DL_OK);
          EXPECT(y.copy() == std::vector<float>(3, 2));
          dl_request* request = nullptr;
          DeviceVector<float> z(3, 5);
          EXPECT(dl_iall_gather(comm, x.data(), z.data(), 3, DL_FLOAT32, &request) == DL_OK);
          EXPECT(dl_wait(&request) == DL_OK);
          EXPECT(z.copy() == std::vector<float>(3, 2));
          return 0;
        })) == 0);
}

TEST_CASE("device: wrong buffers are refused, and the communicator still works") {
  all_well({2, "shm"}, [](int rank, dl_comm*& comm) {
    DeviceVector<float> x(3, rank, 1), elsewhere(3, rank + 4);
    std::vector<float> host(3);
    EXPECT(dl_all_reduce(comm, x.data(), host.data(), 3, DL_FLOAT32, DL_SUM) == DL_ERR_INVALID);
    EXPECT(dl_all_reduce(comm, host.data(), x.data(), 3, DL_FLOAT32, DL_SUM) == DL_ERR_INVALID);
    EXPECT(dl_all_reduce(comm, x.data(), x.data(), 3, DL_FLOAT32, DL_SUM) == DL_OK);
    EXPECT(dl_all_reduce(comm, elsewhere.data(), elsewhere.data(), 3, DL_FLOAT32, DL_SUM) ==
           DL_ERR_INVALID);
    EXPECT(std::string(dl_last_error(comm)).find("is on GPU") != std::string::npos);
    EXPECT(dl_all_reduce(comm, x.data(), x.data(), 3, DL_FLOAT32, DL_SUM) == DL_OK);
    EXPECT(x[0] == 4);
    EXPECT(dl_compressed_average(comm, host.data(), host.data(), 3, DL_CODEC_INT4, x.data()) ==
           DL_ERR_UNSUPPORTED);
    float* const tensors[] = {x.data()};
    const std::size_t counts[] = {3};
    dl_outer* outer = nullptr;
    EXPECT(dl_outer_new(comm, nullptr, 1, tensors, counts, &outer) == DL_ERR_INVALID);
    EXPECT(std::string(dl_last_error(comm)).find("is in a GPU's memory") != std::string::npos);
    return 0;
  });
}

TEST_CASE("device: DLAUNCH_BACKEND=cpu uses no NCCL") {
  ::setenv("DLAUNCH_BACKEND", "cpu", 1);
  all_well({2, "shm"}, [](int rank, dl_comm*& comm) {
    DeviceVector<float> x(3, rank, 1);
    EXPECT(dl_all_reduce(comm, x.data(), x.data(), 3, DL_FLOAT32, DL_SUM) == DL_OK);
    EXPECT(x[2] == 2);
    EXPECT(fake_nccl_launches() == 0);
    return 0;
  });
  ::unsetenv("DLAUNCH_BACKEND");
}

TEST_CASE("device: hooks of buckets refuse gradients on a GPU") {
  all_well({1, "shm"}, [](int rank, dl_comm*& comm) {
    auto world = dl::Communicator::adopt(std::exchange(comm, nullptr));
    DeviceVector<float> memory(8, 0, 1);
    const dl::CompressedBuckets compressed(world, dl::Codec::int8, 8);
    const dl::PowerSgdBuckets power_sgd(world, {{1, 8}});
    const dl::SomeBuckets<float> some(world, dl::SomeOptions(1));
    for (const dl::BucketHook<float>& hook :
         {dl::BucketHook<float>(compressed), dl::BucketHook<float>(power_sgd),
          dl::BucketHook<float>(some)}) {
      dl::GradientBucketer<float> bucketer(world, {std::span(memory.data(), 8)}, {}, hook);
      EXPECT(code_of([&] { bucketer.finish(); }) == DL_ERR_UNSUPPORTED);
    }
    return 0;
  });
}

TEST_CASE("device: the backend is chosen for each communicator, before its first call on a GPU") {
  all_well({2, "shm"}, [](int rank, dl_comm*& comm) {
    dl_comm* host = nullptr;
    EXPECT(dl_split(comm, 0, 0, &host) == DL_OK);
    EXPECT(dl_set_backend(host, "gpu") == DL_ERR_INVALID);
    EXPECT(dl_set_backend(host, nullptr) == DL_ERR_INVALID);
    EXPECT(dl_set_backend(host, "cpu") == DL_OK);
    DeviceVector<float> x(3, rank, 1);
    EXPECT(dl_gpu_of(x.data()) == rank);
    EXPECT(dl_gpu_of(&rank) == -1);
    EXPECT(dl_gpu_of(nullptr) == -1);
    EXPECT(dl_all_reduce(host, x.data(), x.data(), 3, DL_FLOAT32, DL_SUM) == DL_OK);
    EXPECT(fake_nccl_launches() == 0);
    EXPECT(std::string(dl_gpu_transport(host)) == "host");
    EXPECT(dl_set_backend(host, "auto") == DL_ERR_INVALID);
    EXPECT(std::string(dl_gpu_transport(comm)).empty());
    EXPECT(dl_all_reduce(comm, x.data(), x.data(), 3, DL_FLOAT32, DL_SUM) == DL_OK);
    EXPECT(fake_nccl_launches() == 1);
    EXPECT(std::string(dl_gpu_transport(comm)) == "nccl");
    EXPECT(x[2] == 4);
    dl_finalize(host);
    return 0;
  });
}

TEST_CASE("device: messages come from and go to device memory, whatever the peer's is") {
  all_well({2, "shm"}, [](int rank, dl_comm*& comm) {
    constexpr std::size_t kCount = 1000;
    DeviceVector<std::int32_t> device(kCount, rank), more(kCount, rank, 7);
    std::vector<std::int32_t> host(kCount);
    std::vector<std::int32_t> values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<std::int32_t>(i);
    if (rank == 0) {
      device.set(values);
      EXPECT(dl_send(comm, device.data(), kCount, DL_INT32, 1, 0) == DL_OK);
      EXPECT(dl_send(comm, device.data(), kCount, DL_INT32, 1, 1) == DL_OK);
      EXPECT(dl_send(comm, values.data(), kCount, DL_INT32, 1, 2) == DL_OK);
      dl_request* request = nullptr;
      EXPECT(dl_isend(comm, device.data(), kCount, DL_INT32, 1, 3, &request) == DL_OK);
      device[0] = 99;  // it has been read
      EXPECT(dl_wait(&request) == DL_OK);
      return 0;
    }
    // The last first, and beside a collective's worth of other work.
    dl_request* requests[2] = {};
    int source = -1;
    EXPECT(dl_irecv_any(comm, more.data(), kCount, DL_INT32, 3, &source, &requests[0]) == DL_OK);
    EXPECT(dl_irecv(comm, device.data(), kCount, DL_INT32, 0, 2, &requests[1]) == DL_OK);
    EXPECT(dl_wait_all(2, requests) == DL_OK);
    EXPECT(source == 0);
    EXPECT(more.copy() == values);
    EXPECT(device.copy() == values);
    EXPECT(dl_recv(comm, host.data(), kCount, DL_INT32, 0, 0) == DL_OK);
    EXPECT(host == values);
    DeviceVector<std::int32_t> last(kCount, rank);
    EXPECT(dl_recv(comm, last.data(), kCount, DL_INT32, 0, 1) == DL_OK);
    EXPECT(last.copy() == values);
    return 0;
  });
}

TEST_CASE("device: messages pass while NCCL waits on the GPU for peers that wait for messages") {
  all_well({2, "shm", 30, 10}, [](int rank, dl_comm*& comm) {
    DeviceVector<int> first(1, rank);  // makes NCCL's communicator
    EXPECT(dl_all_reduce(comm, first.data(), first.data(), 1, DL_INT32, DL_SUM) == DL_OK);
    for (int turn = 0; turn < 3; ++turn) {
      DeviceVector<float> sum(5, rank, 1), note(3, rank, static_cast<float>(rank == 0 ? turn : -1));
      if (rank == 0) {
        dl_request* request = nullptr;
        const int launches = fake_nccl_launches();
        EXPECT(dl_iall_reduce(comm, sum.data(), sum.data(), 5, DL_FLOAT32, DL_SUM, &request) ==
               DL_OK);
        while (fake_nccl_launches() == launches) std::this_thread::yield();
        for (int i = 0; i < 2; ++i) {
          EXPECT(dl_send(comm, note.data(), 3, DL_FLOAT32, 1, i) == DL_OK);
        }
        EXPECT(dl_wait(&request) == DL_OK);
      } else {
        for (int i = 0; i < 2; ++i) {
          EXPECT(dl_recv(comm, note.data(), 3, DL_FLOAT32, 0, i) == DL_OK);
        }
        EXPECT(note.copy() == std::vector<float>(3, static_cast<float>(turn)));
        EXPECT(dl_all_reduce(comm, sum.data(), sum.data(), 5, DL_FLOAT32, DL_SUM) == DL_OK);
      }
      EXPECT(sum.copy() == std::vector<float>(5, 2));
    }
    return 0;
  });
}

TEST_CASE(
    "device: copies between host and GPU come after the stream, whatever has become of the "
    "others") {
  all_well({2, "shm"}, [](int rank, dl_comm*& comm) {
    constexpr std::size_t kLarge = (9 << 20) + 3;  // more than two pieces
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{4} << 20, kLarge}) {
      std::vector<unsigned char> values(bytes), back(bytes);
      for (std::size_t i = 0; i < bytes; ++i)
        values[i] = static_cast<unsigned char>(i * 7 + i / 999);
      DeviceVector<unsigned char> x(bytes, rank);
      EXPECT(dl_copy(comm, x.data(), values.data(), bytes) == DL_OK);
      EXPECT(x.copy() == values);
      Gate gate;
      fake_gpu_enqueue(nullptr, [&] {
        gate.pass();
        x[0] = 99;
      });
      std::thread opener([&] { gate.open(); });
      EXPECT(dl_copy(comm, back.data(), x.data(), bytes) == DL_OK);
      opener.join();
      values[0] = 99;
      EXPECT(back == values);
      EXPECT(dl_copy(comm, x.data(), x.data(), bytes) == DL_ERR_INVALID);
    }
    dl_abort(comm);
    DeviceVector<int> y(3, rank, 5);
    std::vector<int> host(3), twice(3);
    EXPECT(dl_copy(comm, host.data(), y.data(), 12) == DL_OK);
    EXPECT(dl_copy(comm, twice.data(), host.data(), 12) == DL_OK);
    EXPECT(twice == std::vector<int>(3, 5));
    EXPECT(dl_copy(comm, nullptr, nullptr, 0) == DL_OK);
    EXPECT(dl_copy(comm, nullptr, y.data(), 12) == DL_ERR_INVALID);
    return 0;
  });
}

TEST_CASE(
    "device: a copy behind work that stands still ends in time, and the next one waits for it") {
  all_well({1, "auto", 30, 1}, [](int rank, dl_comm*& comm) {
    DeviceVector<int> x(3, rank, 5);
    std::vector<int> host(3);
    Gate gate;
    fake_gpu_enqueue(nullptr, [&] { gate.pass(); });
    EXPECT(dl_copy(comm, host.data(), x.data(), 12) == DL_ERR_TIMEOUT);
    EXPECT(std::string(dl_last_error(comm)).find("its stream") != std::string::npos);
    EXPECT(dl_copy(comm, x.data(), host.data(), 12) == DL_ERR_TIMEOUT);
    dl_comm* group = nullptr;  // has the limit of the whole
    EXPECT(dl_split(comm, 0, 0, &group) == DL_OK);
    EXPECT(dl_copy(group, host.data(), x.data(), 12) == DL_ERR_TIMEOUT);
    gate.open();
    dl_result result = DL_ERR_TIMEOUT;
    while (result == DL_ERR_TIMEOUT) result = dl_copy(comm, host.data(), x.data(), 12);
    EXPECT(result == DL_OK);
    EXPECT(host == std::vector<int>(3, 5));
    dl_finalize(group);
    return 0;
  });
}

TEST_CASE("device: a batch refuses wrong buffers at once, and an error of its end ends all") {
  all_well({2, "shm"}, [](int rank, dl_comm*& comm) {
    DeviceVector<float> x(3, rank, 1), y(3, rank, 1), elsewhere(3, rank + 4);
    std::vector<float> host(3), sum(3, 7);
    dl_op op = DL_OP_ANY_INT;
    EXPECT(dl_op_create([](const void*, void*, std::size_t, dl_dtype, void*) { return 0; }, 1,
                        nullptr, &op) == DL_OK);
    const auto reduce = [&](const void* in, void* out, dl_op by) {
      return dl_all_reduce(comm, in, out, 3, DL_FLOAT32, by);
    };
    EXPECT(dl_batch_start(comm) == DL_OK && reduce(host.data(), sum.data(), DL_SUM) == DL_OK);
    EXPECT(reduce(x.data(), host.data(), DL_SUM) == DL_ERR_INVALID);
    EXPECT(dl_batch_end(comm) == DL_ERR_INVALID);
    EXPECT(dl_batch_start(comm) == DL_OK && reduce(host.data(), sum.data(), DL_SUM) == DL_OK);
    EXPECT(reduce(x.data(), x.data(), op) == DL_ERR_UNSUPPORTED);
    EXPECT(dl_batch_end(comm) == DL_ERR_UNSUPPORTED);
    EXPECT(sum[0] == 7);

    EXPECT(dl_batch_start(comm) == DL_OK && reduce(x.data(), x.data(), DL_SUM) == DL_OK);
    EXPECT(reduce(y.data(), y.data(), DL_SUM) == DL_OK && dl_batch_end(comm) == DL_OK);
    EXPECT(x[0] == 2 && y[2] == 2);
    // Each rank finds this after the first call, or learns of it from the other one.
    EXPECT(dl_batch_start(comm) == DL_OK && reduce(x.data(), x.data(), DL_SUM) == DL_OK);
    EXPECT(reduce(elsewhere.data(), elsewhere.data(), DL_SUM) == DL_OK);
    EXPECT(dl_batch_end(comm) != DL_OK);
    EXPECT(std::string(dl_last_error(comm)).find("is on GPU") != std::string::npos);
    EXPECT(dl_barrier(comm) != DL_OK);
    EXPECT(dl_op_free(op) == DL_OK);
    return 0;
  });
}
