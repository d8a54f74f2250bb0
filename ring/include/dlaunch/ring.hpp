// libdlring for C++20: RAII, spans and exceptions over the C API of <dlaunch/ring.h>, which is the
// manual for semantics, threads and buffer rules. Header only, so that the library's ABI stays C.
//
// Errors are exceptions: dl::Error, and its subclasses PeerLost, Mismatch and Timeout for errors
// that a program may handle differently.
#pragma once

#if __cplusplus <= 201703L
#error "<dlaunch/ring.hpp> needs C++20: compile with -std=c++20"
#else

#include <algorithm>
#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dlaunch/ring.h"

namespace dl {

// As dl_heartbeat(): true if dlaunch reads the heartbeats of this worker.
inline bool heartbeat() { return dl_heartbeat() != 0; }

// As dl_report_progress(): dl::report_progress(step, total, {{"loss", loss}}).
inline bool report_progress(std::int64_t step, std::int64_t total = 0,
                            std::initializer_list<dl_value> values = {}) {
  return dl_report_progress(step, total, values.begin(), values.size()) != 0;
}
// As dl_report_due().
inline bool report_due(std::int64_t step, std::int64_t total = 0) {
  return dl_report_due(step, total) != 0;
}

class Error : public std::runtime_error {
 public:
  Error(dl_result code, const std::string& what) : std::runtime_error(what), code_(code) {}
  dl_result code() const { return code_; }

 private:
  dl_result code_;
};

class PeerLost : public Error {
 public:
  PeerLost(const std::string& what, int rank) : Error(DL_ERR_PEER_LOST, what), rank_(rank) {}
  int rank() const { return rank_; }

 protected:
  PeerLost(dl_result code, const std::string& what, int rank) : Error(code, what), rank_(rank) {}

 private:
  int rank_;
};

// Ranks hold different results: see dl_verify(). An elastic program recovers as from the loss of
// a rank.
class Corrupt : public PeerLost {
 public:
  Corrupt(const std::string& what, int rank) : PeerLost(DL_ERR_CORRUPT, what, rank) {}
};

class Mismatch : public Error {
 public:
  explicit Mismatch(const std::string& what) : Error(DL_ERR_MISMATCH, what) {}
};

class Timeout : public Error {
 public:
  explicit Timeout(const std::string& what) : Error(DL_ERR_TIMEOUT, what) {}
};

// Storage for floats of 16 and 8 bits, without arithmetic.
struct float16 {
  std::uint16_t bits;
};
struct bfloat16 {
  std::uint16_t bits;
};

struct float8_e4m3 {
  std::uint8_t bits;
};
struct float8_e5m2 {
  std::uint8_t bits;
};

// As dl_codec.
enum class Codec { none, bf16, int8, fp8, int4, topk };

enum class Op { sum, product, max, min, avg, band, bor, bxor };

// The dl_dtype of an element type.
template <class T>
struct dtype_of;
template <>
struct dtype_of<std::int8_t> : std::integral_constant<dl_dtype, DL_INT8> {};
template <>
struct dtype_of<std::uint8_t> : std::integral_constant<dl_dtype, DL_UINT8> {};
template <>
struct dtype_of<std::int32_t> : std::integral_constant<dl_dtype, DL_INT32> {};
template <>
struct dtype_of<std::uint32_t> : std::integral_constant<dl_dtype, DL_UINT32> {};
template <>
struct dtype_of<std::int64_t> : std::integral_constant<dl_dtype, DL_INT64> {};
template <>
struct dtype_of<std::uint64_t> : std::integral_constant<dl_dtype, DL_UINT64> {};
template <>
struct dtype_of<float16> : std::integral_constant<dl_dtype, DL_FLOAT16> {};
template <>
struct dtype_of<bfloat16> : std::integral_constant<dl_dtype, DL_BFLOAT16> {};
template <>
struct dtype_of<float> : std::integral_constant<dl_dtype, DL_FLOAT32> {};
template <>
struct dtype_of<double> : std::integral_constant<dl_dtype, DL_FLOAT64> {};
template <>
struct dtype_of<std::complex<float>> : std::integral_constant<dl_dtype, DL_COMPLEX64> {};
template <>
struct dtype_of<std::complex<double>> : std::integral_constant<dl_dtype, DL_COMPLEX128> {};
template <>
struct dtype_of<float8_e4m3> : std::integral_constant<dl_dtype, DL_FLOAT8_E4M3> {};
template <>
struct dtype_of<float8_e5m2> : std::integral_constant<dl_dtype, DL_FLOAT8_E5M2> {};

struct Options : dl_options {
  Options() { dl_options_init(this); }
};

// For all_reduce_some(): dl::SomeOptions some(k); some.late = DL_LATE_CARRY;
struct SomeOptions : dl_some_options {
  explicit SomeOptions(int needed) {
    dl_some_options_init(this);
    need = needed;
  }
};
struct SomeOutcome {
  std::vector<int> given;  // how many contributions of each rank are in
  dl_fate fate = DL_FATE_NONE;
};

namespace detail {

[[noreturn]] inline void fail(dl_result code, dl_comm* comm) {
  const std::string what = dl_last_error(comm);
  if (code == DL_ERR_PEER_LOST) throw PeerLost(what, comm != nullptr ? dl_peer_lost(comm) : -1);
  if (code == DL_ERR_CORRUPT) throw Corrupt(what, comm != nullptr ? dl_peer_lost(comm) : -1);
  if (code == DL_ERR_MISMATCH) throw Mismatch(what);
  if (code == DL_ERR_TIMEOUT) throw Timeout(what);
  throw Error(code, what);
}
inline void check(dl_result code, dl_comm* comm) {
  if (code != DL_OK) fail(code, comm);
}

// What dl_op_create() calls for make_op(); code of C must not see exceptions.
template <class T, class Combine>
int combine_all(const void* in, void* inout, std::size_t count, dl_dtype dtype, void* context) {
  if (dtype != dtype_of<T>::value) return -1;
  const auto* const a = static_cast<const T*>(in);
  auto* const b = static_cast<T*>(inout);
  try {
    for (std::size_t i = 0; i < count; ++i) b[i] = (*static_cast<Combine*>(context))(a[i], b[i]);
  } catch (...) {
    return 1;
  }
  return 0;
}

}  // namespace detail

// An operation of the program's own, for calls that take an Op. It must outlive them.
class OwnOp {
 public:
  OwnOp(dl_op_function* function, bool commutes, std::shared_ptr<void> context)
      : context_(std::move(context)) {
    dl_op op = DL_OP_ANY_INT;
    detail::check(dl_op_create(function, commutes ? 1 : 0, context_.get(), &op), nullptr);
    op_ = static_cast<Op>(op);
  }
  // See premul_sum().
  explicit OwnOp(double factor) {
    dl_op op = DL_OP_ANY_INT;
    detail::check(dl_op_create_premul_sum(factor, &op), nullptr);
    op_ = static_cast<Op>(op);
  }
  OwnOp(const OwnOp&) = delete;
  OwnOp& operator=(const OwnOp&) = delete;
  ~OwnOp() { dl_op_free(static_cast<dl_op>(op_)); }
  operator Op() const { return op_; }  // NOLINT(google-explicit-constructor): it stands for one

 private:
  std::shared_ptr<void> context_;
  Op op_ = Op::sum;
};

// combine(a, b) gives a op b of two elements; `a` is of lower ranks. Calls must have elements of
// type T, or they fail. See dl_op_create().
template <class T, class Combine>
OwnOp make_op(Combine combine, bool commutes = false) {
  return OwnOp(detail::combine_all<T, Combine>, commutes,
               std::make_shared<Combine>(std::move(combine)));
}

// The sum of values that each rank multiplies by its own factor: see dl_op_create_premul_sum().
inline OwnOp premul_sum(double factor) { return OwnOp(factor); }

}  // namespace dl

#include "dlaunch/ring_ranges.hpp"

namespace dl {

// A background operation; its buffers must live until it is done. The destructor waits, and drops
// any error. It must not outlive its communicator.
class Request {
 public:
  Request() = default;
  Request(dl_request* request, dl_comm* comm) : request_(request), comm_(comm) {}
  Request(Request&& other) noexcept
      : request_(std::exchange(other.request_, nullptr)), comm_(other.comm_) {}
  Request& operator=(Request&& other) noexcept {
    std::swap(request_, other.request_);
    std::swap(comm_, other.comm_);
    return *this;
  }
  ~Request() { dl_wait(&request_); }

  // Whether the operation still needs a wait.
  explicit operator bool() const { return request_ != nullptr; }
  void wait() { detail::check(dl_wait(&request_), comm_); }
  // True once it is done; then as wait().
  bool test() {
    int done = 0;
    detail::check(dl_test(&request_, &done), comm_);
    return done != 0;
  }
  // Waits for at most `time`. True once it is done; then as wait().
  bool wait_for(std::chrono::duration<double> time) {
    int done = 0;
    detail::check(dl_wait_for(&request_, std::max(time.count(), 0.0), &done), comm_);
    return done != 0;
  }
  // Waits for one of the requests and takes it; returns requests.size() if none is left.
  static std::size_t wait_any(std::span<Request> requests) {
    std::vector<dl_request*> handles;
    for (const auto& request : requests) handles.push_back(request.request_);
    std::size_t index = requests.size();
    const auto code = dl_wait_any(handles.size(), handles.data(), &index);
    if (index < requests.size()) requests[index].request_ = nullptr;
    if (code != DL_OK)
      detail::fail(code, index < requests.size() ? requests[index].comm_ : nullptr);
    return index;
  }

 private:
  dl_request* request_ = nullptr;
  dl_comm* comm_ = nullptr;
};

// A call that is made many times: see dl_all_reduce_init(). Its buffers must outlive it, and its
// communicator, too.
class Persistent {
 public:
  Persistent() = default;
  Persistent(dl_persistent* call, dl_comm* comm) : call_(call), comm_(comm) {}
  Persistent(Persistent&& other) noexcept
      : call_(std::exchange(other.call_, nullptr)), comm_(other.comm_) {}
  Persistent& operator=(Persistent&& other) noexcept {
    std::swap(call_, other.call_);
    std::swap(comm_, other.comm_);
    return *this;
  }
  ~Persistent() { dl_persistent_free(call_); }

  void run() { detail::check(dl_persistent_run(call_), comm_); }
  Request start() {
    dl_request* request = nullptr;
    detail::check(dl_persistent_start(call_, &request), comm_);
    return {request, comm_};
  }

 private:
  dl_persistent* call_ = nullptr;
  dl_comm* comm_ = nullptr;
};

// Memory of dl_alloc() for a number of elements, zeroed. It must not outlive its communicator.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::span<T> elements, dl_comm* comm) : elements_(elements), comm_(comm) {}
  Buffer(Buffer&& other) noexcept
      : elements_(std::exchange(other.elements_, {})), comm_(other.comm_) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(elements_, other.elements_);
    std::swap(comm_, other.comm_);
    return *this;
  }
  ~Buffer() {
    if (elements_.data() != nullptr) dl_free(comm_, elements_.data());
  }

  std::span<T> span() const { return elements_; }
  T* data() const { return elements_.data(); }
  std::size_t size() const { return elements_.size(); }
  T& operator[](std::size_t i) const { return elements_[i]; }

 private:
  std::span<T> elements_;
  dl_comm* comm_ = nullptr;
};

// Calls take spans, and through detail::RangeCalls containers, too.
class Communicator : public detail::RangeCalls<Communicator> {
  using Calls = detail::RangeCalls<Communicator>;

 public:
  static Communicator init(const char* url = nullptr, const Options& options = {}) {
    dl_comm* comm = nullptr;
    detail::check(dl_init(url, &options, &comm), nullptr);
    return Communicator(comm);
  }

  // Takes ownership of a communicator that the C API has made.
  static Communicator adopt(dl_comm* comm) { return Communicator(comm); }
  // Returns ownership to the C API; do not use this object afterwards.
  dl_comm* release() { return comm_.release(); }

  int rank() const { return dl_rank(comm_.get()); }
  int size() const { return dl_size(comm_.get()); }
  std::string transport() const { return dl_transport(comm_.get()); }
  dl_comm* get() const { return comm_.get(); }
  void abort() { dl_abort(comm_.get()); }

  using Calls::all_gather;
  using Calls::all_gather_v;
  using Calls::all_reduce;
  using Calls::all_reduce_shards;
  using Calls::all_reduce_some;
  using Calls::all_to_all;
  using Calls::all_to_all_v;
  using Calls::broadcast;
  using Calls::exscan;
  using Calls::gather;
  using Calls::gather_v;
  using Calls::iall_gather;
  using Calls::iall_reduce;
  using Calls::ibroadcast;
  using Calls::irecv;
  using Calls::ireduce_scatter;
  using Calls::isend;
  using Calls::recv;
  using Calls::recv_any;
  using Calls::reduce;
  using Calls::reduce_scatter;
  using Calls::reduce_scatter_v;
  using Calls::scan;
  using Calls::scatter;
  using Calls::scatter_v;
  using Calls::send;

  template <class T>
  void all_reduce(std::span<T> in_out, Op op = Op::sum) {
    all_reduce(std::span<const T>(in_out), in_out, op);
  }
  // out.size() == in.size()
  template <class T>
  void all_reduce(std::span<const T> in, std::span<T> out, Op op = Op::sum) {
    same(in.size(), out.size(), "all_reduce: in and out differ in size");
    check(dl_all_reduce(get(), in.data(), out.data(), in.size(), dtype_of<T>::value, c_op(op)));
  }
  // in.size() == size() * out.size()
  template <class T>
  void reduce_scatter(std::span<const T> in, std::span<T> out, Op op = Op::sum) {
    same(in.size(), out.size() * ranks(), "reduce_scatter: in must be size() times out");
    check(
        dl_reduce_scatter(get(), in.data(), out.data(), out.size(), dtype_of<T>::value, c_op(op)));
  }
  // in.size() is the sum of the counts, out.size() this rank's
  template <class T>
  void reduce_scatter_v(std::span<const T> in, std::span<T> out,
                        std::span<const std::size_t> counts, Op op = Op::sum) {
    check_counts(out.size(), in.size(), counts, "reduce_scatter_v", "out", "in");
    check(dl_reduce_scatter_v(get(), in.data(), out.data(), counts.data(), dtype_of<T>::value,
                              c_op(op)));
  }
  // out.size() == size() * in.size()
  template <class T>
  void all_gather(std::span<const T> in, std::span<T> out) {
    same(out.size(), in.size() * ranks(), "all_gather: out must be size() times in");
    check(dl_all_gather(get(), in.data(), out.data(), in.size(), dtype_of<T>::value));
  }
  template <class T>
  void broadcast(std::span<T> buf, int root = 0) {
    check(dl_broadcast(get(), buf.data(), buf.size(), dtype_of<T>::value, root));
  }
  // `out` may be empty except on the root.
  template <class T>
  void reduce(std::span<const T> in, std::span<T> out, int root = 0, Op op = Op::sum) {
    if (rank() == root) same(in.size(), out.size(), "reduce: in and out differ in size");
    check(dl_reduce(get(), in.data(), out.data(), in.size(), dtype_of<T>::value, c_op(op), root));
  }
  // out.size() is the sum of the counts, in.size() this rank's
  template <class T>
  void all_gather_v(std::span<const T> in, std::span<T> out, std::span<const std::size_t> counts) {
    check_counts(in.size(), out.size(), counts, "all_gather_v");
    check(dl_all_gather_v(get(), in.data(), out.data(), counts.data(), dtype_of<T>::value));
  }
  // On the root out.size() == size() * in.size()
  template <class T>
  void gather(std::span<const T> in, std::span<T> out, int root = 0) {
    if (rank() == root)
      same(out.size(), in.size() * ranks(), "gather: out must be size() times in");
    check(dl_gather(get(), in.data(), out.data(), in.size(), dtype_of<T>::value, root));
  }
  template <class T>
  void gather_v(std::span<const T> in, std::span<T> out, std::span<const std::size_t> counts,
                int root = 0) {
    check_counts(in.size(), rank() == root ? out.size() : kAnySize, counts, "gather_v");
    check(dl_gather_v(get(), in.data(), out.data(), counts.data(), dtype_of<T>::value, root));
  }
  // On the root in.size() == size() * out.size()
  template <class T>
  void scatter(std::span<const T> in, std::span<T> out, int root = 0) {
    if (rank() == root)
      same(in.size(), out.size() * ranks(), "scatter: in must be size() times out");
    check(dl_scatter(get(), in.data(), out.data(), out.size(), dtype_of<T>::value, root));
  }
  template <class T>
  void scatter_v(std::span<const T> in, std::span<T> out, std::span<const std::size_t> counts,
                 int root = 0) {
    check_counts(out.size(), rank() == root ? in.size() : kAnySize, counts, "scatter_v", "out",
                 "in");
    check(dl_scatter_v(get(), in.data(), out.data(), counts.data(), dtype_of<T>::value, root));
  }
  // in.size() == out.size(), a multiple of size()
  template <class T>
  void all_to_all(std::span<const T> in, std::span<T> out) {
    same(in.size(), out.size(), "all_to_all: in and out differ in size");
    same(in.size() % ranks(), 0, "all_to_all: in is not a multiple of size()");
    check(dl_all_to_all(get(), in.data(), out.data(), in.size() / ranks(), dtype_of<T>::value));
  }
  // in.size() is the sum of in_counts, out.size() that of out_counts
  template <class T>
  void all_to_all_v(std::span<const T> in, std::span<const std::size_t> in_counts, std::span<T> out,
                    std::span<const std::size_t> out_counts) {
    same(in_counts.size(), ranks(), "all_to_all_v: in_counts needs size() counts");
    same(out_counts.size(), ranks(), "all_to_all_v: out_counts needs size() counts");
    same(in.size(), sum(in_counts), "all_to_all_v: in is not the sum of in_counts");
    same(out.size(), sum(out_counts), "all_to_all_v: out is not the sum of out_counts");
    check(dl_all_to_all_v(get(), in.data(), in_counts.data(), out.data(), out_counts.data(),
                          dtype_of<T>::value));
  }
  // Several tensors as one buffer, see dl_all_reduce_list().
  template <class T>
  void all_reduce(std::span<const std::span<T>> tensors, Op op = Op::sum) {
    const List list(tensors);
    check(dl_all_reduce_list(get(), list.at.size(), list.at.data(), list.at.data(),
                             list.counts.data(), dtype_of<T>::value, c_op(op)));
  }
  template <class T>
  void broadcast(std::span<const std::span<T>> tensors, int root = 0) {
    const List list(tensors);
    check(dl_broadcast_list(get(), list.at.size(), list.at.data(), list.counts.data(),
                            dtype_of<T>::value, root));
  }
  // out.size() == in.size()
  template <class T>
  void scan(std::span<const T> in, std::span<T> out, Op op = Op::sum) {
    same(in.size(), out.size(), "scan: in and out differ in size");
    check(dl_scan(get(), in.data(), out.data(), in.size(), dtype_of<T>::value, c_op(op)));
  }
  template <class T>
  void exscan(std::span<const T> in, std::span<T> out, Op op = Op::sum) {
    same(in.size(), out.size(), "exscan: in and out differ in size");
    check(dl_exscan(get(), in.data(), out.data(), in.size(), dtype_of<T>::value, c_op(op)));
  }
  // The shards [first, last) of this rank; see dl_all_reduce_shards.
  std::pair<int, int> shard_range(int shards) const {
    std::pair<int, int> own;
    if (dl_shard_range(shards, rank(), size(), &own.first, &own.second) != DL_OK) {
      throw Error(DL_ERR_INVALID, "shard_range: shards is not 1 to DL_MOST_SHARDS");
    }
    return own;
  }
  // in: the values of this rank's shards, in order, each as long as out.
  template <class T>
  void all_reduce_shards(int shards, std::span<const std::span<const T>> in, std::span<T> out,
                         Op op = Op::sum) {
    const auto [first, last] = shard_range(shards);
    same(in.size(), static_cast<std::size_t>(last - first),
         "all_reduce_shards: in needs as many spans as this rank has shards");
    std::vector<const void*> at;
    for (const auto values : in) {
      same(values.size(), out.size(), "all_reduce_shards: a shard and out differ in size");
      at.push_back(values.data());
    }
    check(dl_all_reduce_shards(get(), shards, at.data(), out.data(), out.size(), dtype_of<T>::value,
                               c_op(op)));
  }
  // out.size() == in.size(); residual.size(), too, or 0: none. See dl_compressed_average().
  void compressed_average(std::span<const float> in, std::span<float> out, Codec codec,
                          std::span<float> residual = {}) {
    same_sizes(in, out, residual);
    check(dl_compressed_average(get(), in.data(), out.data(), in.size(),
                                static_cast<dl_codec>(codec), residual.data()));
  }
  Request icompressed_average(std::span<const float> in, std::span<float> out, Codec codec,
                              std::span<float> residual = {}) {
    same_sizes(in, out, residual);
    return begin([&](dl_request** r) {
      return dl_icompressed_average(get(), in.data(), out.data(), in.size(),
                                    static_cast<dl_codec>(codec), residual.data(), r);
    });
  }
  // See dl_all_reduce_some(). out.size() == in.size()
  template <class T>
  SomeOutcome all_reduce_some(std::span<const T> in, std::span<T> out, const SomeOptions& options,
                              Op op = Op::sum) {
    same(in.size(), out.size(), "all_reduce_some: in and out differ in size");
    static const T none{};  // for values that are given, although there are none
    return some(in.data() == nullptr ? &none : in.data(), out, options, op);
  }
  // This rank gives nothing.
  template <class T>
  SomeOutcome all_reduce_some(std::nullptr_t, std::span<T> out, const SomeOptions& options,
                              Op op = Op::sum) {
    return some(static_cast<const T*>(nullptr), out, options, op);
  }
  int some_behind() const { return dl_some_behind(get()); }
  void barrier() { check(dl_barrier(get())); }
  void verify() { check(dl_verify(get())); }
  // In the background; see dl_iall_reduce.
  template <class T>
  Request iall_reduce(std::span<T> in_out, Op op = Op::sum) {
    return begin([&](dl_request** r) {
      return dl_iall_reduce(get(), in_out.data(), in_out.data(), in_out.size(), dtype_of<T>::value,
                            c_op(op), r);
    });
  }
  template <class T>
  Request iall_reduce(std::span<const std::span<T>> tensors, Op op = Op::sum) {
    const List list(tensors);
    return begin([&](dl_request** r) {
      return dl_iall_reduce_list(get(), list.at.size(), list.at.data(), list.at.data(),
                                 list.counts.data(), dtype_of<T>::value, c_op(op), r);
    });
  }
  template <class T>
  Request ireduce_scatter(std::span<const T> in, std::span<T> out, Op op = Op::sum) {
    same(in.size(), out.size() * ranks(), "ireduce_scatter: in must be size() times out");
    return begin([&](dl_request** r) {
      return dl_ireduce_scatter(get(), in.data(), out.data(), out.size(), dtype_of<T>::value,
                                c_op(op), r);
    });
  }
  template <class T>
  Request iall_gather(std::span<const T> in, std::span<T> out) {
    same(out.size(), in.size() * ranks(), "iall_gather: out must be size() times in");
    return begin([&](dl_request** r) {
      return dl_iall_gather(get(), in.data(), out.data(), in.size(), dtype_of<T>::value, r);
    });
  }
  template <class T>
  Request ibroadcast(std::span<T> buf, int root = 0) {
    return begin([&](dl_request** r) {
      return dl_ibroadcast(get(), buf.data(), buf.size(), dtype_of<T>::value, root, r);
    });
  }
  Request ibarrier() {
    return begin([&](dl_request** r) { return dl_ibarrier(get(), r); });
  }
  template <class T>
  Request isend(std::span<const T> buf, int peer, int tag = 0) {
    return begin([&](dl_request** r) {
      return dl_isend(get(), buf.data(), buf.size(), dtype_of<T>::value, peer, tag, r);
    });
  }
  template <class T>
  Request irecv(std::span<T> buf, int peer, int tag = 0) {
    return begin([&](dl_request** r) {
      return dl_irecv(get(), buf.data(), buf.size(), dtype_of<T>::value, peer, tag, r);
    });
  }
  // A batch, see dl_batch_start(): the blocking calls that body() makes begin together when it
  // returns. If it throws none is made, nor any of a batch around this one.
  template <class Body>
  void batch(Body body) {
    add_calls(body);
    check(dl_batch_end(get()));
  }
  template <class Body>
  Request ibatch(Body body) {
    add_calls(body);
    return begin([&](dl_request** r) { return dl_ibatch_end(get(), r); });
  }
  // Persistent calls, see dl_all_reduce_init(). Sizes as in the calls of these names.
  template <class T>
  Persistent all_reduce_init(std::span<const T> in, std::span<T> out, Op op = Op::sum) {
    same(in.size(), out.size(), "all_reduce_init: in and out differ in size");
    return prepare([&](dl_persistent** p) {
      return dl_all_reduce_init(get(), in.data(), out.data(), in.size(), dtype_of<T>::value,
                                c_op(op), p);
    });
  }
  template <class T>
  Persistent all_reduce_init(std::span<T> in_out, Op op = Op::sum) {
    return all_reduce_init(std::span<const T>(in_out), in_out, op);
  }
  template <class T>
  Persistent reduce_init(std::span<const T> in, std::span<T> out, int root = 0, Op op = Op::sum) {
    if (rank() == root) same(in.size(), out.size(), "reduce_init: in and out differ in size");
    return prepare([&](dl_persistent** p) {
      return dl_reduce_init(get(), in.data(), out.data(), in.size(), dtype_of<T>::value, c_op(op),
                            root, p);
    });
  }
  template <class T>
  Persistent reduce_scatter_init(std::span<const T> in, std::span<T> out, Op op = Op::sum) {
    same(in.size(), out.size() * ranks(), "reduce_scatter_init: in must be size() times out");
    return prepare([&](dl_persistent** p) {
      return dl_reduce_scatter_init(get(), in.data(), out.data(), out.size(), dtype_of<T>::value,
                                    c_op(op), p);
    });
  }
  template <class T>
  Persistent all_gather_init(std::span<const T> in, std::span<T> out) {
    same(out.size(), in.size() * ranks(), "all_gather_init: out must be size() times in");
    return prepare([&](dl_persistent** p) {
      return dl_all_gather_init(get(), in.data(), out.data(), in.size(), dtype_of<T>::value, p);
    });
  }
  template <class T>
  Persistent all_to_all_init(std::span<const T> in, std::span<T> out) {
    same(in.size(), out.size(), "all_to_all_init: in and out differ in size");
    same(in.size() % ranks(), 0, "all_to_all_init: in is not a multiple of size()");
    return prepare([&](dl_persistent** p) {
      return dl_all_to_all_init(get(), in.data(), out.data(), in.size() / ranks(),
                                dtype_of<T>::value, p);
    });
  }
  template <class T>
  Persistent broadcast_init(std::span<T> buf, int root = 0) {
    return prepare([&](dl_persistent** p) {
      return dl_broadcast_init(get(), buf.data(), buf.size(), dtype_of<T>::value, root, p);
    });
  }
  Persistent barrier_init() {
    return prepare([&](dl_persistent** p) { return dl_barrier_init(get(), p); });
  }
  // Returns the sender.
  template <class T>
  int recv_any(std::span<T> buf, int tag = 0) {
    int source = -1;
    check(dl_recv_any(get(), buf.data(), buf.size(), dtype_of<T>::value, tag, &source));
    return source;
  }
  // Elastic rounds: see dl_rejoin().
  void rejoin(std::uint64_t version = 0) { check(dl_rejoin(get(), version)); }
  void progress(std::uint64_t version) { dl_progress(get(), version); }
  std::uint64_t round() const { return dl_round(get()); }
  bool round_over() const { return dl_round_over(get()) != 0; }

  // Collective; a negative color gets a communicator that is not valid().
  Communicator split(int color, int key = 0) {
    dl_comm* group = nullptr;
    check(dl_split(get(), color, key, &group));
    return Communicator(group);
  }
  // Only these ranks call it: see dl_group().
  Communicator group(std::span<const int> ranks, int tag = 0, double op_timeout_s = -1) {
    dl_comm* made = nullptr;
    check(dl_group(get(), ranks.data(), static_cast<int>(ranks.size()), tag, op_timeout_s, &made));
    return Communicator(made);
  }
  // See dl_set_op_timeout().
  void set_op_timeout(double timeout_s) { check(dl_set_op_timeout(get(), timeout_s)); }
  bool valid() const { return comm_ != nullptr; }
  // See dl_gpu_transport().
  std::string gpu_transport() const { return dl_gpu_transport(comm_.get()); }
  // See dl_set_stream(), dl_set_stream_ordered(), dl_sync(), dl_copy().
  void set_stream(void* stream) { check(dl_set_stream(get(), stream)); }
  void set_stream_ordered(bool on) { check(dl_set_stream_ordered(get(), on ? 1 : 0)); }
  void sync() { check(dl_sync(get())); }
  void copy(void* to, const void* from, std::size_t bytes) {
    check(dl_copy(get(), to, from, bytes));
  }

  // See dl_key_set() and its kin. A get waits as long as an operation may take, or for the given
  // seconds.
  void key_set(const std::string& key, std::string_view value) {
    check(dl_key_set(get(), key.c_str(), value.data(), value.size()));
  }
  std::string key_get(const std::string& key, double timeout_s = -1) {
    std::string value(256, '\0');
    for (std::size_t room = 0; room < value.size();) {
      room = value.size();
      std::size_t bytes = 0;
      check(dl_key_get(get(), key.c_str(), timeout_s, value.data(), room, &bytes));
      value.resize(bytes);
    }
    return value;
  }
  std::int64_t key_add(const std::string& key, std::int64_t delta) {
    std::int64_t sum = 0;
    check(dl_key_add(get(), key.c_str(), delta, &sum));
    return sum;
  }

  // Collective: see dl_alloc().
  template <class T>
  Buffer<T> alloc(std::size_t count) {
    // A count that no memory can hold counts as a lack of memory, which all ranks must learn.
    const bool can_be = count <= static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(T);
    void* memory = nullptr;
    check(dl_alloc(get(), can_be ? count * sizeof(T) : SIZE_MAX, &memory));
    return {{static_cast<T*>(memory), count}, get()};
  }

  template <class T>
  void send(std::span<const T> buf, int peer, int tag = 0) {
    check(dl_send(get(), buf.data(), buf.size(), dtype_of<T>::value, peer, tag));
  }
  template <class T>
  void recv(std::span<T> buf, int peer, int tag = 0) {
    check(dl_recv(get(), buf.data(), buf.size(), dtype_of<T>::value, peer, tag));
  }

 private:
  struct Finalize {
    Finalize() : exceptions(std::uncaught_exceptions()) {}
    // An exception ends a communicator that owes results of all_reduce_some without a wait for the
    // ranks that are late: they learn at once that this rank fails.
    void operator()(dl_comm* comm) const {
      if (std::uncaught_exceptions() > exceptions) (void)dl_set_op_timeout(comm, 1e-6);
      dl_finalize(comm);
    }
    int exceptions;  // when the communicator was made
  };
  struct List {
    template <class T>
    explicit List(std::span<const std::span<T>> tensors) {
      for (const auto& tensor : tensors) {
        at.push_back(tensor.data());
        counts.push_back(tensor.size());
      }
    }
    std::vector<void*> at;
    std::vector<std::size_t> counts;
  };
  explicit Communicator(dl_comm* comm) : comm_(comm) {}

  std::size_t ranks() const { return static_cast<std::size_t>(size()); }
  static dl_op c_op(Op op) { return static_cast<dl_op>(op); }
  static constexpr std::size_t kAnySize = static_cast<std::size_t>(-1);
  static std::size_t sum(std::span<const std::size_t> counts) {
    std::size_t total = 0;
    for (const auto count : counts) total += count;
    return total;
  }
  // part: the size of this rank's part, whole: that of all parts.
  void check_counts(std::size_t part, std::size_t whole, std::span<const std::size_t> counts,
                    const char* what, const char* part_name = "in",
                    const char* whole_name = "out") const {
    const std::string name = what;
    same(counts.size(), ranks(), (name + ": size() counts").c_str());
    same(part, counts[static_cast<std::size_t>(rank())],
         (name + ": " + part_name + " is not counts[rank]").c_str());
    if (whole == kAnySize) return;
    same(whole, sum(counts), (name + ": " + whole_name + " is not the sum of counts").c_str());
  }
  static void same_sizes(std::span<const float> in, std::span<float> out,
                         std::span<float> residual) {
    same(in.size(), out.size(), "compressed_average: in and out differ in size");
    if (residual.empty()) return;
    same(in.size(), residual.size(), "compressed_average: in and residual differ in size");
  }
  static void same(std::size_t a, std::size_t b, const char* what) {
    if (a != b) throw Error(DL_ERR_INVALID, what);
  }
  void check(dl_result code) const { detail::check(code, get()); }
  template <class T>
  SomeOutcome some(const T* in, std::span<T> out, const SomeOptions& options, Op op) {
    SomeOutcome outcome{std::vector<int>(ranks()), DL_FATE_NONE};
    check(dl_all_reduce_some(get(), in, out.data(), out.size(), dtype_of<T>::value, c_op(op),
                             &options, outcome.given.data(), &outcome.fate));
    return outcome;
  }
  // start(&request) begins an operation in the background.
  template <class Start>
  Request begin(Start start) {
    dl_request* request = nullptr;
    check(start(&request));
    return Request(request, get());
  }

  template <class Make>
  Persistent prepare(Make make) {
    dl_persistent* made = nullptr;
    check(make(&made));
    return Persistent(made, get());
  }
  template <class Body>
  void add_calls(Body& body) {
    check(dl_batch_start(get()));
    try {
      body();
    } catch (...) {
      dl_batch_drop(get());
      throw;
    }
  }

  std::unique_ptr<dl_comm, Finalize> comm_;
};

}  // namespace dl

#endif  // C++20
