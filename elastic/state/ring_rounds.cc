#include "elastic/state/ring_rounds.h"

#include "elastic/state/result_code.h"

namespace dlaunch {
namespace {

constexpr int kTag = 0x5a7e0000;  // of messages between States: far from tags that programs use

Error last_error(dl_comm* comm, dl_result code) {
  return {.code = error_code(code), .what = dl_last_error(comm), .rank = dl_peer_lost(comm)};
}

class RingTransfer : public Transfer {
 public:
  RingTransfer(dl_comm* comm, dl_request* request) : comm_(comm), request_(request) {}
  ~RingTransfer() override { dl_wait(&request_); }
  Result<void> wait() override {
    const dl_result code = dl_wait(&request_);
    if (code != DL_OK) return last_error(comm_, code);
    return {};
  }

 private:
  dl_comm* comm_;
  dl_request* request_;
};

}  // namespace

Result<void> RingRounds::result(dl_result code) const {
  if (code != DL_OK) return last_error(comm_, code);
  return {};
}

int RingRounds::rank() const { return dl_rank(comm_); }
int RingRounds::size() const { return dl_size(comm_); }
std::uint64_t RingRounds::round() const { return dl_round(comm_); }
bool RingRounds::over() const { return dl_round_over(comm_) != 0; }
void RingRounds::progress(std::uint64_t version) { dl_progress(comm_, version); }
Result<void> RingRounds::rejoin(std::uint64_t version) { return result(dl_rejoin(comm_, version)); }

Result<void> RingRounds::gather(std::span<const std::uint64_t> mine, std::span<std::uint64_t> all) {
  return result(dl_all_gather(comm_, mine.data(), all.data(), mine.size(), DL_UINT64));
}

Result<void> RingRounds::gather_v(std::string_view mine, std::span<char> all,
                                  std::span<const std::size_t> sizes) {
  return result(dl_all_gather_v(comm_, mine.data(), all.data(), sizes.data(), DL_UINT8));
}

Result<void> RingRounds::maximum(std::span<std::uint64_t> values) {
  return result(
      dl_all_reduce(comm_, values.data(), values.data(), values.size(), DL_UINT64, DL_MAX));
}

Result<void> RingRounds::barrier() { return result(dl_barrier(comm_)); }

Result<void> RingRounds::settle() { return result(dl_sync(comm_)); }
Result<void> RingRounds::verify() { return result(dl_verify(comm_)); }

Result<void> RingRounds::broadcast(Places places, int root) {
  std::vector<void*> at;
  std::vector<std::size_t> sizes;
  for (const auto place : places) {
    at.push_back(place.data());
    sizes.push_back(place.size());
  }
  const auto code = dl_broadcast_list(comm_, at.size(), at.data(), sizes.data(), DL_UINT8, root);
  return code == DL_OK ? settle() : result(code);
}

bool RingRounds::gpu_to_gpu() const { return std::string_view(dl_gpu_transport(comm_)) == "nccl"; }

bool RingRounds::on_gpu(const std::byte* memory) const { return dl_gpu_of(memory) >= 0; }

Result<void> RingRounds::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  return result(dl_copy(comm_, to, from, bytes));
}

Rounds::Started RingRounds::send(std::span<const std::byte> bytes, int peer) {
  dl_request* request = nullptr;
  const auto code = dl_isend(comm_, bytes.data(), bytes.size(), DL_UINT8, peer, kTag, &request);
  if (code != DL_OK) return last_error(comm_, code);
  return std::unique_ptr<Transfer>(new RingTransfer(comm_, request));
}

Rounds::Started RingRounds::receive(std::span<std::byte> bytes, int peer) {
  dl_request* request = nullptr;
  const auto code = dl_irecv(comm_, bytes.data(), bytes.size(), DL_UINT8, peer, kTag, &request);
  if (code != DL_OK) return last_error(comm_, code);
  return std::unique_ptr<Transfer>(new RingTransfer(comm_, request));
}

}  // namespace dlaunch
