#include "cli/bench/bench_case.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "base/bus_factor.h"
#include "base/ring_names.h"

namespace bench {
namespace {

constexpr std::size_t kPeriod = 1024;  // patterns repeat after so many elements
// With more ranks the values are smaller, so that bfloat16 still holds every partial sum.
constexpr int kFewForSum = 40, kFewForAvg = 8;

// The value of rank r's element i: small, so that every dtype holds it and every result exactly.
int value(dl_op op, int r, std::size_t i, int ranks) {
  const int k = static_cast<int>(i % kPeriod);
  switch (op) {
    case DL_SUM:
      return (k + r) % (ranks <= kFewForSum ? 4 : 2);
    case DL_PRODUCT:  // a 2 and a 3 somewhere among the ranks, ones elsewhere
      return (k + r) % ranks == 0 ? 2 : (k + r) % ranks == 1 ? 3 : 1;
    case DL_MAX:
    case DL_MIN:
      return (k * 7 + r * 3) % 11;
    case DL_AVG: {
      const int turn = (k + r) % ranks;
      // Over all ranks the turns add up to ranks*(ranks-1)/2, in the other form to nothing.
      if (ranks <= kFewForAvg) return k % 8 + turn;
      return 1 + k % 2 + (turn == 0 ? 1 : turn == 1 ? -1 : 0);
    }
    default:
      return (k * 37 + r * 11) & 0x7f;
  }
}

bool is_integer(dl_dtype dtype) { return dtype < DL_FLOAT16; }

// A sum in an integer type: with many ranks the narrow types wrap.
long wrapped(dl_dtype dtype, long x) {
  if (dtype == DL_INT8) return static_cast<std::int8_t>(x);
  if (dtype == DL_UINT8) return static_cast<std::uint8_t>(x);
  return x;
}

// The exact result; half of an odd number is the only fraction that occurs.
double result(dl_op op, dl_dtype dtype, std::size_t i, int ranks) {
  long acc = value(op, 0, i, ranks);
  for (int r = 1; r < ranks; ++r) {
    const long x = value(op, r, i, ranks);
    switch (op) {
      case DL_SUM:
      case DL_AVG:
        acc += x;
        break;
      case DL_PRODUCT:
        acc *= x;
        break;
      case DL_MAX:
        acc = std::max(acc, x);
        break;
      case DL_MIN:
        acc = std::min(acc, x);
        break;
      case DL_BAND:
        acc &= x;
        break;
      case DL_BOR:
        acc |= x;
        break;
      case DL_BXOR:
        acc ^= x;
        break;
      case DL_OP_ANY_INT:
        break;
    }
  }
  acc = wrapped(dtype, acc);
  if (op != DL_AVG) return static_cast<double>(acc);
  return is_integer(dtype) ? static_cast<double>(acc / ranks)
                           : static_cast<double>(acc) / static_cast<double>(ranks);
}

template <class T>
void put(std::vector<char>& out, T x) {
  const auto* bytes = reinterpret_cast<const char*>(&x);
  out.insert(out.end(), bytes, bytes + sizeof x);
}

// The bits of a value of 0 to 2047, which half precision holds exactly. (Not every compiler has a
// type for it.)
std::uint16_t half_bits(double x) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
  constexpr std::uint32_t kBiases = 127 - 15;
  return static_cast<std::uint16_t>(x == 0 ? 0 : (bits >> 13) - (kBiases << 10));
}

void put_as(std::vector<char>& out, dl_dtype dtype, double x) {
  switch (dtype) {
    case DL_INT8:
      return put(out, static_cast<std::int8_t>(x));
    case DL_UINT8:
      return put(out, static_cast<std::uint8_t>(x));
    case DL_INT32:
      return put(out, static_cast<std::int32_t>(x));
    case DL_UINT32:
      return put(out, static_cast<std::uint32_t>(x));
    case DL_INT64:
      return put(out, static_cast<std::int64_t>(x));
    case DL_UINT64:
      return put(out, static_cast<std::uint64_t>(x));
    case DL_FLOAT16:
      return put(out, half_bits(x));
    case DL_BFLOAT16: {
      const auto bits =
          std::bit_cast<std::uint32_t>(static_cast<float>(x));  // its lower half is zero
      return put(out, static_cast<std::uint16_t>(bits >> 16));
    }
    case DL_FLOAT32:
      return put(out, static_cast<float>(x));
    case DL_FLOAT64:
      return put(out, x);
    default:  // kDtypeNames has no others
      return;
  }
}

// One period of rank r's input, or of the result.
std::vector<char> input_period(const Case& c, int r, int ranks) {
  std::vector<char> bytes;
  for (std::size_t i = 0; i < kPeriod; ++i) put_as(bytes, c.dtype, value(c.op, r, i, ranks));
  return bytes;
}
std::vector<char> result_period(const Case& c, int ranks) {
  std::vector<char> bytes;
  for (std::size_t i = 0; i < kPeriod; ++i) {
    put_as(bytes, c.dtype, result(c.op, c.dtype, i, ranks));
  }
  return bytes;
}

// Walks over `count` elements that begin at element `first` of the pattern, a stretch at a time.
template <class Visit>
void each_stretch(std::size_t first, std::size_t count, Visit visit) {
  for (std::size_t done = 0; done < count;) {
    const std::size_t phase = (first + done) % kPeriod;
    const std::size_t size = std::min(count - done, kPeriod - phase);
    visit(done, phase, size);
    done += size;
  }
}

void fill_from(char* to, const std::vector<char>& period, std::size_t first, std::size_t count,
               std::size_t element) {
  each_stretch(first, count, [&](std::size_t at, std::size_t phase, std::size_t size) {
    std::memcpy(to + at * element, period.data() + phase * element, size * element);
  });
}

std::size_t differing(const char* got, const std::vector<char>& period, std::size_t first,
                      std::size_t count, std::size_t element) {
  std::size_t wrong = 0;
  each_stretch(first, count, [&](std::size_t at, std::size_t phase, std::size_t size) {
    const char* a = got + at * element;
    const char* b = period.data() + phase * element;
    if (std::memcmp(a, b, size * element) == 0) return;
    for (std::size_t i = 0; i < size; ++i) {
      wrong += std::memcmp(a + i * element, b + i * element, element) != 0;
    }
  });
  return wrong;
}

constexpr std::size_t kPage = 4096;

Memory make_memory(std::size_t bytes, dl_comm* comm) {
  void* memory = nullptr;
  if (comm == nullptr) {
    memory = std::calloc(bytes, 1);
    if (memory == nullptr) throw std::bad_alloc();
    // Makes the kernel allocate the pages. A compiler leaves out a memset() to zero after calloc().
    auto* const pages = static_cast<volatile char*>(memory);
    for (std::size_t at = 0; at < bytes; at += kPage) pages[at] = 0;
    return {static_cast<char*>(memory), [](char* p) { std::free(p); }};
  }
  if (dl_alloc(comm, bytes, &memory) != DL_OK) throw std::bad_alloc();
  return {static_cast<char*>(memory), [comm](char* p) { dl_free(comm, p); }};
}

}  // namespace

const std::vector<std::string> kDtypeNames(std::begin(dlaunch::kDtypeNames),
                                           std::begin(dlaunch::kDtypeNames) + dlaunch::kRealDtypes);
const std::vector<std::string> kOpNames(std::begin(dlaunch::kOpNames),
                                        std::begin(dlaunch::kOpNames) + dlaunch::kOwnOps);

const std::vector<KindInfo>& kinds() {
  static const std::vector<KindInfo> all = {
      {Kind::all_reduce, "all_reduce", true, true, true, false, false, false},
      {Kind::reduce_scatter, "reduce_scatter", true, true, true, true, false, false},
      {Kind::all_gather, "all_gather", false, true, true, false, true, false},
      {Kind::broadcast, "broadcast", false, false, true, false, false, true},
      {Kind::reduce, "reduce", true, true, true, false, false, true},
      {Kind::gather, "gather", false, true, true, false, true, true},
      {Kind::scatter, "scatter", false, true, true, true, false, true},
      {Kind::all_to_all, "all_to_all", false, true, false, true, true, false},
      {Kind::sendrecv, "sendrecv", false, true, false, false, false, false},
      {Kind::barrier, "barrier", false, false, true, false, false, false},
  };
  return all;
}

const KindInfo& info(Kind kind) {
  for (const auto& known : kinds()) {
    if (known.kind == kind) return known;
  }
  return kinds().front();
}

const KindInfo* find_kind(std::string name) {
  constexpr std::string_view kSuffix = "_perf";
  if (name.ends_with(kSuffix)) name.resize(name.size() - kSuffix.size());
  if (name == "alltoall") name = "all_to_all";  // nccl-tests' spelling
  for (const auto& kind : kinds()) {
    if (name == kind.name) return &kind;
  }
  return nullptr;
}

Case make_case(Kind kind, dl_dtype dtype, dl_op op, int root, std::size_t bytes, int ranks) {
  Case c{kind, dtype, op, root, 0, 0};
  const std::size_t element = dl_dtype_bytes(dtype);
  const bool parts = info(kind).in_parts || info(kind).out_parts;
  const std::size_t unit = element * static_cast<std::size_t>(parts ? ranks : 1);
  c.count = kind == Kind::barrier ? 0 : bytes / unit;
  c.bytes = c.count * unit;
  return c;
}

double bus_factor(Kind kind, int ranks) { return dlaunch::bus_factor(info(kind).name, ranks); }

Buffers::Buffers(int rank, int ranks, std::size_t max_bytes, dl_comm* comm, bool on_gpu)
    : rank_(rank),
      ranks_(ranks),
      bytes_(max_bytes + 64),
      in_(make_memory(bytes_, comm)),
      out_(make_memory(bytes_, comm)) {
  if (!on_gpu) return;
  gpu_in_ = std::make_unique<GpuMemory>(bytes_);
  gpu_out_ = std::make_unique<GpuMemory>(bytes_);
}

// The collective's address for this address of a buffer.
void* Buffers::given(char* host) const {
  if (!gpu_in_) return host;
  const bool in = host >= in_.get() && host < in_.get() + bytes_;
  return in ? gpu_in_->get() + (host - in_.get()) : gpu_out_->get() + (host - out_.get());
}

// In place, the smaller of the two buffers is this rank's part of the larger one.
char* Buffers::output(const Case& c, bool in_place) {
  if (!in_place) return out_.get();
  const auto& kind = info(c.kind);
  const std::size_t part = c.count * dl_dtype_bytes(c.dtype) * static_cast<std::size_t>(rank_);
  return kind.in_parts && !kind.out_parts ? in_.get() + part : in_.get();
}

char* Buffers::input(const Case& c, bool in_place) {
  const auto& kind = info(c.kind);
  const std::size_t part = c.count * dl_dtype_bytes(c.dtype) * static_cast<std::size_t>(rank_);
  const bool in_output = in_place && kind.out_parts && !kind.in_parts;
  return in_output && gets_output(c) ? in_.get() + part : in_.get();
}

bool Buffers::gives_input(const Case& c) const {
  const bool from_root = c.kind == Kind::broadcast || c.kind == Kind::scatter;
  return !from_root || rank_ == c.root;
}

bool Buffers::gets_output(const Case& c) const {
  const bool to_root = c.kind == Kind::reduce || c.kind == Kind::gather;
  return !to_root || rank_ == c.root;
}

void Buffers::fill(const Case& c, bool in_place) {
  std::memset(out_.get(), 0x5a, c.bytes);
  if (in_place) std::memset(in_.get(), 0x5a, c.bytes);
  if (gives_input(c)) {
    const std::size_t parts = info(c.kind).in_parts ? static_cast<std::size_t>(ranks_) : 1;
    fill_from(input(c, in_place), input_period(c, rank_, ranks_), 0, c.count * parts,
              dl_dtype_bytes(c.dtype));
  }
  if (!gpu_in_) return;
  gpu_in_->write(in_.get());
  gpu_out_->write(out_.get());
}

Buffers::Given Buffers::given(const Case& c, bool in_place) {
  return {given(input(c, in_place)), given(output(c, in_place))};
}

dl_result Buffers::run(dl_comm* comm, const Case& c, bool in_place) {
  auto [in, out] = given(c, in_place);
  switch (c.kind) {
    case Kind::all_reduce:
      return dl_all_reduce(comm, in, out, c.count, c.dtype, c.op);
    case Kind::reduce_scatter:
      return dl_reduce_scatter(comm, in, out, c.count, c.dtype, c.op);
    case Kind::all_gather:
      return dl_all_gather(comm, in, out, c.count, c.dtype);
    case Kind::broadcast:
      return dl_broadcast(comm, in, c.count, c.dtype, c.root);
    case Kind::reduce:
      return dl_reduce(comm, in, out, c.count, c.dtype, c.op, c.root);
    case Kind::gather:
      return dl_gather(comm, in, out, c.count, c.dtype, c.root);
    case Kind::scatter:
      // In place on the root; the others write to the start.
      if (in_place && rank_ != c.root) out = given(in_.get());
      return dl_scatter(comm, in, out, c.count, c.dtype, c.root);
    case Kind::all_to_all:
      return dl_all_to_all(comm, in, out, c.count, c.dtype);
    case Kind::barrier:
      return dl_barrier(comm);
    case Kind::sendrecv:
      break;
  }
  return ranks_ == 1 ? DL_OK : send_around(comm, c, in, out);
}

// Sends to the next rank and receives from the one before. A large message, which a connection
// cannot hold, could wait for a receiver that itself still sends, so it goes in the background.
dl_result Buffers::send_around(dl_comm* comm, const Case& c, const void* in, void* out) {
  constexpr std::size_t kHeld = 64 << 10;
  const int next = (rank_ + 1) % ranks_, previous = (rank_ + ranks_ - 1) % ranks_;
  if (c.bytes <= kHeld) {
    const auto sent = dl_send(comm, in, c.count, c.dtype, next, 0);
    return sent != DL_OK ? sent : dl_recv(comm, out, c.count, c.dtype, previous, 0);
  }
  dl_request* requests[2] = {};
  auto done = dl_irecv(comm, out, c.count, c.dtype, previous, 0, &requests[0]);
  if (done == DL_OK) done = dl_isend(comm, in, c.count, c.dtype, next, 0, &requests[1]);
  for (dl_request*& request : requests) {
    if (request == nullptr) continue;
    const auto ended = dl_wait(&request);
    if (done == DL_OK) done = ended;
  }
  return done;
}

dl_result Buffers::start(dl_comm* comm, const Case& c, bool in_place, dl_request** request) {
  return dl_iall_reduce(comm, given(input(c, in_place)), given(output(c, in_place)), c.count,
                        c.dtype, c.op, request);
}

std::size_t Buffers::wrong(const Case& c, bool in_place) const {
  if (!gets_output(c)) return 0;
  if (gpu_in_) {
    gpu_in_->read(in_.get());
    gpu_out_->read(out_.get());
  }
  const std::size_t element = dl_dtype_bytes(c.dtype);
  const char* got = const_cast<Buffers*>(this)->output(c, in_place);
  const std::size_t own_part = c.count * static_cast<std::size_t>(rank_);
  // Compares c.count elements at part `part` of the output with rank `from`'s input from `first`
  // on.
  const auto differing_from = [&](int from, std::size_t part, std::size_t first) {
    return differing(got + part * c.count * element, input_period(c, from, ranks_), first, c.count,
                     element);
  };
  switch (c.kind) {
    case Kind::all_reduce:
    case Kind::reduce:
      return differing(got, result_period(c, ranks_), 0, c.count, element);
    case Kind::reduce_scatter:
      return differing(got, result_period(c, ranks_), own_part, c.count, element);
    case Kind::all_gather:
    case Kind::gather:
    case Kind::all_to_all: {
      std::size_t wrong = 0;
      const std::size_t first = c.kind == Kind::all_to_all ? own_part : 0;
      for (int r = 0; r < ranks_; ++r) {
        wrong += differing_from(r, static_cast<std::size_t>(r), first);
      }
      return wrong;
    }
    case Kind::scatter:
      if (in_place && rank_ != c.root) got = in_.get();
      return differing_from(c.root, 0, own_part);
    case Kind::broadcast:
      return differing(in_.get(), input_period(c, c.root, ranks_), 0, c.count, element);
    case Kind::sendrecv:
      if (ranks_ == 1) return 0;
      return differing_from((rank_ + ranks_ - 1) % ranks_, 0, 0);
    case Kind::barrier:
      return 0;
  }
  return 0;
}

}  // namespace bench
