// FileWriter writes to regular files for the loop, which never waits for a file system: if one
// blocks for a while, as on a busy file server, only its own writers wait. Text that does not fit
// on a full disk is lost: the writer reports that once, and writes the number of lost bytes into
// the file once there is room again. One thread, started with the first file; all else belongs to
// the loop's.
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
    std::atomic<bool> gone{false};  // given up: nothing more is written
    std::size_t lost = 0;           // bytes since the disk was full; only for the thread
    // For a file of lines that programs read: the line that says how many are missing. The thread
    // calls it. Then the file has no torn line, and `lost` counts lines.
    std::function<std::string(std::size_t lines)> lost_line;
  };
  using FilePtr = std::shared_ptr<File>;
  struct Handlers {
    std::function<void()> drained;             // there is room again, or all is written
    std::function<void(const Error&)> failed;  // the error, and the consequence for that file
  };

  FileWriter(asio::io_context& loop, Handlers handlers);
  // Bytes that are still unwritten are written as far as the process lives.
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

// The bytes that an open file may still get if it should not have more than `most`.
std::size_t room_in(int fd, std::size_t most);

}  // namespace dlaunch
