#include "elastic/state/pull.h"

#include <zlib.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace dlaunch {
namespace {

constexpr std::size_t kWindow = 8;  // pieces that a rank has under way

std::uint32_t checksum(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

class Puller {
 public:
  Puller(Rounds& rounds, std::span<const Pull> pulls,
         const std::function<std::span<std::byte>(ObjectId)>& memory)
      : rounds_(rounds), pulls_(pulls), memory_(memory) {}

  // Moves the pieces; adds damaged ones to `damaged`.
  Result<void> pass(const std::vector<Piece>& pieces, std::vector<Piece>& damaged) {
    damaged_ = &damaged;
    for (const Piece& piece : pieces) {
      if (underway_.size() == kWindow) {
        if (auto r = take_oldest(); !r) return r;
      }
      if (auto r = start(piece); !r) return r;
    }
    while (!underway_.empty()) {
      if (auto r = take_oldest(); !r) return r;
    }
    return {};
  }

 private:
  struct Underway {
    Piece piece;
    std::unique_ptr<Transfer> transfer;
  };

  std::span<std::byte> place(const Piece& piece) const {
    const Pull& pull = pulls_[piece.pull];
    return memory_(pull.object).subspan(piece.offset(), piece.bytes(pull));
  }

  Result<void> start(const Piece& piece) {
    auto started = piece.source == rounds_.rank() ? rounds_.send(place(piece), piece.receiver)
                                                  : rounds_.receive(place(piece), piece.source);
    if (!started) return started.error();
    underway_.push_back({piece, std::move(*started)});
    return {};
  }

  Result<void> take_oldest() {
    const Underway oldest = std::move(underway_.front());
    underway_.pop_front();
    if (auto r = oldest.transfer->wait(); !r) return r;
    const Piece& piece = oldest.piece;
    if (piece.receiver != rounds_.rank()) return {};
    const auto expected = pulls_[piece.pull].table[piece.index];
    if (checksum(place(piece)) != expected) damaged_->push_back(piece);
    return {};
  }

  Rounds& rounds_;
  std::span<const Pull> pulls_;
  const std::function<std::span<std::byte>(ObjectId)>& memory_;
  std::deque<Underway> underway_;
  std::vector<Piece>* damaged_ = nullptr;
};

bool exists(const Piece& piece, std::span<const Pull> pulls) {
  if (piece.pull >= pulls.size()) return false;
  const Pull& pull = pulls[piece.pull];
  return piece.index < pull.table.size() &&
         std::ranges::find(pull.sources, piece.source) != pull.sources.end();
}

// All ranks' damaged pieces, in one order.
Result<std::vector<Piece>> all_damaged(Rounds& rounds, std::span<const Pull> pulls,
                                       const std::vector<Piece>& mine) {
  auto texts = gather_texts(rounds, encode_record(mine, kAnyNumber));
  if (!texts) return texts.error();
  std::vector<Piece> all;
  for (const auto& text : *texts) {
    std::vector<Piece> theirs;
    if (!decode_record(text, theirs, kAnyNumber) ||
        !std::ranges::all_of(theirs, [&](const Piece& piece) { return exists(piece, pulls); })) {
      return Error{.code = Errc::protocol, .what = "a rank named a piece that does not exist"};
    }
    all.insert(all.end(), theirs.begin(), theirs.end());
  }
  return all;
}

}  // namespace

PieceTable piece_table(std::span<const std::byte> bytes) {
  PieceTable table;
  for (std::size_t at = 0; at < bytes.size(); at += kPieceBytes) {
    table.push_back(
        checksum(bytes.subspan(at, std::min<std::size_t>(kPieceBytes, bytes.size() - at))));
  }
  return table;
}

std::vector<Piece> misfits(std::span<const Pull> pulls, std::size_t pull, int rank,
                           std::span<const std::byte> object) {
  const Pull& of = pulls[pull];
  const PieceTable own = piece_table(object);
  std::vector<Piece> found;
  for (std::uint64_t index = 0; index < of.table.size(); ++index) {
    if (own[index] != of.table[index]) found.push_back({pull, index, of.sources.front(), rank});
  }
  return found;
}

Result<void> pull_objects(Rounds& rounds, std::span<const Pull> pulls,
                          const std::function<std::span<std::byte>(ObjectId)>& memory,
                          const std::optional<Filled>& filled) {
  if (std::ranges::all_of(pulls, [](const Pull& pull) { return pull.receivers.empty(); }))
    return {};
  const int me = rounds.rank();
  Puller puller(rounds, pulls, memory);
  auto pieces = pieces_of(me, pulls);
  std::vector<Piece> mine;  // this rank's damaged pieces
  if (filled) {
    std::erase_if(pieces, [&](const Piece& piece) { return piece.pull == filled->pull; });
    mine = filled->misfits;
  }
  for (int tries = 1;; ++tries) {
    if (auto r = puller.pass(pieces, mine); !r) return r;
    auto damaged = all_damaged(rounds, pulls, std::exchange(mine, {}));
    if (!damaged) return damaged.error();
    if (damaged->empty()) return {};
    const auto next = again(*damaged, pulls);
    pieces.clear();
    for (std::size_t i = 0; i < next.size(); ++i) {
      const Piece &was = (*damaged)[i], &now = next[i];
      if (tries == kTries) {
        return Error{.code = Errc::io,
                     .what = fmt::format("piece {} of the state arrived damaged at rank {} from "
                                         "rank {}, the last of {} tries",
                                         was.index, was.receiver, was.source, kTries),
                     .rank = was.source};
      }
      if (was.receiver == me) {
        log_warn(
            "rank {}: piece {} of the state arrived damaged from rank {}; fetching it from rank {}",
            me, was.index, was.source, now.source);
      }
      if (now.source == me || now.receiver == me) pieces.push_back(now);
    }
  }
}

}  // namespace dlaunch
