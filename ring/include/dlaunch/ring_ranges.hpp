// The calls of dl::Communicator on containers: std::vector, std::array, arrays and anything else
// with std::data() and std::size(). <dlaunch/ring.hpp> includes this; each call does the same as
// its form with spans.
//
//   std::vector<float> x(1000), y(1000);
//   comm.all_reduce(x);        // for comm.all_reduce(std::span<float>(x))
//   comm.all_reduce(x, y);
//   comm.send(x, peer);
#pragma once

#include <cstddef>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace dl {

namespace detail {

template <class R>
using element_of = std::remove_pointer_t<decltype(std::data(std::declval<R&>()))>;
template <class T>
inline constexpr bool is_span = false;
template <class T, std::size_t N>
inline constexpr bool is_span<std::span<T, N>> = true;

// Contiguous elements of a type that libdlring supports.
template <class R>
concept Elements = requires(R& r) {
  std::size(r);
  dtype_of<std::remove_cv_t<element_of<R>>>::value;
};
template <class R>
concept Writable = Elements<R> && !std::is_const_v<element_of<R>>;
template <class In, class Out>
concept Alike = Elements<In> && Writable<Out> &&
    std::is_same_v<std::remove_cv_t<element_of<In>>, element_of<Out>>;
// Memory that outlives a background call; that of a temporary container would not.
template <class R>
concept Lasting = std::is_lvalue_reference_v<R> || is_span<std::remove_cvref_t<R>>;

template <class R>
std::span<element_of<R>> span_of(R& r) {
  return {std::data(r), std::size(r)};
}
template <class R>
std::span<const element_of<R>> view_of(R& r) {
  return {std::data(r), std::size(r)};
}

template <class Comm>
class RangeCalls {
 public:
  template <Writable X>
  void all_reduce(X&& in_out, Op op = Op::sum) {
    self().all_reduce(span_of(in_out), op);
  }
  template <class In, class Out>
  requires Alike<const In, Out>
  void all_reduce(const In& in, Out&& out, Op op = Op::sum) {
    self().all_reduce(view_of(in), span_of(out), op);
  }
  template <class In, class Out>
  requires Alike<const In, Out>
  void scan(const In& in, Out&& out, Op op = Op::sum) {
    self().scan(view_of(in), span_of(out), op);
  }
  template <class In, class Out>
  requires Alike<const In, Out>
  void exscan(const In& in, Out&& out, Op op = Op::sum) {
    self().exscan(view_of(in), span_of(out), op);
  }
  template <class In, class Out, class Options>
  requires Alike<const In, Out>
  auto all_reduce_some(const In& in, Out&& out, const Options& options, Op op = Op::sum) {
    return self().all_reduce_some(view_of(in), span_of(out), options, op);
  }
  template <Writable Out, class Options>
  auto all_reduce_some(std::nullptr_t, Out&& out, const Options& options, Op op = Op::sum) {
    return self().all_reduce_some(nullptr, span_of(out), options, op);
  }
  // A container for each shard.
  template <class In, class Out>
  requires Alike<const In, Out>
  void all_reduce_shards(int shards, const std::vector<In>& in, Out&& out, Op op = Op::sum) {
    std::vector<decltype(view_of(in.front()))> all;
    for (const auto& values : in) all.push_back(view_of(values));
    self().all_reduce_shards(shards, std::span<const decltype(view_of(in.front()))>(all),
                             span_of(out), op);
  }
  template <class In, class Out>
  requires Alike<const In, Out>
  void reduce_scatter(const In& in, Out&& out, Op op = Op::sum) {
    self().reduce_scatter(view_of(in), span_of(out), op);
  }
  template <class In, class Out>
  requires Alike<const In, Out>
  void reduce_scatter_v(const In& in, Out&& out, std::span<const std::size_t> counts,
                        Op op = Op::sum) {
    self().reduce_scatter_v(view_of(in), span_of(out), counts, op);
  }
  template <class In, class Out>
  requires Alike<const In, Out>
  void all_gather(const In& in, Out&& out) { self().all_gather(view_of(in), span_of(out)); }
  template <class In, class Out>
  requires Alike<const In, Out>
  void all_gather_v(const In& in, Out&& out, std::span<const std::size_t> counts) {
    self().all_gather_v(view_of(in), span_of(out), counts);
  }
  template <Writable X>
  void broadcast(X&& buf, int root = 0) {
    self().broadcast(span_of(buf), root);
  }
  template <class In, class Out>
  requires Alike<const In, Out>
  void reduce(const In& in, Out&& out, int root = 0, Op op = Op::sum) {
    self().reduce(view_of(in), span_of(out), root, op);
  }
  template <class In, class Out>
  requires Alike<const In, Out>
  void gather(const In& in, Out&& out, int root = 0) {
    self().gather(view_of(in), span_of(out), root);
  }
  template <class In, class Out>
  requires Alike<const In, Out>
  void gather_v(const In& in, Out&& out, std::span<const std::size_t> counts, int root = 0) {
    self().gather_v(view_of(in), span_of(out), counts, root);
  }
  template <class In, class Out>
  requires Alike<const In, Out>
  void scatter(const In& in, Out&& out, int root = 0) {
    self().scatter(view_of(in), span_of(out), root);
  }
  template <class In, class Out>
  requires Alike<const In, Out>
  void scatter_v(const In& in, Out&& out, std::span<const std::size_t> counts, int root = 0) {
    self().scatter_v(view_of(in), span_of(out), counts, root);
  }
  template <class In, class Out>
  requires Alike<const In, Out>
  void all_to_all(const In& in, Out&& out) { self().all_to_all(view_of(in), span_of(out)); }
  template <class In, class Out>
  requires Alike<const In, Out>
  void all_to_all_v(const In& in, std::span<const std::size_t> in_counts, Out&& out,
                    std::span<const std::size_t> out_counts) {
    self().all_to_all_v(view_of(in), in_counts, span_of(out), out_counts);
  }
  // Several tensors as one buffer.
  template <class T>
  void all_reduce(const std::vector<std::span<T>>& tensors, Op op = Op::sum) {
    self().all_reduce(std::span<const std::span<T>>(tensors), op);
  }
  template <class T>
  void broadcast(const std::vector<std::span<T>>& tensors, int root = 0) {
    self().broadcast(std::span<const std::span<T>>(tensors), root);
  }
  template <Elements In>
  void send(const In& buf, int peer, int tag = 0) {
    self().send(view_of(buf), peer, tag);
  }
  template <Writable Out>
  void recv(Out&& buf, int peer, int tag = 0) {
    self().recv(span_of(buf), peer, tag);
  }
  template <Writable Out>
  int recv_any(Out&& buf, int tag = 0) {
    return self().recv_any(span_of(buf), tag);
  }

  template <Writable X>
  requires Lasting<X>
  auto iall_reduce(X&& in_out, Op op = Op::sum) { return self().iall_reduce(span_of(in_out), op); }
  template <class In, class Out>
  requires Alike<In, Out> && Lasting<In> && Lasting<Out>
  auto ireduce_scatter(In&& in, Out&& out, Op op = Op::sum) {
    return self().ireduce_scatter(view_of(in), span_of(out), op);
  }
  template <class T>
  auto iall_reduce(const std::vector<std::span<T>>& tensors, Op op = Op::sum) {
    return self().iall_reduce(std::span<const std::span<T>>(tensors), op);
  }
  template <class In, class Out>
  requires Alike<In, Out> && Lasting<In> && Lasting<Out>
  auto iall_gather(In&& in, Out&& out) { return self().iall_gather(view_of(in), span_of(out)); }
  template <Writable X>
  requires Lasting<X>
  auto ibroadcast(X&& buf, int root = 0) { return self().ibroadcast(span_of(buf), root); }
  template <Elements In>
  requires Lasting<In>
  auto isend(In&& buf, int peer, int tag = 0) { return self().isend(view_of(buf), peer, tag); }
  template <Writable Out>
  requires Lasting<Out>
  auto irecv(Out&& buf, int peer, int tag = 0) { return self().irecv(span_of(buf), peer, tag); }

 private:
  Comm& self() { return static_cast<Comm&>(*this); }
};

}  // namespace detail

}  // namespace dl
