// Bytes from one port to another, both ways, for our own user only.
#include "launcher/node/mpi/relay.h"

#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include <asio/connect.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <doctest/doctest.h>

#include "base/small_file.h"
#include "launcher/node/mpi/loopback_owner.h"

using namespace dlaunch;
using asio::ip::tcp;

TEST_CASE("relay: bytes arrive, and so does the end of the connection") {
  asio::io_context ours, theirs;
  const tcp::endpoint any(asio::ip::address_v4::loopback(), 0);
  tcp::acceptor far(theirs, any), near(ours, any);
  const auto port = near.local_endpoint().port();
  const Relay relay(ours, UniqueFd(near.release()), far.local_endpoint().port());
  std::thread runs([&] { ours.run(); });

  tcp::socket client(theirs);
  client.connect({asio::ip::address_v4::loopback(), port});
  const std::string asked(1 << 20, 'a'), answered = "answer";
  asio::write(client, asio::buffer(asked, 1));
  tcp::socket server = far.accept();
  std::thread says([&] {
    asio::write(client, asio::buffer(asked) + 1);
    client.shutdown(tcp::socket::shutdown_send);
  });
  std::string heard;
  asio::error_code end;
  asio::read(server, asio::dynamic_buffer(heard), end);
  CHECK(end == asio::error::eof);
  CHECK(heard == asked);
  says.join();
  asio::write(server, asio::buffer(answered));
  server.close();
  heard.clear();
  asio::read(client, asio::dynamic_buffer(heard), end);
  CHECK(heard == answered);
  ours.stop();
  runs.join();
}

TEST_CASE("relay: a silent client reaches no server, and a client without an answer is closed") {
  asio::io_context ours, theirs;
  const tcp::endpoint any(asio::ip::address_v4::loopback(), 0);
  tcp::acceptor far(theirs, any), near(ours, any);
  const tcp::endpoint there = near.local_endpoint();
  const Relay relay(ours, UniqueFd(near.release()), far.local_endpoint().port(),
                    std::chrono::seconds(8));
  std::thread runs([&] { ours.run(); });

  tcp::socket silent(theirs), noisy(theirs), program(theirs);
  silent.connect(there);
  noisy.connect(there);
  asio::write(noisy, asio::buffer("GET", 3));
  tcp::socket hears_noise = far.accept();  // it was the second to come
  std::string noise(3, ' ');
  asio::read(hears_noise, asio::buffer(noise));
  CHECK(noise == "GET");
  program.connect(there);
  asio::write(program, asio::buffer("hello", 5));
  tcp::socket server = far.accept();
  asio::write(server, asio::buffer("welcome", 7));

  std::string heard;
  asio::error_code end;
  for (tcp::socket* stranger : {&silent, &noisy}) {
    asio::read(*stranger, asio::dynamic_buffer(heard), end);
    CHECK(end == asio::error::eof);
  }
  CHECK(heard.empty());
  asio::read(hears_noise, asio::dynamic_buffer(heard), end);
  CHECK(end == asio::error::eof);
  // A client with an answer stays, although the others have been closed.
  heard.resize(7);
  asio::read(program, asio::buffer(heard));
  CHECK(heard == "welcome");
  asio::write(program, asio::buffer("more", 4));
  heard.resize(9);
  asio::read(server, asio::buffer(heard));
  CHECK(heard == "hellomore");
  ours.stop();
  runs.join();
}

TEST_CASE("loopback owner: of an existing connection, and of none") {
  asio::io_context loop;
  tcp::acceptor listener(loop, {asio::ip::address_v4::loopback(), 0});
  tcp::socket client(loop);
  const auto to = listener.local_endpoint().port();
  client.connect({asio::ip::address_v4::loopback(), to});
  const auto from = client.local_endpoint().port();
  CHECK(owner_of_loopback(from, to) == ::geteuid());
  CHECK(owner_in_table(text_of("/proc/net/tcp"), from, to) == ::geteuid());
  CHECK_FALSE(owner_of_loopback(0, to));  // of one that is no more, beside one that is there
  CHECK(has_loopback(::geteuid(), to));
  CHECK_FALSE(has_loopback(::geteuid() + 1, to));
  // A user who has left is unknown, and above all is not root.
  tcp::socket accepted = listener.accept();
  client.close();
  CHECK_FALSE(owner_of_loopback(from, to));
  CHECK_FALSE(has_loopback(::geteuid(), to));
  accepted.close();
  listener.close();

  const std::string_view table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout\n"
      "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0\n"
      "   1: 0100007F:0B0C 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0\n"
      "   2: 0A00000A:0B0D 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0\n"
      "   3: 0100007F:0B0E 0100007F:1F90 01\n"
      "   4: 0100007F:0B0F 0100007F:1F90 05 00000000:00000000 00:00000000 00000000     0        0\n"
      "   5: 0100007F:0B10 0100007F:1F90 06 00000000:00000000 00:00000000 00000000     0        "
      "0\n";
  CHECK(owner_in_table(table, 0x0b0c, 8080) == 1000);
  CHECK_FALSE(owner_in_table(table, 0x0b0d, 8080));  // of another address
  CHECK_FALSE(owner_in_table(table, 0x0b0e, 8080));  // cut off
  CHECK_FALSE(owner_in_table(table, 0x0b0f, 8080));  // closed, in FIN_WAIT2
  CHECK_FALSE(owner_in_table(table, 0x0b10, 8080));  // in TIME_WAIT
  CHECK_FALSE(owner_in_table(table, 8080, 0x0b0c));
  CHECK(has_in_table(table, 1000, 8080));
  CHECK_FALSE(has_in_table(table, 0, 8080));  // only of connections that were closed
  CHECK_FALSE(has_in_table(table, 1000, 8081));
}
