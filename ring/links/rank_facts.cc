#include "ring/links/rank_facts.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "base/codec.h"
#include "base/fnv1a.h"
#include "ring/links/mesh.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMostText = 255;

}  // namespace

std::string encode(const RankFacts& facts) {
  const auto clip = [](std::string_view text) { return text.substr(0, kMostText); };
  Writer out;
  out.put(static_cast<std::int32_t>(facts.rank));
  out.put(facts.host);
  out.put(static_cast<std::uint8_t>(facts.codec));
  out.put(static_cast<std::uint64_t>(facts.round_trip.count()));
  // The last switches matter most.
  const std::size_t longer = facts.rack.size() - std::min(facts.rack.size(), kMostText);
  out.put_string(std::string_view(facts.rack).substr(longer));
  out.put_string(clip(facts.at.who));
  out.put_string(clip(facts.at.instance));
  out.put_string(clip(facts.at.unix_name));
  out.put_string(clip(facts.at.tcp.host));
  out.put(facts.at.tcp.port);
  return out.take();
}

Result<std::vector<RankFacts>> decode_rank_facts(std::string_view bytes, int ranks) {
  const Error nonsense{.code = Errc::protocol,
                       .what = "what the ranks say of themselves makes no sense"};
  std::vector<RankFacts> all(static_cast<std::size_t>(ranks), RankFacts{.rank = -1});
  Reader in(bytes);
  for (int i = 0; i < ranks; ++i) {
    RankFacts facts;
    facts.rank = in.get<std::int32_t>();
    facts.host = in.get<std::uint64_t>();
    facts.codec = static_cast<WireCodec>(in.get<std::uint8_t>());
    facts.round_trip = Duration(static_cast<std::int64_t>(in.get<std::uint64_t>()));
    facts.rack = in.get_string(kMostText);
    facts.at.who = in.get_string(kMostText);
    facts.at.instance = in.get_string(kMostText);
    facts.at.unix_name = in.get_string(kMostText);
    facts.at.tcp.host = in.get_string(kMostText);
    facts.at.tcp.port = in.get<std::uint16_t>();
    const bool known = in.ok() && facts.rank >= 0 && facts.rank < ranks &&
                       facts.codec <= kLastWireCodec && facts.round_trip >= Duration::zero();
    if (!known || all[static_cast<std::size_t>(facts.rank)].rank >= 0) return nonsense;
    all[static_cast<std::size_t>(facts.rank)] = std::move(facts);
  }
  return in.done() ? Result<std::vector<RankFacts>>(std::move(all)) : nonsense;
}

std::vector<int> first_on_host(const std::vector<RankFacts>& facts) {
  std::map<std::uint64_t, int> first;
  std::vector<int> hosts;
  hosts.reserve(facts.size());
  for (const RankFacts& rank : facts) {
    hosts.push_back(first.try_emplace(rank.host, rank.rank).first->second);
  }
  return hosts;
}

std::uint64_t own_host_number() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat net {};
  (void)::stat("/proc/self/ns/net", &net);
  Fnv1a hash;
  hash.add(boot);  // machines may resume from one snapshot, with one name
  hash.add(own_host_name());
  hash.add(net.st_ino);
  hash.add(::geteuid());
  return hash.value();
}

}  // namespace dlaunch
