#include "ring/links/ordered_links.h"

#include <sys/eventfd.h>

#include <cerrno>

namespace dlaunch {

Result<std::unique_ptr<OrderedLinks>> OrderedLinks::open(std::shared_ptr<PairSockets> sockets) {
  std::unique_ptr<OrderedLinks> links(new OrderedLinks(std::move(sockets)));
  links->come_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!links->come_) return errno_error("later links: eventfd", errno);
  OrderedLinks* const to = links.get();
  to->sockets_->take_links({.take =
                                [to](PairSockets::NewLink& link) {
                                  to->add(link.from.from_rank, std::move(link.fd));
                                  return true;
                                },
                            .made = [to](int rank, UniqueFd fd) { to->add(rank, std::move(fd)); }});
  return links;
}

OrderedLinks::~OrderedLinks() { sockets_->take_links({}); }

Result<UniqueFd> OrderedLinks::connect(int rank) {
  sockets_->order_link(rank);
  return Error{.code = Errc::io, .what = "it is being connected", .os_errno = EAGAIN};
}

void OrderedLinks::add(int rank, UniqueFd fd) {
  {
    const std::lock_guard lock(mutex_);
    made_.emplace_back(rank, std::move(fd));
  }
  ::eventfd_write(come_.get(), 1);
}

LateSource::Made OrderedLinks::accept() {
  eventfd_t count;
  ::eventfd_read(come_.get(), &count);
  const std::lock_guard lock(mutex_);
  return std::exchange(made_, {});
}

void OrderedLinks::close_in_child() {
  sockets_->close_in_child();
  come_.reset();
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) made_.clear();
}

}  // namespace dlaunch
