#include "launcher/node/watch/torch_dump.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>

#include "base/fnv1a.h"
#include "base/pickle.h"
#include "base/ring_names.h"

namespace dlaunch {
namespace {

// All ranks number a group alike: by its name, which often is a number itself.
std::uint32_t group_number(std::string_view name, std::string_view description) {
  if (description == "default_pg") return 0;
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc() && end == name.data() + name.size()) return number;
  Fnv1a hash;
  hash.add(name);
  return static_cast<std::uint32_t>(hash.value());
}

// "nccl:all_reduce", "gloo:_all_gather_base"; the last index for a name that is not ours.
std::uint8_t what_is(std::string_view profiling_name) {
  const auto name = profiling_name.substr(profiling_name.find(':') + 1);
  const auto found = std::ranges::find_if(kCollectiveNames, [&](std::string_view known) {
    return name.find(known) != std::string_view::npos;
  });
  return static_cast<std::uint8_t>(found - std::begin(kCollectiveNames));
}

class Positions {
 public:
  explicit Positions(const Pickle& dump) : dump_(dump) {}

  void add_groups(const PickleValue& groups) {
    for (std::size_t i = 1; i < groups.items.size(); i += 2) {
      const PickleValue& group = dump_.at(groups.items[i]);
      at(dump_.text(group, "name"), dump_.text(group, "desc"));
    }
  }
  void add(const PickleValue& entry) {
    const PickleValue* const group = dump_.find(entry, "process_group");
    const auto names = group == nullptr ? std::vector<const PickleValue*>{} : dump_.items(*group);
    const auto seq = dump_.integer(entry, "collective_seq_id", -1);
    if (names.size() < 2 || seq <= 0 || dump_.integer(entry, "is_p2p", 0) != 0) return;
    NodePosition& position = at(names[0]->words, names[1]->words);
    const bool open =
        dump_.text(entry, "state") != "completed" && dump_.integer(entry, "retired", 0) == 0;
    const auto number = static_cast<std::uint64_t>(seq);
    const bool tells_more = open ? !position.inside || number < position.seq
                                 : !position.inside && number >= position.seq;
    if (!tells_more) return;
    position.seq = number;
    position.inside = open;
    position.what = what_is(dump_.text(entry, "profiling_name"));
  }
  std::vector<NodePosition> all() const {
    std::vector<NodePosition> found;
    for (const auto& [group, position] : positions_) found.push_back(position);
    return found;
  }

 private:
  NodePosition& at(std::string_view name, std::string_view description) {
    const auto group = group_number(name, description);
    NodePosition& position = positions_[group];
    position.group = group;
    return position;
  }

  const Pickle& dump_;
  std::map<std::uint32_t, NodePosition> positions_;
};

}  // namespace

Result<std::vector<NodePosition>> read_torch_dump(std::string_view bytes) {
  auto dump = Pickle::read(bytes);
  if (!dump) return dump.error();
  const PickleValue* const entries = dump->find(dump->root(), "entries");
  if (entries == nullptr) return protocol_error("a dump of PyTorch's without entries");
  Positions positions(*dump);
  const PickleValue* const groups = dump->find(dump->root(), "pg_config");
  if (groups != nullptr && groups->kind == PickleValue::dict) positions.add_groups(*groups);
  for (const PickleValue* const entry : dump->items(*entries)) positions.add(*entry);
  return positions.all();
}

}  // namespace dlaunch
