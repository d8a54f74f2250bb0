// RingRounds: the rounds of a libdlring communicator, which the launcher forms.
#pragma once

#include <dlaunch/ring.h>

#include "elastic/state/rounds.h"

namespace dlaunch {

class RingRounds : public Rounds {
 public:
  // The communicator must outlive it.
  explicit RingRounds(dl_comm* comm) : comm_(comm) {}

  int rank() const override;
  int size() const override;
  std::uint64_t round() const override;
  bool over() const override;
  void progress(std::uint64_t version) override;
  Result<void> rejoin(std::uint64_t version) override;
  Result<void> gather(std::span<const std::uint64_t> mine, std::span<std::uint64_t> all) override;
  Result<void> gather_v(std::string_view mine, std::span<char> all,
                        std::span<const std::size_t> sizes) override;
  Result<void> maximum(std::span<std::uint64_t> values) override;
  Result<void> barrier() override;
  Result<void> broadcast(Places places, int root) override;
  bool gpu_to_gpu() const override;
  bool on_gpu(const std::byte* memory) const override;
  Result<void> settle() override;
  Result<void> verify() override;
  Result<void> copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  Started send(std::span<const std::byte> bytes, int peer) override;
  Started receive(std::span<std::byte> bytes, int peer) override;

 protected:
  Result<void> result(dl_result code) const;
  dl_comm* comm_;
};

}  // namespace dlaunch
