#include "ring/sites/outer_merge.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/codec.h"
#include "ring/kernels/hash.h"

namespace dlaunch {
namespace {

constexpr std::size_t kHeadBytes = 64;              // of a payload; its values stay aligned
constexpr std::uint32_t kPayloadMark = 0x316d6c64;  // "dlm1"
constexpr std::size_t kStateBytes = 128;
constexpr std::uint32_t kStateMark = 0x31736c64;  // "dls1"

// What the steps handle at a time, so that it stays in a cache.
constexpr std::size_t kMergePiece = 4096;
static_assert(kMergePiece % kCodecUnit == 0);
using MergePiece = std::array<float, kMergePiece>;

Error not_so(Errc code, std::string what) { return Error{.code = code, .what = std::move(what)}; }

std::string padded(std::string head, std::size_t bytes) {
  head.resize(bytes);
  return head;
}

// Every bit of a word changes half of all bits.
class Mix {
 public:
  explicit Mix(std::uint64_t before = kHashOfNothing) : hash_(before) {}
  void add(std::uint64_t word) {
    hash_ = std::rotl(hash_ ^ word, 29) * 0x9e3779b97f4a7c15;
    hash_ ^= hash_ >> 32;
  }
  void add(std::string_view bytes) { add_rest(add_words(bytes)); }
  // Returns the bytes behind the last whole word.
  std::string_view add_words(std::string_view bytes) {
    for (; bytes.size() >= sizeof(std::uint64_t); bytes.remove_prefix(sizeof(std::uint64_t))) {
      std::uint64_t word;
      std::memcpy(&word, bytes.data(), sizeof word);
      add(word);
    }
    return bytes;
  }
  void add_rest(std::string_view bytes) {
    std::uint64_t rest = bytes.size();
    for (const char c : bytes) rest = rest << 8 | static_cast<unsigned char>(c);
    add(rest);
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_;
};

std::string_view as_bytes(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

template <class Body>
void in_pieces(std::size_t count, Body body) {
  for (std::size_t at = 0; at < count; at += kMergePiece)
    body(at, std::min(kMergePiece, count - at));
}

std::string in_words(const MergeHead& head) {
  return fmt::format("fragment {} after {} steps", head.fragment, head.steps);
}

void mean_of(const std::vector<std::string_view>& payloads, WireCodec codec,
             std::span<float> values) {
  MergePiece one;
  const auto number = static_cast<float>(payloads.size());
  in_pieces(values.size(), [&](std::size_t at, std::size_t count) {
    float* const sum = values.data() + at;
    std::fill_n(sum, count, 0.0F);
    for (const std::string_view payload : payloads) {
      const char* const from = payload.data() + kHeadBytes + encoded_bytes(codec, at);
      decode_floats(codec, reinterpret_cast<const std::byte*>(from), count, one.data());
      for (std::size_t i = 0; i < count; ++i) sum[i] += one[i];
    }
    for (std::size_t i = 0; i < count; ++i) sum[i] /= number;
  });
}

}  // namespace

std::size_t payload_bytes(WireCodec codec, std::size_t values) {
  return kHeadBytes + encoded_bytes(codec, values);
}

std::string encode_payload(const MergeHead& head, WireCodec codec, std::span<const float> values,
                           float* lost) {
  Writer out;
  out.put(kPayloadMark);
  out.put(head.fragment);
  out.put(head.common);
  out.put(head.steps);
  out.put(head.finishing);
  std::string payload = padded(out.take(), payload_bytes(codec, values.size()));
  MergePiece back;
  in_pieces(values.size(), [&](std::size_t at, std::size_t count) {
    auto* const to =
        reinterpret_cast<std::byte*>(payload.data() + kHeadBytes + encoded_bytes(codec, at));
    encode_floats(codec, values.data() + at, count, to);
    if (lost == nullptr) return;
    decode_floats(codec, to, count, back.data());
    for (std::size_t i = 0; i < count; ++i) {
      const float rest = values[at + i] - back[i];
      lost[at + i] = std::isfinite(rest) ? rest : 0.0F;
    }
  });
  return payload;
}

Result<MergeHead> head_of(std::string_view payload) {
  Reader in(payload.substr(0, kHeadBytes));
  const bool marked = in.get<std::uint32_t>() == kPayloadMark;
  MergeHead head;
  head.fragment = in.get<std::uint32_t>();
  head.common = in.get<std::uint64_t>();
  head.steps = in.get<std::uint64_t>();
  head.finishing = in.get<std::uint32_t>();
  if (marked && in.ok() && payload.size() >= kHeadBytes) return head;
  return not_so(Errc::protocol, "it is not a contribution to a merge");
}

Result<MergeHead> average_payloads(const std::vector<std::string_view>& payloads,
                                   const std::vector<std::string>& names, WireCodec codec,
                                   OuterState& state, std::uint64_t common) {
  MergeHead first;
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    auto head = head_of(payloads[i]);
    if (!head) return not_so(head.error().code, "site " + names[i] + ": " + head.error().what);
    if (head->common != common) {
      return not_so(
          Errc::mismatch,
          fmt::format("site {} has an outer optimizer with other options or tensors", names[i]));
    }
    if (i == 0) first = *head;
    if (*head != first) {
      return not_so(Errc::mismatch, fmt::format("site {} gives {}, and site {} gives {}", names[0],
                                                in_words(first), names[i], in_words(*head)));
    }
    const auto fragment = static_cast<int>(head->fragment);
    if (fragment < 0 || fragment >= state.fragments() ||
        payloads[i].size() != payload_bytes(codec, state.gradient(fragment).size())) {
      return not_so(Errc::protocol, fmt::format("site {} gives {} bytes for {}", names[i],
                                                payloads[i].size(), in_words(*head)));
    }
  }
  if (payloads.empty()) return not_so(Errc::protocol, "a merge has no contributions");
  mean_of(payloads, codec, state.gradient(static_cast<int>(first.fragment)));
  return first;
}

void apply_merge(OuterState& state, const MergeId& id, const MergeHead& head) {
  state.move_anchor(static_cast<int>(head.fragment));
  OuterCounts& counts = state.counts();
  counts.epoch = id.epoch;
  counts.merges = id.number;
  counts.merged = head.steps;
  counts.finishing = head.finishing;
}

std::uint64_t hash_of_state(const OuterState& state) {
  const std::array<std::uint64_t, 2> place{state.counts().merges, state.counts().merged};
  std::uint64_t hash = hash_bytes(place.data(), sizeof place);
  hash = hash_bytes(state.anchor().data(), state.anchor().size_bytes(), hash);
  return hash_bytes(state.momentum().data(), state.momentum().size_bytes(), hash);
}

std::string copy_state(const OuterState& state, WireCodec codec, std::uint64_t common) {
  const OuterCounts& counts = state.counts();
  const OuterRules& rules = state.rules();
  Writer out;
  out.put(kStateMark);
  out.put(static_cast<std::int32_t>(rules.fragments));
  for (const std::uint64_t value :
       {common, static_cast<std::uint64_t>(state.anchor().size()), counts.epoch, counts.merges,
        counts.merged, counts.finished, counts.finishing}) {
    out.put(value);
  }
  out.put(std::bit_cast<std::uint32_t>(rules.learning_rate));
  out.put(std::bit_cast<std::uint32_t>(rules.momentum));
  out.put(static_cast<std::uint8_t>(rules.nesterov));
  out.put(static_cast<std::uint8_t>(codec));
  std::string copy = padded(out.take(), kStateBytes);
  copy.reserve(kStateBytes + state.anchor().size_bytes() + state.momentum().size_bytes());
  copy += as_bytes(state.anchor());
  copy += as_bytes(state.momentum());
  return copy;
}

Result<StateHead> state_head(std::string_view copy) {
  Reader in(copy.substr(0, kStateBytes));
  const bool marked = in.get<std::uint32_t>() == kStateMark;
  StateHead head;
  head.fragments = in.get<std::int32_t>();
  head.common = in.get<std::uint64_t>();
  head.elements = in.get<std::uint64_t>();
  head.id = {in.get<std::uint64_t>(), in.get<std::uint64_t>()};
  head.steps = in.get<std::uint64_t>();
  head.finished = in.get<std::uint64_t>();
  head.finishing = in.get<std::uint64_t>();
  head.learning_rate = std::bit_cast<float>(in.get<std::uint32_t>());
  head.momentum = std::bit_cast<float>(in.get<std::uint32_t>());
  head.nesterov = in.get<std::uint8_t>();
  const auto codec = in.get<std::uint8_t>();
  head.codec = static_cast<WireCodec>(codec);
  const std::size_t arrays = head.momentum > 0 ? 2 : 1;
  const std::size_t left = copy.size() - std::min(copy.size(), kStateBytes);
  const bool fits = in.ok() && marked && codec <= static_cast<std::uint8_t>(WireCodec::topk) &&
                    head.fragments >= 1 && head.elements % kCodecUnit == 0 &&
                    left % (arrays * sizeof(float)) == 0 &&
                    left / (arrays * sizeof(float)) == head.elements;
  if (fits) return head;
  return not_so(Errc::protocol, "it is not the state of an outer optimizer");
}

Result<void> take_state(OuterState& state, std::string_view copy, std::uint64_t common) {
  auto head = state_head(copy);
  if (!head) return head.error();
  if (head->common != common || head->elements != state.anchor().size()) {
    return not_so(Errc::mismatch, "it belongs to an outer optimizer with other options or tensors");
  }
  const std::size_t bytes = state.anchor().size_bytes();
  std::memcpy(state.anchor().data(), copy.data() + kStateBytes, bytes);
  if (!state.momentum().empty()) {
    std::memcpy(state.momentum().data(), copy.data() + kStateBytes + bytes, bytes);
  }
  OuterCounts& counts = state.counts();
  counts.epoch = head->id.epoch;
  counts.merges = head->id.number;
  counts.steps = counts.merged = head->steps;
  counts.finished = head->finished;
  counts.finishing = head->finishing;
  return {};
}

std::uint64_t digest_of(std::string_view bytes) {
  Mix hash;
  hash.add(bytes);
  return hash.value();
}

void PayloadDigest::add(std::string_view piece) {
  Mix hash(hash_);
  if (!rest_.empty()) {
    const std::size_t missing = std::min(sizeof(std::uint64_t) - rest_.size(), piece.size());
    rest_ += piece.substr(0, missing);
    piece.remove_prefix(missing);
    if (rest_.size() == sizeof(std::uint64_t)) rest_ = hash.add_words(rest_);
  }
  if (!piece.empty()) rest_ = hash.add_words(piece);
  hash_ = hash.value();
}

std::uint64_t PayloadDigest::value() const {
  Mix hash(hash_);
  hash.add_rest(rest_);
  return hash.value();
}

}  // namespace dlaunch
