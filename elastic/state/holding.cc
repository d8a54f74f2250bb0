#include "elastic/state/holding.h"

#include <fmt/format.h>

namespace dlaunch {
namespace {

Error malformed() { return {.code = Errc::protocol, .what = "a rank sent a malformed state"}; }

}  // namespace

std::string to_text(const Version& version) {
  return fmt::format("commit {} of round {}", version.number, version.round);
}

std::string to_text(ObjectId object, int world) {
  if (object == kReplicated) return "the replicated memory";
  return fmt::format("the shard of rank {} of {}", object - 1, world);
}

std::string encode(const std::vector<Holding>& holdings) {
  return encode_record(holdings, kAnyNumber);
}

Result<std::vector<Holding>> decode_holdings(std::string_view bytes) {
  std::vector<Holding> holdings;
  if (!decode_record(bytes, holdings, kAnyNumber)) return malformed();
  for (const Holding& h : holdings) {
    for (const auto& [object, size] : h.objects) {
      if (object < 0 || object > h.world) return malformed();
    }
  }
  return holdings;
}

std::string encode(const PieceTables& tables) { return encode_record(tables, kAnyNumber); }

Result<PieceTables> decode_tables(std::string_view bytes) {
  PieceTables tables;
  if (!decode_record(bytes, tables, kAnyNumber)) return malformed();
  return tables;
}

}  // namespace dlaunch
