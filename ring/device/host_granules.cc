#include "ring/device/host_granules.h"

#include <algorithm>

namespace dlaunch {
namespace {

// Elements [from, from + count) of one buffer, or of a list of tensors that stands for one.
template <class Pointer, class Add>
void for_stretch(Pointer base, const std::vector<Pointer>* tensors, const TensorList* list,
                 std::size_t from, std::size_t count, std::size_t element, Add add) {
  using Byte =
      std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const char, char>;
  const auto stretch = [&](Pointer start, std::size_t first, std::size_t n) {
    add(static_cast<Byte*>(start) + first * element, n * element);
  };
  if (count == 0) return;
  if (list == nullptr) return stretch(base, from, count);
  for (std::size_t i = 0, begin = 0; i < list->ends.size(); begin = list->ends[i++]) {
    const std::size_t low = std::max(begin, from);
    const std::size_t high = std::min(list->ends[i], from + count);
    if (low < high) stretch((*tensors)[i], low - begin, high - low);
  }
}

// All ranks lay the parts out on the host alike, each in a place for the longest one: so each rank
// knows where its part is in the others' memory.
HostGranule granule_of_splits(const Call& call, const Splits& all, const HostCut& cut,
                              std::size_t number) {
  const std::size_t from = number * cut.elements, element = dtype_bytes(call.dtype);
  Splits own{.rank = all.rank, .given = {}, .taken = {}, .from = {}};
  own.longest = std::min(cut.elements, all.longest - from);
  HostGranule granule;
  // Cuts this granule's piece out of each part, and returns the pieces' places on the host.
  const auto cut_out = [&](const std::vector<Part>& parts, auto add) {
    std::vector<Part> staged;
    for (const Part& part : parts) {
      const std::size_t begin = std::min(from, part.count);
      const std::size_t count = std::min(cut.elements, part.count - begin);
      staged.push_back({staged.size() * cut.elements, count});
      if (count > 0) {
        add((part.first + begin) * element, staged.back().first * element, count * element);
      }
    }
    return staged;
  };
  own.given = cut_out(all.given, [&](std::size_t at, std::size_t staged, std::size_t bytes) {
    granule.in.push_back({static_cast<const char*>(call.in) + at, nullptr, staged, bytes});
  });
  own.taken = cut_out(all.taken, [&](std::size_t at, std::size_t staged, std::size_t bytes) {
    granule.out.push_back({nullptr, static_cast<char*>(call.out) + at, staged, bytes});
  });
  own.from.assign(all.given.size(), static_cast<std::size_t>(all.rank) * cut.elements);
  granule.count = own.longest;
  granule.splits = std::move(own);
  return granule;
}

}  // namespace

HostCut cut_for_host(const Call& call, int ranks, std::size_t granule_bytes) {
  const auto& traits = traits_of(call.collective);
  const std::size_t element = dtype_bytes(call.dtype);
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t parts = traits.in_parts || traits.out_parts ? n : 1;
  const std::size_t longest = longest_part(shape_of(call, ranks));
  HostCut cut;
  cut.elements = std::min(longest, std::max<std::size_t>(1, granule_bytes / element / parts));
  if (longest > 0) cut.granules = (longest + cut.elements - 1) / cut.elements;
  cut.in_bytes = cut.elements * element * (traits.in_parts ? n : 1);
  cut.out_bytes = cut.elements * element * (traits.out_parts ? n : 1);
  return cut;
}

HostGranule host_granule(const Call& call, int rank, int ranks, const HostCut& cut,
                         std::size_t number) {
  if (call.splits != nullptr) return granule_of_splits(call, *call.splits, cut, number);
  const auto& traits = traits_of(call.collective);
  const Shape shape = shape_of(call, ranks);
  const std::size_t element = shape.element_bytes;
  const std::size_t from = number * cut.elements;
  const auto share = [&](int r) {
    const std::size_t count = part_of(shape, r).count;
    return count <= from ? 0 : std::min(count - from, cut.elements);
  };
  HostGranule granule{.in = {}, .out = {}, .count = share(rank), .counts = {}, .splits = {}};
  for (int r = 0; call.counts != nullptr && r < ranks; ++r) granule.counts.push_back(share(r));

  std::size_t staged = 0;
  const auto take_in = [&](std::size_t first, std::size_t count) {
    for_stretch(call.in, call.list ? &call.list->in : nullptr, call.list, first, count, element,
                [&](const char* device, std::size_t bytes) {
                  granule.in.push_back({device, nullptr, staged, bytes});
                  staged += bytes;
                });
  };
  const auto put_out = [&](std::size_t first, std::size_t count) {
    for_stretch(call.out, call.list ? &call.list->out : nullptr, call.list, first, count, element,
                [&](char* device, std::size_t bytes) {
                  granule.out.push_back({nullptr, device, staged, bytes});
                  staged += bytes;
                });
  };
  // The buffers of a broadcast are the same buffer: the call reads only the root's, and writes only
  // the others'.
  const bool broadcast = call.collective == Collective::broadcast;
  const bool root = rank == call.root;
  if (broadcast || traits.in_at_root ? root : true) {
    for (int r = 0; traits.in_parts && r < ranks; ++r) {
      take_in(part_of(shape, r).first + from, share(r));
    }
    if (!traits.in_parts) take_in(from, share(rank));
  }
  staged = 0;
  if (broadcast ? !root : !traits.out_at_root || root) {
    for (int r = 0; traits.out_parts && r < ranks; ++r) {
      put_out(part_of(shape, r).first + from, share(r));
    }
    if (!traits.out_parts) put_out(from, share(rank));
  }
  return granule;
}

}  // namespace dlaunch
