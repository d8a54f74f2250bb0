// OrderedLinks: links between ranks that have proven connections (ring/links/connections.h), by
// AF_UNIX or TCP. The thread of the connections makes them.
#pragma once

#include <memory>
#include <mutex>

#include "ring/links/late_source.h"
#include "ring/links/pair_sockets.h"

namespace dlaunch {

class OrderedLinks final : public LateSource {
 public:
  static Result<std::unique_ptr<OrderedLinks>> open(std::shared_ptr<PairSockets> sockets);
  ~OrderedLinks() override;

  int descriptor() const override { return come_.get(); }
  Result<UniqueFd> connect(int rank) override;  // always EAGAIN
  Made accept() override;
  void close_in_child() override;

 private:
  explicit OrderedLinks(std::shared_ptr<PairSockets> sockets) : sockets_(std::move(sockets)) {}
  void add(int rank, UniqueFd fd);

  const std::shared_ptr<PairSockets> sockets_;
  UniqueFd come_;  // readable when there are some
  std::mutex mutex_;
  Made made_;
};

}  // namespace dlaunch
