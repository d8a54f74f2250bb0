// FileWriter writes to regular files for the loop, which never waits for a file system: one that
// stands still for a while, as that of a busy file server, holds up who writes there and nobody
// else. What does not fit on a full disk is lost, told of once, and counted in the file once there
// is room again. One thread, started with the first file; all else belongs to the loop's.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <asio/io_context.hpp>

#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

class FileWriter {
 public:
  struct File {
    File(UniqueFd its_fd, std::string its_name)
        : fd(std::move(its_fd)), name(std::move(its_name)) {}
    const UniqueFd fd;
    const std::string name;         // for messages: a path, "our stdout"
    std::atomic<bool> gone{false};  // given up: nothing more comes there
    std::size_t lost = 0;           // bytes since the disk was full; the thread's
  };
  using FilePtr = std::shared_ptr<File>;
  struct Handlers {
    std::function<void()> drained;             // there is room again, or all is written
    std::function<void(const Error&)> failed;  // what, and what becomes of that file
  };

  FileWriter(asio::io_context& loop, Handlers handlers);
  // What is not written by then is written as far as the process lives.
  ~FileWriter();

  void write(const FilePtr& file, std::string_view bytes);
  // Producers should stop until `drained`.
  bool full() const;
  bool empty() const;

 private:
  struct Desk;
  std::shared_ptr<Desk> desk_;
  bool started_ = false;
};

}  // namespace dlaunch
