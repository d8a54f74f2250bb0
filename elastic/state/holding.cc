#include "elastic/state/holding.h"

#include <fmt/format.h>

#include "base/codec.h"

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
  Writer out;
  for (const auto& h : holdings) {
    for (const auto value : {h.id.version.round, h.id.version.number, h.id.layout, h.base}) {
      out.put(value);
    }
    out.put(std::int32_t{h.world});
    out.put(static_cast<std::uint32_t>(h.objects.size()));
    for (const auto& [object, bytes] : h.objects) {
      out.put(std::int32_t{object});
      out.put(bytes);
    }
  }
  return out.take();
}

Result<std::vector<Holding>> decode_holdings(std::string_view bytes) {
  Reader in(bytes);
  std::vector<Holding> holdings;
  while (in.ok() && in.left() > 0) {
    Holding h;
    for (auto* value : {&h.id.version.round, &h.id.version.number, &h.id.layout, &h.base}) {
      *value = in.get<std::uint64_t>();
    }
    h.world = in.get<std::int32_t>();
    const auto objects = in.get<std::uint32_t>();
    for (std::uint32_t i = 0; in.ok() && i < objects; ++i) {
      const auto object = in.get<std::int32_t>();
      h.objects[object] = in.get<std::uint64_t>();
      if (object < 0 || object > h.world) return malformed();
    }
    holdings.push_back(std::move(h));
  }
  if (!in.done()) return malformed();
  return holdings;
}

std::string encode(const PieceTables& tables) {
  Writer out;
  for (const auto& [object, table] : tables) {
    out.put(std::int32_t{object});
    out.put(static_cast<std::uint64_t>(table.size()));
    for (const auto sum : table) out.put(sum);
  }
  return out.take();
}

Result<PieceTables> decode_tables(std::string_view bytes) {
  Reader in(bytes);
  PieceTables tables;
  while (in.ok() && in.left() > 0) {
    auto& table = tables[in.get<std::int32_t>()];
    const auto pieces = in.get<std::uint64_t>();
    for (std::uint64_t i = 0; in.ok() && i < pieces; ++i) table.push_back(in.get<std::uint32_t>());
  }
  if (!in.done()) return malformed();
  return tables;
}

}  // namespace dlaunch
