#include "random_task.h"

#include <cstring>
#include <iterator>
#include <numeric>

namespace random_ops {
namespace {

constexpr char kGuard = 0x77;
constexpr std::size_t kMargin = 64;
constexpr std::size_t kSharedSlots = 8;

bool is_list(Kind kind) { return kind == Kind::all_reduce_list || kind == Kind::broadcast_list; }
bool is_broadcast(Kind kind) { return kind == Kind::broadcast || kind == Kind::broadcast_list; }
bool takes_at_root(Kind kind) {
  return kind == Kind::reduce || kind == Kind::gather || kind == Kind::gather_v;
}
bool scatters(Kind kind) {
  return kind == Kind::reduce_scatter || kind == Kind::reduce_scatter_v || kind == Kind::scatter ||
         kind == Kind::scatter_v;
}
bool gathers(Kind kind) { return kind >= Kind::all_gather && kind <= Kind::gather_v; }

std::size_t total(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

// Some of the buffers of a step lie in memory of dl_alloc(): in every third step all, in every
// third some.
Source source_for(const Step& step, Arena& arena, Random& random) {
  constexpr int kShares[] = {0, 500, 1000};
  return {arena, random, kShares[mix(step.key + 7) % std::size(kShares)]};
}

}  // namespace

Arena::Arena(void* shared, std::size_t bytes) : slot_bytes_(bytes / kSharedSlots) {
  for (std::size_t i = 0; shared != nullptr && i < kSharedSlots; ++i) {
    free_.push_back(static_cast<char*>(shared) + i * slot_bytes_);
  }
}

std::shared_ptr<char> Arena::take(std::size_t bytes, int permille, Random& random) {
  if (!random.chance(permille) || free_.empty() || bytes > slot_bytes_) {
    return {new char[bytes], std::default_delete<char[]>()};
  }
  char* const slot = free_.back();
  free_.pop_back();
  return {slot, [this](char* p) { free_.push_back(p); }};
}

Buffer::Buffer(const std::vector<std::size_t>& counts, std::size_t element, const Source& source)
    : counts_(counts), element_(element) {
  std::size_t end = kMargin;
  for (const std::size_t count : counts) {
    end += source.random.below(64 / element) * element;
    at_.push_back(end);
    end += count * element;
  }
  size_ = end + kMargin;
  bytes_ = source.arena.take(size_, source.shared_permille, source.random);
  std::memset(bytes_.get(), kGuard, size_);
}

bool Buffer::surroundings_intact() const {
  std::size_t i = 0;
  for (std::size_t p = 0; p <= at_.size(); ++p) {
    const std::size_t end = p < at_.size() ? at_[p] : size_;
    for (; i < end; ++i) {
      if (bytes_.get()[i] != kGuard) return false;
    }
    if (p < at_.size()) i += counts_[p] * element_;
  }
  return true;
}

Task::Task(const Step& step, int own, int ranks, Arena& arena, Random& random)
    : step_(step), own_(own), ranks_(ranks), element_(dl_dtype_bytes(step.dtype)) {
  for (int r = 0; r < ranks; ++r) {
    inputs_.push_back(mix(step.key + static_cast<std::uint64_t>(r)));
  }
  in_place_ = is_broadcast(step.kind) || (random.chance(400) && may_be_in_place());
  lay_out(source_for(step, arena, random));
  fill_input();
}

Task::Task(const Step& step, std::size_t i, bool sends, Arena& arena, Random& random)
    : step_(step),
      own_(sends ? step.letters[i].from : step.letters[i].to),
      ranks_(1),
      letter_(&step_.letters[i]),
      sends_(sends),
      source_(step.letters[i].from),
      element_(dl_dtype_bytes(step.dtype)) {
  // By sender if the receiver learns the sender, else by letter.
  const auto which = step.kind == Kind::messages ? i : static_cast<std::size_t>(letter_->from);
  inputs_.push_back(mix(step.key + which));
  (sends ? in_ : out_) = std::make_unique<Buffer>(std::vector<std::size_t>{letter_->count},
                                                  element_, source_for(step, arena, random));
  if (sends) {
    in_at_ = {in_->piece(0)};
    fill(in_at_[0], inputs_[0], 0, letter_->count, step.dtype, step.flavour);
  } else {
    out_at_ = {out_->piece(0)};
  }
}

std::string Task::what() const {
  std::string text = describe(step_) + (in_place_ ? ", in place" : "");
  if (letter_ != nullptr) {
    text += sends_ ? ", sending to " : ", receiving from ";
    text += std::to_string(sends_ ? letter_->to : letter_->from) + " tag " +
            std::to_string(letter_->tag);
  }
  return text;
}

std::size_t Task::part(int rank) const {
  return in_parts_that_differ(step_.kind) ? step_.counts[static_cast<std::size_t>(rank)]
                                          : step_.count;
}

// What each rank gives to, or takes from, `rank` in an all_to_all_v.
std::vector<std::size_t> Task::row(int rank) const {
  const auto first = step_.counts.begin() + static_cast<std::ptrdiff_t>(rank) * ranks_;
  return {first, first + ranks_};
}
std::vector<std::size_t> Task::column(int rank) const {
  std::vector<std::size_t> counts;
  for (int r = 0; r < ranks_; ++r) counts.push_back(row(r)[static_cast<std::size_t>(rank)]);
  return counts;
}

std::size_t Task::before(int rank) const {
  std::size_t sum = 0;
  for (int r = 0; r < rank; ++r) sum += part(r);
  return sum;
}

std::size_t Task::bytes() const {
  return (letter_ != nullptr ? letter_->count : total(given()) + total(taken())) * element_;
}

std::vector<std::size_t> Task::given() const {
  const auto all = step_.count * static_cast<std::size_t>(ranks_);
  switch (step_.kind) {
    case Kind::reduce_scatter:
    case Kind::all_to_all:
      return {all};
    case Kind::reduce_scatter_v:
      return {before(ranks_)};
    case Kind::all_to_all_v:
      return {total(row(own_))};
    case Kind::scatter:
    case Kind::scatter_v:
      return {own_ == step_.root ? before(ranks_) : 0};
    case Kind::all_reduce_list:
    case Kind::broadcast_list:
      return step_.counts;
    case Kind::barrier:
      return {0};
    default:
      return {part(own_)};
  }
}

std::vector<std::size_t> Task::taken() const {
  if (takes_at_root(step_.kind) && own_ != step_.root) return {0};
  if (gathers(step_.kind)) return {before(ranks_)};
  switch (step_.kind) {
    case Kind::all_to_all:
      return {step_.count * static_cast<std::size_t>(ranks_)};
    case Kind::all_to_all_v:
      return {total(column(own_))};
    case Kind::all_reduce_list:
    case Kind::broadcast_list:
      return step_.counts;
    case Kind::barrier:
      return {0};
    case Kind::reduce_scatter_v:
    case Kind::scatter_v:
      return {part(own_)};
    default:
      return {step_.count};
  }
}

// Whether the operation has two buffers at all.
bool Task::may_be_in_place() const {
  const bool crosses = step_.kind == Kind::all_to_all || step_.kind == Kind::all_to_all_v;
  return !crosses && total(given()) > 0 && total(taken()) > 0;
}

void Task::lay_out(const Source& source) {
  const auto in = given(), out = taken();
  const bool outer = total(out) > total(in);
  if (!in_place_ || !outer) in_ = std::make_unique<Buffer>(in, element_, source);
  if (!in_place_ || outer) out_ = std::make_unique<Buffer>(out, element_, source);
  for (std::size_t i = 0; in_ && i < in_->pieces(); ++i) in_at_.push_back(in_->piece(i));
  for (std::size_t i = 0; out_ && i < out_->pieces(); ++i) out_at_.push_back(out_->piece(i));
  if (in_place_) place_inside();
  // Empty pieces may be at no address.
  if (source.random.chance(500) && total(in) == 0) in_at_.assign(in_at_.size(), nullptr);
  if (source.random.chance(500) && total(out) == 0) out_at_.assign(out_at_.size(), nullptr);
}

// The smaller buffer is the own part of the larger one.
void Task::place_inside() {
  if (!in_) {
    in_at_ = {out_at_[0] + before(own_) * element_};
  } else {
    out_at_ = in_at_;
    if (scatters(step_.kind)) out_at_[0] += before(own_) * element_;
  }
}

void Task::fill_input() {
  if (is_broadcast(step_.kind) && own_ != step_.root) return;
  const auto lengths = given();
  const std::uint64_t key = inputs_[static_cast<std::size_t>(own_)];
  std::size_t first = 0;
  for (std::size_t i = 0; i < lengths.size(); first += lengths[i++]) {
    fill(in_at_[i], key, first, lengths[i], step_.dtype, step_.flavour);
  }
}

std::vector<char> Task::wanted() const {
  const std::size_t count = letter_ != nullptr ? letter_->count : total(taken());
  std::vector<char> bytes(count * element_);
  char* to = bytes.data();
  const auto add = [&](std::uint64_t key, std::size_t first, std::size_t n) {
    fill(to, key, first, n, step_.dtype, step_.flavour);
    to += n * element_;
  };
  const std::size_t own = before(own_);
  if (count == 0) return bytes;
  if (letter_ != nullptr) {
    add(inputs_[0], 0, count);
  } else if (reduces(step_.kind)) {
    const std::size_t first = scatters(step_.kind) ? own : 0;
    auto reduced = inputs_;
    if (step_.kind == Kind::scan) reduced.resize(static_cast<std::size_t>(own_) + 1);
    fill_reduced(to, reduced, first, count, step_.dtype, step_.op, step_.flavour);
  } else if (is_broadcast(step_.kind)) {
    add(inputs_[static_cast<std::size_t>(step_.root)], 0, count);
  } else if (scatters(step_.kind)) {
    add(inputs_[static_cast<std::size_t>(step_.root)], own, count);
  } else if (step_.kind == Kind::all_to_all_v) {
    for (int r = 0; r < ranks_; ++r) {
      const auto lengths = row(r);
      const auto begin = lengths.begin();
      add(inputs_[static_cast<std::size_t>(r)],
          std::accumulate(begin, begin + own_, std::size_t{0}),
          lengths[static_cast<std::size_t>(own_)]);
    }
  } else {
    const bool swaps = step_.kind == Kind::all_to_all;
    for (int r = 0; r < ranks_; ++r) {
      add(inputs_[static_cast<std::size_t>(r)], swaps ? own : 0, part(r));
    }
  }
  return bytes;
}

std::string Task::judge_output() {
  const auto want = wanted();
  const auto lengths = letter_ != nullptr ? std::vector{letter_->count} : taken();
  const dl_op* const op = reduces(step_.kind) && !is_own(step_.op) ? &step_.op : nullptr;
  const char* at = want.data();
  for (std::size_t i = 0; i < lengths.size(); at += lengths[i++] * element_) {
    const auto wrong = difference(out_at_[i], at, lengths[i], step_.dtype, op);
    if (!wrong.empty()) return "piece " + std::to_string(i) + ", " + wrong;
  }
  return "";
}

std::string Task::judge() {
  if (!out_at_.empty()) {
    if (auto wrong = judge_output(); !wrong.empty()) return wrong;
  }
  for (const auto* buffer : {in_.get(), out_.get()}) {
    if (buffer != nullptr && !buffer->surroundings_intact()) return "written beside the buffer";
  }
  if (!in_ || in_place_) return "";
  std::vector<char> same;
  const auto lengths = letter_ != nullptr ? std::vector{letter_->count} : given();
  const std::uint64_t key =
      letter_ != nullptr ? inputs_[0] : inputs_[static_cast<std::size_t>(own_)];
  std::size_t first = 0;
  for (std::size_t i = 0; i < lengths.size(); first += lengths[i++]) {
    same.resize(lengths[i] * element_);
    fill(same.data(), key, first, lengths[i], step_.dtype, step_.flavour);
    const auto wrong = difference(in_at_[i], same.data(), lengths[i], step_.dtype, nullptr);
    if (!wrong.empty()) return "the input has changed: " + wrong;
  }
  return "";
}

std::uint64_t Task::digest() {
  std::uint64_t sum = step_.key;
  const auto lengths = taken();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    for (std::size_t b = 0; b < lengths[i] * element_; ++b) {
      sum = (sum ^ static_cast<unsigned char>(out_at_[i][b])) * 0x100000001b3;
    }
  }
  return mix(sum);
}

dl_result Task::start(dl_comm* comm, bool later) {
  if (letter_ != nullptr) return start_letter(comm, later);
  return is_list(step_.kind) ? start_list(comm, later) : start_collective(comm, later);
}

// The call or its twin in the background.
#define START(name, ...) (later ? dl_i##name(__VA_ARGS__, &request) : dl_##name(__VA_ARGS__))

dl_result Task::start_letter(dl_comm* comm, bool later) {
  const Letter& l = *letter_;
  if (sends_) return START(send, comm, in_at_[0], l.count, step_.dtype, l.to, l.tag);
  if (step_.kind != Kind::recv_any) {
    return START(recv, comm, out_at_[0], l.count, step_.dtype, l.from, l.tag);
  }
  return START(recv_any, comm, out_at_[0], l.count, step_.dtype, l.tag, &source_);
}

dl_result Task::start_list(dl_comm* comm, bool later) {
  // The arrays need not outlive the call.
  const auto counts = step_.counts;
  const std::vector<const void*> in(in_at_.begin(), in_at_.end());
  const std::vector<void*> out(out_at_.begin(), out_at_.end());
  const auto dtype = step_.dtype;
  if (step_.kind == Kind::broadcast_list) {
    return START(broadcast_list, comm, out.size(), out.data(), counts.data(), dtype, step_.root);
  }
  return START(all_reduce_list, comm, out.size(), in.data(), out.data(), counts.data(), dtype,
               made_op(step_.op, own_));
}

dl_result Task::start_collective(dl_comm* comm, bool later) {
  const void* const in = in_at_[0];
  void* const out = out_at_[0];
  const auto count = step_.count;
  const auto dtype = step_.dtype;
  const auto counts = step_.counts;
  const int root = step_.root;
  switch (step_.kind) {
    case Kind::all_reduce:
      return START(all_reduce, comm, in, out, count, dtype, made_op(step_.op, own_));
    case Kind::all_reduce_shards:
      return START(all_reduce_shards, comm, ranks_, &in, out, count, dtype,
                   made_op(step_.op, own_));
    case Kind::all_reduce_some: {
      dl_some_options options;
      dl_some_options_init(&options);
      options.need = ranks_;
      return dl_all_reduce_some(comm, in, out, count, dtype, step_.op, &options, nullptr, nullptr);
    }
    case Kind::scan:
      return START(scan, comm, in, out, count, dtype, made_op(step_.op, own_));
    case Kind::reduce:
      return START(reduce, comm, in, out, count, dtype, made_op(step_.op, own_), root);
    case Kind::reduce_scatter:
      return START(reduce_scatter, comm, in, out, count, dtype, made_op(step_.op, own_));
    case Kind::reduce_scatter_v:
      return START(reduce_scatter_v, comm, in, out, counts.data(), dtype, made_op(step_.op, own_));
    case Kind::broadcast:
      return START(broadcast, comm, out, count, dtype, root);
    case Kind::all_gather:
      return START(all_gather, comm, in, out, count, dtype);
    case Kind::all_gather_v:
      return START(all_gather_v, comm, in, out, counts.data(), dtype);
    case Kind::gather:
      return START(gather, comm, in, out, count, dtype, root);
    case Kind::gather_v:
      return START(gather_v, comm, in, out, counts.data(), dtype, root);
    case Kind::scatter:
      return START(scatter, comm, in, out, count, dtype, root);
    case Kind::scatter_v:
      return START(scatter_v, comm, in, out, counts.data(), dtype, root);
    case Kind::all_to_all:
      return START(all_to_all, comm, in, out, count, dtype);
    case Kind::all_to_all_v: {
      const auto to = row(own_), from = column(own_);
      return START(all_to_all_v, comm, in, to.data(), out, from.data(), dtype);
    }
    default:
      return START(barrier, comm);
  }
}

#undef START

}  // namespace random_ops
