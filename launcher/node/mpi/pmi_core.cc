#include "launcher/node/mpi/pmi_core.h"

#include <utility>

#include <climits>
#include <fmt/format.h>

#include "base/codec.h"
#include "base/text.h"
#include "base/units.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMaxKey = 64, kMaxValue = 1024;
constexpr std::size_t kMostBytes = std::size_t{64} << 20;  // of a round's values, on each node
constexpr const char* kSpace = "dlaunch";                  // the only key space

// The reply to commands that do not depend on the values.
std::optional<std::string> fixed_reply(const std::string& command, int size, int appnum) {
  if (command == "init") return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
  if (command == "get_maxes") {
    return fmt::format("cmd=maxes rc=0 kvsname_max=256 keylen_max={} vallen_max={}", kMaxKey,
                       kMaxValue);
  }
  if (command == "get_appnum") return fmt::format("cmd=appnum rc=0 appnum={}", appnum);
  if (command == "get_universe_size") return fmt::format("cmd=universe_size rc=0 size={}", size);
  if (command == "get_my_kvsname") return fmt::format("cmd=my_kvsname rc=0 kvsname={}", kSpace);
  if (command == "finalize") return "cmd=finalize_ack rc=0";
  if (command == "publish_name") return "cmd=publish_result rc=-1 msg=not_supported";
  if (command == "unpublish_name") return "cmd=unpublish_result rc=-1 msg=not_supported";
  if (command == "lookup_name") return "cmd=lookup_result rc=-1 msg=not_supported";
  if (command == "spawn") return "cmd=spawn_result rc=-1 msg=not_supported";
  return {};
}

Error nonsense(std::string_view line) {
  return {.code = Errc::protocol,
          .what = fmt::format("an MPI library sent '{}', which is not part of PMI-1",
                              escaped(line.substr(0, 80)))};
}

std::string word(const std::map<std::string, std::string>& words, const char* name) {
  const auto found = words.find(name);
  return found == words.end() ? "" : found->second;
}

// MPI_Abort() is a failure, whatever its code.
int code_in(const std::map<std::string, std::string>& words) {
  const auto code = parse_int(word(words, "exitcode"), INT_MIN, INT_MAX, "");
  return code && (*code & 0xff) != 0 ? *code & 0xff : 1;
}

std::string encode(const std::map<std::string, std::string>& values) {
  Writer out;
  for (const auto& [key, value] : values) {
    out.put_string(key);
    out.put_string(value);
  }
  return out.take();
}

}  // namespace

void PmiCore::add(Client client, const World& world) {
  // Ranks of an older round cannot get on.
  std::erase_if(rounds_, [&](const auto& round) { return round.first < world.round; });
  clients_[client] = {world.round, world.appnum};
  rounds_[world.round].world = world;
}

void PmiCore::gone(Client client) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  const auto round = rounds_.find(found->second.round);
  if (round != rounds_.end()) round->second.in_barrier.erase(client);
  clients_.erase(found);
}

Result<PmiCore::Actions> PmiCore::said(Client client, std::string_view line) {
  Words words;
  for (const auto word : split_words(line, ' ')) {
    const auto equals = word.find('=');
    if (equals != word.npos) words.emplace(word.substr(0, equals), word.substr(equals + 1));
  }
  const Seat seat = clients_.at(client);
  const auto found = rounds_.find(seat.round);
  if (found == rounds_.end()) return Actions();  // the client is about to be ended
  Round& round = found->second;
  // Several lines that begin with mcmd form one command, as for MPI_Comm_spawn; it has one reply.
  const std::string command = word(words, words.contains("mcmd") ? "mcmd" : "cmd");
  if (const auto reply = fixed_reply(command, round.world.size, seat.appnum)) {
    return Actions{.replies = {{client, *reply + "\n"}}, .spawn = command == "spawn"};
  }
  if (command == "put") {
    auto reply = put(round, words);
    if (!reply) return reply.error();
    return Actions{.replies = {{client, *reply}}};
  }
  if (command == "get") return Actions{.replies = {{client, get(round, words)}}};
  if (command == "barrier_in") return come(round, client);
  if (command == "abort") return Actions{.abort = code_in(words)};
  // The lines of a spawn between its first and its last.
  if (command.empty() && !words.empty()) return Actions();
  if (line == "endcmd") return Actions();
  return nonsense(line);
}

Result<std::string> PmiCore::put(Round& round, const Words& words) {
  const auto key = words.find("key"), value = words.find("value");
  if (key == words.end() || value == words.end()) {
    return Error{.code = Errc::protocol, .what = "an MPI library stored a value without a name"};
  }
  round.bytes += key->second.size() + value->second.size();
  if (key->second.size() > kMaxKey || value->second.size() > kMaxValue ||
      round.bytes > kMostBytes) {
    return std::string("cmd=put_result rc=-1 msg=too_long\n");
  }
  round.values[key->second] = value->second;
  round.news[key->second] = value->second;
  return std::string("cmd=put_result rc=0 msg=success\n");
}

std::string PmiCore::get(const Round& round, const Words& words) {
  const auto found = round.values.find(word(words, "key"));
  if (found == round.values.end()) return "cmd=get_result rc=-1 msg=key_not_found value=unknown\n";
  return fmt::format("cmd=get_result rc=0 msg=success value={}\n", found->second);
}

PmiCore::Actions PmiCore::come(Round& round, Client client) {
  round.in_barrier.insert(client);
  if (static_cast<int>(round.in_barrier.size()) < round.world.local_size) return {};
  if (round.world.nodes == 1) return let_go(round, "0");
  return {.exchange =
              Exchange{round.world.round, ++round.turns, encode(std::exchange(round.news, {}))}};
}

PmiCore::Actions PmiCore::exchanged(int number, const Result<std::vector<std::string>>& others) {
  const auto found = rounds_.find(number);
  if (found == rounds_.end()) return {};
  Round& round = found->second;
  if (!others) return let_go(round, "-1");
  for (const auto& text : *others) {
    Reader in(text);
    while (in.ok() && in.left() > 0) {
      std::string key(in.get_string(kMaxKey)), value(in.get_string(kMaxValue));
      if (!in.ok()) return let_go(round, "-1");
      round.values[std::move(key)] = std::move(value);
    }
  }
  return let_go(round, "0");
}

PmiCore::Actions PmiCore::let_go(Round& round, const char* rc) {
  Actions actions;
  for (const Client client : std::exchange(round.in_barrier, {})) {
    actions.replies.push_back({client, fmt::format("cmd=barrier_out rc={}\n", rc)});
  }
  return actions;
}

}  // namespace dlaunch
