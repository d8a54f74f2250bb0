#include "random_program.h"

#include <algorithm>
#include <numeric>

namespace random_ops {
namespace {

constexpr const char* kNames[] = {"all_reduce",
                                  "all_reduce_list",
                                  "all_reduce_shards",
                                  "all_reduce_some",
                                  "scan",
                                  "reduce",
                                  "reduce_scatter",
                                  "reduce_scatter_v",
                                  "broadcast",
                                  "broadcast_list",
                                  "all_gather",
                                  "all_gather_v",
                                  "gather",
                                  "gather_v",
                                  "scatter",
                                  "scatter_v",
                                  "all_to_all",
                                  "all_to_all_v",
                                  "barrier",
                                  "messages",
                                  "recv_any",
                                  "head_on",
                                  "split",
                                  "free",
                                  "compare"};
constexpr const char* kDtypes[] = {
    "int8",     "uint8",   "int32",   "uint32",    "int64",      "uint64",      "float16",
    "bfloat16", "float32", "float64", "complex64", "complex128", "float8_e4m3", "float8_e5m2"};
constexpr const char* kOps[] = {"sum", "product", "max", "min", "avg", "band", "bor", "bxor"};
constexpr const char* kFlavours[] = {"bits", "whole", "rounding", "special"};
constexpr std::size_t kMaxGroups = 6;
constexpr std::size_t kTensors = 6;

std::string op_name(dl_op op) {
  if (op == kPremul) return "premul_sum";
  return is_own(op) ? op == kOwnInOrder ? "function in order" : "function" : kOps[op];
}

std::string listed(const std::vector<std::size_t>& numbers) {
  std::string text;
  for (const auto n : numbers) text += (text.empty() ? "" : ",") + std::to_string(n);
  return text;
}

}  // namespace

bool reduces(Kind kind) { return kind <= Kind::reduce_scatter_v; }
bool rooted(Kind kind) {
  return kind == Kind::reduce || kind == Kind::broadcast || kind == Kind::broadcast_list ||
         kind == Kind::gather || kind == Kind::gather_v || kind == Kind::scatter ||
         kind == Kind::scatter_v;
}
bool in_parts_that_differ(Kind kind) {
  return kind == Kind::all_gather_v || kind == Kind::gather_v || kind == Kind::scatter_v ||
         kind == Kind::reduce_scatter_v;
}

std::string describe(const Step& step) {
  std::string text = "step " + std::to_string(step.number) + ": " + (step.later ? "i" : "") +
                     kNames[static_cast<int>(step.kind)] + " in group " +
                     std::to_string(step.group);
  if (step.kind == Kind::split || step.kind == Kind::free || step.kind == Kind::compare) {
    return text;
  }
  text += std::string(", ") + kDtypes[step.dtype];
  if (reduces(step.kind)) {
    text += std::string(" ") + op_name(step.op) + " " + kFlavours[static_cast<int>(step.flavour)];
  }
  text += ", count " + (step.counts.empty() ? std::to_string(step.count) : listed(step.counts));
  if (rooted(step.kind)) text += ", root " + std::to_string(step.root);
  for (const Letter& l : step.letters) {
    text += "; " + std::to_string(l.from) + (l.send_later ? " ~" : " -") +
            (l.receive_later ? "~> " : "-> ") + std::to_string(l.to) + " tag " +
            std::to_string(l.tag) + " count " + std::to_string(l.count);
  }
  return text;
}

Program::Program(const Shape& shape) : shape_(shape), random_(mix(shape.seed)) {
  std::vector<int> world(static_cast<std::size_t>(shape.ranks));
  std::iota(world.begin(), world.end(), 0);
  groups_.push_back(world);
  alive_.push_back(0);
}

Step Program::next() {
  Step step;
  step.number = number_++;
  step.key = random_.next();
  step.group = alive_[random_.chance(400) ? 0 : random_.below(alive_.size())];
  const bool alone = size_of(step.group) == 1;
  if (random_.chance(shape_.groups_permille)) return split(std::move(step));
  if (random_.chance(4)) {
    step.kind = Kind::compare;
    return step;
  }
  if (random_.chance(200) && !alone) return letters(std::move(step));
  return collective(std::move(step));
}

// Near the sizes at which the ways of moving data change, and anything between them.
std::size_t Program::any_bytes() {
  const auto ranks = static_cast<std::size_t>(shape_.ranks);
  const std::size_t choice = random_.below(1000);
  std::size_t bytes = 0;
  if (choice < 50) return 0;
  if (choice < 120) return 1;
  if (choice < 300) {
    bytes = 30 + random_.below(20);
  } else if (choice < 700) {
    bytes = random_.below(std::size_t{1} << (3 + random_.below(13)));
  } else if (choice < 850) {
    bytes = (std::size_t{8192} << random_.below(2)) - 20 + random_.below(40);
  } else if (choice < 980) {
    const std::size_t chunk = std::size_t{16384} << random_.below(5);
    bytes = chunk * (random_.chance(500) ? 1 : ranks) - 20 + random_.below(40);
  } else {
    bytes = random_.below(std::size_t{1} << (20 + random_.below(4)));
  }
  return std::min(bytes, shape_.max_bytes);
}

std::size_t Program::any_count(std::size_t bytes, dl_dtype dtype) {
  const std::size_t element = dl_dtype_bytes(dtype);
  return (bytes + element - 1) / element;
}

Step Program::collective(Step step) {
  step.kind = static_cast<Kind>(random_.under(static_cast<int>(Kind::barrier) + 1));
  step.dtype = static_cast<dl_dtype>(random_.under(14));
  const bool floats = is_float(step.dtype);
  const int ops = floats ? 5 : 8, chosen = random_.under(ops + (floats ? 3 : 2));
  constexpr dl_op kOthers[] = {kOwnInOrder, kOwnCommuting, kPremul};
  step.op = chosen < ops ? static_cast<dl_op>(chosen) : kOthers[chosen - ops];
  const bool some = step.kind == Kind::all_reduce_some;
  if (some && step.op != DL_AVG) step.op = DL_SUM;
  if (some && step.dtype > DL_COMPLEX128) step.dtype = DL_FLOAT32;
  if (reduces(step.kind) && floats) step.flavour = static_cast<Flavour>(1 + random_.under(3));
  const bool is_complex = step.dtype == DL_COMPLEX64 || step.dtype == DL_COMPLEX128;
  if (is_complex && (step.op == DL_MAX || step.op == DL_MIN)) step.op = DL_SUM;
  const bool ordered =
      step.op == DL_SUM || step.op == DL_AVG || step.op == DL_PRODUCT || step.op == kPremul;
  if (shape_.any_order && floats && ordered) step.flavour = Flavour::whole;
  // Their partial results are rounded; here only the order of ranks is judged.
  const bool composed = step.kind == Kind::all_reduce_shards || step.kind == Kind::scan || some;
  if (composed && floats) step.flavour = Flavour::whole;
  if (step.kind == Kind::scan && step.op == DL_AVG) step.op = DL_SUM;
  // Few whole numbers are exact in 8 bits.
  const bool tiny = step.dtype == DL_FLOAT8_E4M3 || step.dtype == DL_FLOAT8_E5M2;
  if (tiny && ordered && (composed || shape_.any_order)) step.op = DL_MAX;
  // The order of factors decides the sign of a complex zero.
  const bool turned = composed || shape_.any_order;
  if (is_complex && step.op == DL_PRODUCT && turned) step.op = DL_SUM;
  const auto ranks = members(step.group).size();
  // Even products of whole numbers are rounded in bfloat16 from five factors on.
  constexpr std::size_t kExactFactors = 4;
  if (composed && floats && step.op == DL_PRODUCT && ranks > kExactFactors) step.op = DL_SUM;
  step.root = random_.under(static_cast<int>(ranks));
  step.later = !some && random_.chance(300);
  std::size_t bytes = any_bytes();
  // For the whole or for a rank's part.
  if (random_.chance(500) || bytes > (1 << 20)) bytes /= ranks;
  step.count = any_count(bytes, step.dtype);
  const bool by_pair = step.kind == Kind::all_to_all_v;
  const bool list = step.kind == Kind::all_reduce_list || step.kind == Kind::broadcast_list;
  const std::size_t parts = in_parts_that_differ(step.kind) ? ranks
                            : by_pair                       ? ranks * ranks
                            : list                          ? random_.below(kTensors)
                                                            : 0;
  for (std::size_t i = 0; i < parts; ++i) {
    step.counts.push_back(random_.chance(150) ? 0 : random_.below(step.count + 2));
  }
  if (list) step.count = std::accumulate(step.counts.begin(), step.counts.end(), std::size_t{0});
  return step;
}

Step Program::letters(Step step) {
  const int ranks = size_of(step.group);
  step.dtype = static_cast<dl_dtype>(random_.under(14));
  const std::size_t choice = random_.below(10);
  step.kind = choice < 7 ? Kind::messages : choice < 9 ? Kind::recv_any : Kind::head_on;
  const auto count = [&] { return any_count(any_bytes(), step.dtype); };
  if (step.kind == Kind::messages) {
    for (std::size_t i = 1 + random_.below(6); i > 0; --i) {
      const int from = random_.under(ranks), to = (from + 1 + random_.under(ranks - 1)) % ranks;
      step.letters.push_back(
          {from, to, random_.under(3), count(), random_.chance(400), random_.chance(400)});
    }
    return step;
  }
  // Their tags belong to this step only: the ranks may be in different steps.
  const int tag = 10 + static_cast<int>(step.number % 1'000'000'000);
  const int target = random_.under(ranks);
  const std::size_t same = count();
  const bool later = random_.chance(500);
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      if (from == to || (step.kind == Kind::recv_any && to != target)) continue;
      step.letters.push_back({from, to, tag, same, random_.chance(300), later});
    }
  }
  return step;
}

Step Program::split(Step step) {
  if (alive_.size() >= kMaxGroups || (alive_.size() > 1 && random_.chance(450))) {
    const std::size_t victim = 1 + random_.below(alive_.size() - 1);
    step.kind = Kind::free;
    step.group = alive_[victim];
    alive_.erase(alive_.begin() + static_cast<std::ptrdiff_t>(victim));
    return step;
  }
  step.kind = Kind::split;
  const int colors = 1 + random_.under(3), negative = random_.chance(500) ? 0 : 300;
  std::map<int, std::vector<std::pair<int, int>>> chosen;  // key and world rank, by color
  for (const int rank : members(step.group)) {
    const int color = random_.chance(negative) ? -1 : random_.under(colors);
    step.colors.push_back(color);
    step.keys.push_back(random_.under(3) - 1);
    if (color >= 0) chosen[color].push_back({step.keys.back(), rank});
  }
  for (auto& [color, ranks] : chosen) {
    std::stable_sort(ranks.begin(), ranks.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    step.made[color] = static_cast<int>(groups_.size());
    alive_.push_back(step.made[color]);
    groups_.emplace_back();
    for (const auto& [key, rank] : ranks) groups_.back().push_back(rank);
  }
  return step;
}

}  // namespace random_ops
