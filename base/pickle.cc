#include "base/pickle.h"

#include <bit>
#include <map>
#include <optional>
#include <utility>

namespace dlaunch {
namespace {

// They take 80 MiB.
constexpr std::size_t kMaxValues = 1 << 20;

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    number |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return number;
}

// Of 0 to 8 bytes in two's complement.
std::int64_t signed_number(std::string_view bytes) {
  if (bytes.empty()) return 0;
  const int unused = static_cast<int>(64 - 8 * bytes.size());
  return static_cast<std::int64_t>(little_endian(bytes) << unused) >> unused;
}

}  // namespace

// The machine that pickle's opcodes drive: a stack of values with marks, and a memo.
class PickleReader {
 public:
  explicit PickleReader(std::string_view bytes) : rest_(bytes) {}

  Result<Pickle> read() {
    while (!ended_) {
      const auto opcode = take(1);
      if (opcode.empty() || !step(static_cast<unsigned char>(opcode[0]))) {
        return protocol_error("a pickle that is damaged, or no plain data");
      }
    }
    return std::move(pickle_);
  }

 private:
  using Kind = PickleValue::Kind;

  bool step(unsigned char opcode);
  bool push_scalar(unsigned char opcode);
  bool build(unsigned char opcode);
  bool use_memo(unsigned char opcode);

  // Empty: there are not so many.
  std::string_view take(std::size_t count) {
    if (count > rest_.size()) return {};
    const auto taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  // A number of `bytes` bytes.
  std::optional<std::uint64_t> number(std::size_t bytes) {
    const auto taken = take(bytes);
    if (taken.size() != bytes) return std::nullopt;
    return little_endian(taken);
  }
  bool push(PickleValue value) {
    if (pickle_.values_.size() >= kMaxValues || stack_.size() >= kMaxValues) return false;
    stack_.push_back(static_cast<std::uint32_t>(pickle_.values_.size()));
    pickle_.values_.push_back(std::move(value));
    return true;
  }
  bool push_integer(Kind kind, std::int64_t value) {
    return push({.kind = kind, .number = value, .real_number = 0, .words = {}, .items = {}});
  }
  bool push_empty(Kind kind) { return push_integer(kind, 0); }
  bool push_signed(std::size_t bytes) {
    const auto taken = take(bytes);
    return taken.size() == bytes && push_integer(Kind::integer, signed_number(taken));
  }
  bool push_text(std::size_t length_bytes) {
    const auto length = number(length_bytes);
    if (!length || *length > rest_.size()) return false;
    PickleValue value{.kind = Kind::text, .number = 0, .real_number = 0, .words = {}, .items = {}};
    value.words = take(static_cast<std::size_t>(*length));
    return push(std::move(value));
  }
  bool push_tuple(std::size_t count) {
    if (stack_.size() < count) return false;
    const std::vector<std::uint32_t> items(stack_.end() - static_cast<std::ptrdiff_t>(count),
                                           stack_.end());
    stack_.resize(stack_.size() - count);
    if (!push_empty(Kind::list)) return false;
    pickle_.values_[stack_.back()].items = items;
    return true;
  }
  // Moves the last `count` values into the list or dict below them.
  bool add(std::size_t count) {
    if (stack_.size() < count + 1) return false;
    PickleValue& into = pickle_.values_[stack_[stack_.size() - count - 1]];
    if (into.kind != Kind::list && into.kind != Kind::dict) return false;
    if (into.kind == Kind::dict && count % 2 != 0) return false;
    if (into.items.size() + count > kMaxValues) return false;
    into.items.insert(into.items.end(), stack_.end() - static_cast<std::ptrdiff_t>(count),
                      stack_.end());
    stack_.resize(stack_.size() - count);
    return true;
  }
  // How many values stand above the last mark, which goes.
  std::optional<std::size_t> above_mark() {
    if (marks_.empty() || marks_.back() > stack_.size()) return std::nullopt;
    const std::size_t count = stack_.size() - marks_.back();
    marks_.pop_back();
    return count;
  }

  std::string_view rest_;
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint64_t, std::uint32_t> memo_;
  Pickle pickle_;
  bool ended_ = false;
};

bool PickleReader::step(unsigned char opcode) {
  switch (opcode) {
    case 0x80:  // PROTO
      return number(1).has_value();
    case 0x95:  // FRAME
      return number(8).has_value();
    case '.':  // STOP
      if (stack_.empty()) return false;
      pickle_.root_ = stack_.back();
      ended_ = true;
      return true;
    case '(':  // MARK
      marks_.push_back(stack_.size());
      return marks_.size() < kMaxValues;
    case 'q':
    case 'r':
    case 'h':
    case 'j':
    case 0x94:
      return use_memo(opcode);
    case ')':
    case 0x85:
    case 0x86:
    case 0x87:
    case 't':
    case 'a':
    case 'e':
    case 's':
    case 'u':
      return build(opcode);
    default:
      return push_scalar(opcode);
  }
}

bool PickleReader::push_scalar(unsigned char opcode) {
  switch (opcode) {
    case 'N':
      return push_empty(Kind::none);
    case 0x88:
      return push_integer(Kind::boolean, 1);  // NEWTRUE
    case 0x89:
      return push_integer(Kind::boolean, 0);  // NEWFALSE
    case ']':
      return push_empty(Kind::list);
    case '}':
      return push_empty(Kind::dict);
    case 'J':
      return push_signed(4);  // BININT
    case 'K':
    case 'M': {  // BININT1, BININT2
      const auto value = number(opcode == 'K' ? 1 : 2);
      return value && push_integer(Kind::integer, static_cast<std::int64_t>(*value));
    }
    case 0x8a: {  // LONG1
      const auto length = number(1);
      return length && *length <= 8 && push_signed(static_cast<std::size_t>(*length));
    }
    case 'G': {  // BINFLOAT, big-endian
      std::string bytes(take(8));
      if (bytes.size() != 8) return false;
      const std::string reversed(bytes.rbegin(), bytes.rend());
      return push({.kind = Kind::real,
                   .number = 0,
                   .real_number = std::bit_cast<double>(little_endian(reversed)),
                   .words = {},
                   .items = {}});
    }
    case 'X':
      return push_text(4);  // BINUNICODE
    case 0x8c:
      return push_text(1);  // SHORT_BINUNICODE
    case 0x8d:
      return push_text(8);  // BINUNICODE8
    default:
      return false;
  }
}

bool PickleReader::build(unsigned char opcode) {
  switch (opcode) {
    case ')':
      return push_tuple(0);
    case 0x85:
      return push_tuple(1);
    case 0x86:
      return push_tuple(2);
    case 0x87:
      return push_tuple(3);
    case 'a':
      return add(1);
    case 's':
      return add(2);
    default: {
      const auto count = above_mark();
      return count && (opcode == 't' ? push_tuple(*count) : add(*count));
    }
  }
}

bool PickleReader::use_memo(unsigned char opcode) {
  if (opcode == 0x94) {  // MEMOIZE
    if (stack_.empty()) return false;
    memo_[memo_.size()] = stack_.back();
    return memo_.size() <= kMaxValues;
  }
  const auto place = number(opcode == 'q' || opcode == 'h' ? 1 : 4);
  if (!place) return false;
  if (opcode == 'q' || opcode == 'r') {  // BINPUT, LONG_BINPUT
    if (stack_.empty()) return false;
    memo_[*place] = stack_.back();
    return memo_.size() <= kMaxValues;
  }
  const auto known = memo_.find(*place);
  if (known == memo_.end() || stack_.size() >= kMaxValues) return false;
  stack_.push_back(known->second);
  return true;
}

Result<Pickle> Pickle::read(std::string_view bytes) { return PickleReader(bytes).read(); }

std::vector<const PickleValue*> Pickle::items(const PickleValue& list) const {
  std::vector<const PickleValue*> found;
  if (list.kind != PickleValue::list) return found;
  for (const auto item : list.items) found.push_back(&values_[item]);
  return found;
}

const PickleValue* Pickle::find(const PickleValue& dict, std::string_view key) const {
  if (dict.kind != PickleValue::dict) return nullptr;
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue& name = values_[dict.items[i]];
    if (name.kind == PickleValue::text && name.words == key) return &values_[dict.items[i + 1]];
  }
  return nullptr;
}

std::string_view Pickle::text(const PickleValue& dict, std::string_view key) const {
  const PickleValue* const value = find(dict, key);
  return value == nullptr ? std::string_view() : std::string_view(value->words);
}

std::int64_t Pickle::integer(const PickleValue& dict, std::string_view key,
                             std::int64_t otherwise) const {
  const PickleValue* const value = find(dict, key);
  const bool fits = value != nullptr &&
                    (value->kind == PickleValue::integer || value->kind == PickleValue::boolean);
  return fits ? value->number : otherwise;
}

}  // namespace dlaunch
