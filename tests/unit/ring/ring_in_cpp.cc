// The C++ headers of the library alone, with warnings that a user's compiler may take for errors.
// One rank makes every call once.
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include <dlaunch/bucketer.hpp>
#include <dlaunch/outer.hpp>
#include <dlaunch/ring.hpp>
#include <doctest/doctest.h>

namespace {

std::span<const float> given(const std::vector<float>& v) { return v; }

}  // namespace

TEST_CASE("ring in C++: collectives") {
  auto comm = dl::Communicator::init();
  const std::vector<float> in = {1, 2, 3, 4};
  std::vector<float> all(4), one(4);
  const std::span<float> out(all);
  const std::vector<std::size_t> counts = {4};
  comm.all_reduce(given(in), out, dl::Op::avg);
  comm.all_reduce(out);
  CHECK(all == in);
  comm.reduce_scatter(given(in), out);
  comm.reduce_scatter_v(given(in), out, counts);
  comm.all_gather(given(in), out);
  comm.all_gather_v(given(in), out, counts);
  comm.broadcast(out);
  comm.reduce(given(in), out);
  comm.gather(given(in), out);
  comm.gather_v(given(in), out, counts);
  comm.scatter(given(in), out);
  comm.scatter_v(given(in), out, counts);
  comm.all_to_all(given(in), out);
  comm.all_to_all_v(given(in), counts, out, counts);
  comm.scan(given(in), out);
  CHECK(comm.shard_range(3) == std::pair(0, 3));
  const std::vector<std::span<const float>> shards = {in, in, in};
  comm.all_reduce_shards(3, std::span<const std::span<const float>>(shards), out, dl::Op::avg);
  comm.exscan(given(in), out);  // rank 0 gets nothing
  CHECK(all == in);
  std::vector<float> residual(4);
  comm.compressed_average(in, out, dl::Codec::int4, residual);
  comm.icompressed_average(in, out, dl::Codec::fp8).wait();
  CHECK(all == in);
  CHECK_THROWS_AS(comm.compressed_average(in, out, dl::Codec::int4, std::span(residual).first(3)),
                  dl::Error);
  dl::SomeOptions some(1);
  some.late = DL_LATE_CARRY;
  const auto outcome = comm.all_reduce_some(given(in), out, some, dl::Op::avg);
  CHECK(outcome.given == std::vector<int>{1});
  CHECK(outcome.fate == DL_FATE_IN);
  CHECK(all == in);
  CHECK(comm.all_reduce_some(nullptr, out, some).fate == DL_FATE_NONE);
  CHECK(all == std::vector<float>(4));
  CHECK(comm.all_reduce_some(given(in).first(0), out.first(0), some).fate == DL_FATE_IN);
  CHECK(comm.some_behind() == 0);
  CHECK_THROWS_AS(comm.all_reduce_some(given(in), out, dl::SomeOptions(2)), dl::Error);
  CHECK_THROWS_AS(comm.all_reduce_some(given(in), out.first(3), some), dl::Error);
  CHECK_THROWS_AS((void)comm.shard_range(0), dl::Error);
  CHECK_THROWS_AS(comm.all_reduce_shards(2, std::span<const std::span<const float>>(shards), out),
                  dl::Error);
  const std::vector<std::span<float>> list = {all, one};
  comm.all_reduce(std::span<const std::span<float>>(list));
  comm.broadcast(std::span<const std::span<float>>(list));
  CHECK_THROWS_AS(comm.all_gather(given(in), std::span(one).first(3)), dl::Error);
  CHECK_THROWS_AS(comm.reduce_scatter_v(given(in), std::span(one).first(3), counts), dl::Error);
  CHECK_THROWS_AS(comm.scatter_v(given(in).first(3), out, counts), dl::Error);
  CHECK_THROWS_AS(comm.all_to_all_v(given(in), {}, out, counts), dl::Error);
  CHECK_THROWS_AS(comm.all_to_all_v(given(in).first(3), counts, out, counts), dl::Error);
  CHECK_THROWS_AS(comm.send(given(in), 0), dl::Error);
  CHECK_THROWS_AS(comm.recv(out, 0), dl::Error);
  CHECK_THROWS_AS((void)comm.recv_any(out), dl::Error);
  comm.barrier();
}

TEST_CASE("ring in C++: containers and arrays in place of spans") {
  auto comm = dl::Communicator::init();
  const std::vector<float> in = {1, 2, 3, 4};
  std::vector<float> out(4);
  const std::vector<std::size_t> counts = {4};
  const auto filled = [&] { return std::exchange(out, std::vector<float>(4)) == in; };
  comm.scan(in, out);
  CHECK(filled());
  comm.all_reduce_shards(2, std::vector{in, in}, out, dl::Op::avg);
  CHECK(filled());
  comm.exscan(in, out);
  CHECK_FALSE(filled());
  comm.all_reduce_some(in, out, dl::SomeOptions(1));
  CHECK(filled());
  CHECK(comm.all_reduce_some(nullptr, out, dl::SomeOptions(1)).fate == DL_FATE_NONE);
  comm.all_reduce(in, out, dl::Op::max);
  CHECK(filled());
  comm.reduce_scatter(in, out);
  CHECK(filled());
  comm.all_gather(in, out);
  CHECK(filled());
  comm.all_gather_v(in, out, counts);
  CHECK(filled());
  comm.reduce(in, out);
  CHECK(filled());
  comm.gather(in, out);
  CHECK(filled());
  comm.gather_v(in, out, counts);
  CHECK(filled());
  comm.reduce_scatter_v(in, out, counts);
  CHECK(filled());
  comm.scatter_v(in, out, counts);
  CHECK(filled());
  comm.all_to_all_v(in, counts, out, counts);
  CHECK(filled());
  comm.scatter(in, out);
  CHECK(filled());
  comm.all_to_all(in, std::span(out));
  CHECK(filled());
  comm.ireduce_scatter(in, out).wait();
  CHECK(filled());
  comm.iall_gather(in, out).wait();
  CHECK(filled());
  int numbers[] = {1, 2, 3};
  std::array<double, 2> pair = {4, 5};
  comm.all_reduce(numbers);
  comm.broadcast(pair);
  comm.iall_reduce(pair, dl::Op::avg).wait();
  comm.ibroadcast(std::span(numbers).first(2)).wait();
  const std::vector<std::span<float>> list = {out, std::span(out).first(0)};
  comm.all_reduce(list);
  comm.broadcast(list);
  comm.iall_reduce(list, dl::Op::max).wait();
  CHECK(numbers[2] == 3);
  CHECK(pair[1] == 5);
  CHECK_THROWS_AS(comm.all_gather(in, std::span(out).first(3)), dl::Error);
  CHECK_THROWS_AS(comm.send(in, 0), dl::Error);
  CHECK_THROWS_AS(comm.recv(out, 0), dl::Error);
  CHECK_THROWS_AS((void)comm.recv_any(out), dl::Error);
  CHECK_THROWS_AS(comm.isend(in, 0), dl::Error);
  CHECK_THROWS_AS(comm.irecv(out, 0), dl::Error);
}

// What cannot be: to write to what is const, to mix types, and to go on with a temporary's memory.
template <class X>
concept Reducible = requires(dl::Communicator& comm, X&& x) {
  comm.all_reduce(std::forward<X>(x));
};
template <class In, class Out>
concept Gathers = requires(dl::Communicator& comm, In in, Out out) {
  comm.all_gather(in, out);
};
template <class X>
concept SentInBackground = requires(dl::Communicator& comm, X&& x) {
  comm.isend(std::forward<X>(x), 0);
};
static_assert(Reducible<std::vector<float>&> && !Reducible<const std::vector<float>&>);
static_assert(!Reducible<std::vector<long double>&>);
static_assert(Gathers<const std::vector<float>&, std::vector<float>&>);
static_assert(!Gathers<const std::vector<float>&, std::vector<double>&>);
static_assert(SentInBackground<const std::vector<float>&> && SentInBackground<std::span<float>>);
static_assert(!SentInBackground<std::vector<float>>);

TEST_CASE("ring in C++: operations of the program") {
  auto comm = dl::Communicator::init();
  const std::vector<double> in = {3, 4};
  std::vector<double> out(2);
  const auto op = dl::make_op<double>([](double a, double b) { return 10 * a + b; });
  comm.all_reduce(in, out, op);
  CHECK(out == in);
  comm.all_reduce_shards(3, std::vector{in, in, in}, out, op);
  CHECK(out == std::vector<double>{333, 444});
  comm.iall_reduce(out, op).wait();
  comm.all_reduce(in, out, dl::premul_sum(0.5));
  CHECK(out == std::vector<double>{1.5, 2});
  std::vector<std::complex<double>> turns = {{0, 1}};
  comm.all_reduce_shards(2, std::vector{turns, turns}, turns, dl::Op::product);
  CHECK(turns[0] == -1.0);
  const std::vector<float> other = {1};
  std::vector<float> failed(1);
  CHECK_THROWS_WITH(comm.all_reduce_shards(2, std::vector{other, other}, failed, op),
                    doctest::Contains("returned -1"));
}

TEST_CASE("ring in C++: batches and persistent calls") {
  auto comm = dl::Communicator::init();
  const std::vector<float> in = {1, 2};
  std::vector<float> a(2), b(2), c(2);
  comm.batch([&] {
    comm.all_reduce(in, a);
    comm.batch([&] { comm.all_gather(in, b); });
    CHECK(a[0] + b[0] == 0);
  });
  CHECK((a == in && b == in));
  a = {0, 0};
  dl::Request request = comm.ibatch([&] { comm.all_reduce(in, a); });
  request.wait();
  CHECK(a == in);
  CHECK_THROWS_WITH(comm.batch([&] {
    comm.all_reduce(in, c);
    comm.send(in, 0);
  }),
                    "send: peer 0 is not another rank");
  CHECK(c[0] == 0);
  CHECK_THROWS_WITH(comm.batch([&] { comm.isend(in, 0); }), doctest::Contains("a batch is open"));

  std::vector<dl::Persistent> calls;
  calls.push_back(comm.all_reduce_init(given(in), std::span(a), dl::Op::max));
  calls.push_back(comm.all_gather_init(given(a), std::span(b)));
  calls.push_back(comm.reduce_scatter_init(given(b), std::span(c)));
  calls.push_back(comm.all_to_all_init(given(in), std::span(b)));
  calls.push_back(comm.reduce_init(given(in), std::span(b)));
  calls.push_back(comm.all_reduce_init(std::span(c)));
  calls.push_back(comm.broadcast_init(std::span(c)));
  calls.push_back(comm.barrier_init());
  for (int round = 0; round < 2; ++round) {
    a = b = c = {0, 0};
    for (auto& call : calls) round == 0 ? call.run() : call.start().wait();
    CHECK((a == in && b == in && c == in));
  }
  CHECK_THROWS_AS(comm.broadcast_init(std::span(c), 1), dl::Error);
}

TEST_CASE("ring in C++: in the background") {
  auto comm = dl::Communicator::init();
  const std::vector<float> in = {1, 2};
  std::vector<float> out(2), more = {3, 4};
  const std::vector<std::span<float>> list = {more};
  std::vector<dl::Request> requests;
  requests.push_back(comm.ireduce_scatter(given(in), std::span(out)));
  requests.push_back(comm.iall_gather(given(in), std::span(out)));
  requests.push_back(comm.ibroadcast(std::span(out)));
  requests.push_back(comm.iall_reduce(std::span(out)));
  requests.push_back(comm.iall_reduce(std::span<const std::span<float>>(list)));
  requests.push_back(comm.ibarrier());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CHECK(dl::Request::wait_any(requests) < requests.size());
  }
  CHECK(dl::Request::wait_any(requests) == requests.size());
  CHECK(out == in);
  CHECK_THROWS_AS((void)comm.isend(given(in), 0), dl::Error);
  CHECK_THROWS_AS((void)comm.irecv(std::span(out), 0), dl::Error);
  dl::GradientBucketer<float> bucketer(comm, {out, more});
  bucketer.ready(1);
  bucketer.finish();
  bucketer.reset();
  CHECK(more == std::vector<float>{3, 4});
}

TEST_CASE("ring in C++: moved objects") {
  auto comm = dl::Communicator::init();
  auto buffer = comm.alloc<double>(8);
  dl::Buffer<double> moved;
  moved = std::move(buffer);
  moved[7] = 1;
  CHECK(moved.size() == 8);
  auto group = comm.split(0);
  const std::array<int, 1> ranks = {0};
  auto other = comm.group(ranks);
  CHECK_FALSE(comm.split(-1).valid());
  other = std::move(group);
  other.barrier();
  comm.copy(moved.data(), moved.data() + 1, sizeof(double));
}

TEST_CASE("ring in C++: an outer optimizer") {
  auto comm = dl::Communicator::init();
  std::vector<float> w = {8, 8};
  dl::OuterOptions options = dl::OuterOptions::local_sgd(2);
  options.codec = DL_CODEC_INT8;
  options.delay = 1;
  dl::Outer outer(comm, {w}, options);
  CHECK(outer.shared().size() > 2 * sizeof(float));
  CHECK(outer.residual().size() >= 2);
  w[1] = 4;
  outer.step();
  CHECK(outer.due());
  outer.step();
  CHECK(outer.in_flight());
  outer.settle();
  outer.restored();
  outer.finish();
  CHECK((w[1] == 4 && outer.steps() == 2));
  options.inner_steps = 0;
  CHECK_THROWS_AS((void)dl::Outer(comm, {w}, options), dl::Error);
}
