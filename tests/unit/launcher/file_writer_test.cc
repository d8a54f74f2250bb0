// The writer with pipes for files: a pipe that nobody reads stands still like a file server that
// does not answer.
#include "launcher/output/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/launcher/hub_world.h"

using namespace dlaunch;

namespace {

struct WriterWorld {
  asio::io_context loop;
  int drained = 0;
  std::vector<std::string> failed;
  std::optional<FileWriter> writer{
      std::in_place, loop,
      FileWriter::Handlers{[this] { ++drained; },
                           [this](const Error& error) { failed.push_back(error.what); }}};
};

FileWriter::FilePtr file_of(UniqueFd fd) {
  return std::make_shared<FileWriter::File>(std::move(fd), "f");
}

}  // namespace

TEST_CASE("a file that does not accept data delays no worker, and gets everything in the end") {
  WriterWorld world;
  Pipe pipe;
  const auto file = file_of(std::move(pipe.writing));
  const std::string piece(1 << 20, 'x');
  int pieces = 0;
  for (; !world.writer->full(); ++pieces) world.writer->write(file, piece);
  CHECK(pieces >= 8);
  CHECK(world.drained == 0);
  ::fcntl(pipe.reading.get(), F_SETFL, O_NONBLOCK);
  std::size_t got = 0;
  std::array<char, 65536> buffer;
  turn_until(world.loop, [&] {
    const ssize_t n = ::read(pipe.reading.get(), buffer.data(), buffer.size());
    if (n > 0) got += static_cast<std::size_t>(n);
    return world.writer->empty();
  });
  for (ssize_t n; (n = ::read(pipe.reading.get(), buffer.data(), buffer.size())) > 0;) {
    got += static_cast<std::size_t>(n);
  }
  CHECK(got == static_cast<std::size_t>(pieces) << 20);
  turn_until(world.loop, [&] { return world.drained > 0; });
}

TEST_CASE("an exit does not wait for a file that does not accept data") {
  WriterWorld world;
  Pipe pipe;
  world.writer->write(file_of(std::move(pipe.writing)), std::string(4 << 20, 'x'));
  world.writer.reset();
  // Reading lets the thread end.
  pipe.reading.reset();
  world.loop.poll();
  CHECK(world.failed.empty());
  CHECK(world.drained == 0);
}

TEST_CASE("a full disk costs one warning, another failure ends the file") {
  WriterWorld world;
  const auto full = file_of(UniqueFd(::open("/dev/full", O_WRONLY | O_CLOEXEC)));
  for (int i = 0; i < 3; ++i) {
    world.writer->write(full, "x\n");
    turn_until(world.loop, [&] { return world.writer->empty(); });
  }
  turn_until(world.loop, [&] { return world.drained == 3; });
  CHECK(world.failed ==
        std::vector<std::string>{"write f: No space left on device; what does not fit is lost"});
  CHECK_FALSE(full->gone);

  const auto closed = file_of(UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
  for (int i = 0; i < 2; ++i) {
    world.writer->write(closed, "x\n");
    turn_until(world.loop, [&] { return closed->gone.load(); });
  }
  turn_until(world.loop, [&] { return world.failed.size() == 2; });
  CHECK(world.failed.back() == "write f: Bad file descriptor; the job continues without it");
}

TEST_CASE("a full disk under a file of lines: whole lines are counted") {
  WriterWorld world;
  const auto full = file_of(UniqueFd(::open("/dev/full", O_WRONLY | O_CLOEXEC)));
  std::size_t told = 0;
  full->lost_line = [&told](std::size_t lines) { return told = lines, std::string("lost\n"); };
  for (int i = 0; i < 3; ++i) {
    world.writer->write(full, "x\ny\n");
    turn_until(world.loop, [&] { return world.writer->empty(); });
  }
  turn_until(world.loop, [&] { return world.drained == 3; });
  CHECK(told == 4);  // before the third write
  CHECK(full->lost == 6);
}
