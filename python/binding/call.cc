#include "python/binding/call.h"

#include <numeric>

#include "python/binding/call_steps.h"

namespace dlaunch::python {
namespace {

// Cuts the array's elements into as many equal parts as ranks.
bool parts(const Collective& what, dl_comm* comm, const Call& call, std::size_t& count,
           Shape& shape) {
  const auto size = static_cast<std::size_t>(dl_size(comm));
  count = call.in.count() / size;
  shape = shape_of(call.in);
  if (call.in.count() % size != 0) {
    PyErr_Format(PyExc_ValueError, "%s: %s has %zu elements, which %zu ranks cannot share evenly",
                 what.signature.call, what.signature.names[0], call.in.count(), size);
    return false;
  }
  if (!shape.empty() && shape[0] % static_cast<Py_ssize_t>(size) == 0) {
    shape[0] /= static_cast<Py_ssize_t>(size);
  } else {
    shape = {static_cast<Py_ssize_t>(count)};
  }
  return true;
}

Shape stacked(dl_comm* comm, const View& view) {
  Shape shape = shape_of(view);
  shape.insert(shape.begin(), dl_size(comm));
  return shape;
}

bool is_root(dl_comm* comm, const Call& call) { return dl_rank(comm) == call.root; }

// A number for each rank; `total` is their sum.
bool take_numbers(const Collective& what, const char* name, dl_comm* comm, PyObject* given,
                  std::vector<std::size_t>& counts, std::size_t& total) {
  if (!sizes(what.signature.call, name, given, counts)) return false;
  const auto size = static_cast<std::size_t>(dl_size(comm));
  if (counts.size() != size) {
    PyErr_Format(PyExc_ValueError, "%s: %s must have a number for each of %zu ranks",
                 what.signature.call, name, size);
    return false;
  }
  total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  return true;
}

void scale(std::vector<std::size_t>& counts, std::size_t per_element) {
  for (std::size_t& count : counts) count *= per_element;
}
// In the elements that libdlring moves.
void carry(std::vector<std::size_t>& counts, Element element) {
  scale(counts, carried(element).per_element);
}

// Checks parts of different sizes, and sets `total`.
bool take_counts(const Collective& what, dl_comm* comm, PyObject* counts, Call& call,
                 std::size_t& total) {
  if (!take_numbers(what, "counts", comm, counts, call.counts, total)) return false;
  const auto rank = static_cast<std::size_t>(dl_rank(comm));
  if (call.counts[rank] != call.in.count()) {
    PyErr_Format(PyExc_ValueError,
                 "%s: counts must have for rank %zu %zu, the elements of its array",
                 what.signature.call, rank, call.in.count());
    return false;
  }
  carry(call.counts, call.in.element());
  return true;
}

// The other way round: `counts` cut the input, which has all parts. `own` is this rank's part.
bool take_cut(const Collective& what, dl_comm* comm, PyObject* counts, Call& call,
              std::size_t& own) {
  std::size_t total = 0;
  if (!take_numbers(what, "counts", comm, counts, call.counts, total)) return false;
  own = call.counts[static_cast<std::size_t>(dl_rank(comm))];
  if (total != call.in.count()) {
    PyErr_Format(PyExc_ValueError, "%s: %s has %zu elements, and the sum of counts is %zu",
                 what.signature.call, what.signature.names[0], call.in.count(), total);
    return false;
  }
  return true;
}

// -- Reductions.

bool prepare_all_reduce(dl_comm*, const Given& given, Call& call) {
  return prepare_like(kAllReduce, given, call);
}
bool prepare_scan(dl_comm*, const Given& given, Call& call) {
  return prepare_like(kScan, given, call);
}
// Rank 0 gets nothing: without `out` it returns None, as from other calls that give it nothing.
bool prepare_exscan(dl_comm* comm, const Given& given, Call& call) {
  if (!prepare_like(kExscan, given, call)) return false;
  if (dl_rank(comm) == 0 && !given_out(given[2])) call.result = Ref::of(Py_None);
  return true;
}

bool prepare_reduce(dl_comm* comm, const Given& given, Call& call) {
  if (!takes_op(kReduce.signature.call, given[1], call) ||
      !integer(kReduce.signature.call, "root", given[2], call.root) ||
      !take_in(kReduce, given[0], Use::read, call) || !reduces(kReduce, call.in.count(), call)) {
    return false;
  }
  call.result = Ref::of(Py_None);
  return !is_root(comm, call) ||
         take_out(kReduce, given[0], given[3], call.in.count(), shape_of(call.in), call);
}

bool prepare_reduce_scatter(dl_comm* comm, const Given& given, Call& call) {
  std::size_t count = 0;
  Shape shape;
  return takes_op(kReduceScatter.signature.call, given[1], call) &&
         take_in(kReduceScatter, given[0], Use::read, call) &&
         parts(kReduceScatter, comm, call, count, shape) &&
         take_out(kReduceScatter, given[0], given[2], count, shape, call) &&
         reduces(kReduceScatter, count, call);
}

bool prepare_reduce_scatter_v(dl_comm* comm, const Given& given, Call& call) {
  const Collective& what = kReduceScatterV;
  std::size_t own = 0;
  if (!takes_op(what.signature.call, given[2], call) || !take_in(what, given[0], Use::read, call) ||
      !take_cut(what, comm, given[1], call, own) ||
      !take_out(what, given[0], given[3], own, {static_cast<Py_ssize_t>(own)}, call) ||
      !reduces(what, own, call)) {
    return false;
  }
  scale(call.counts, reduced(call.in.element(), call.op)->per_element);
  return true;
}

// -- Moves.

bool prepare_all_gather(dl_comm* comm, const Given& given, Call& call) {
  if (!take_in(kAllGather, given[0], Use::read, call)) return false;
  const auto size = static_cast<std::size_t>(dl_size(comm));
  return take_out(kAllGather, given[0], given[1], call.in.count() * size, stacked(comm, call.in),
                  call) &&
         moves(call.in.count(), call);
}

bool prepare_all_gather_v(dl_comm* comm, const Given& given, Call& call) {
  std::size_t total = 0;
  return take_in(kAllGatherV, given[0], Use::read, call) &&
         take_counts(kAllGatherV, comm, given[1], call, total) &&
         take_out(kAllGatherV, given[0], given[2], total, {static_cast<Py_ssize_t>(total)}, call) &&
         moves(call.in.count(), call);
}

bool prepare_gather(dl_comm* comm, const Given& given, Call& call) {
  if (!integer(kGather.signature.call, "root", given[1], call.root) ||
      !take_in(kGather, given[0], Use::read, call) || !moves(call.in.count(), call)) {
    return false;
  }
  call.result = Ref::of(Py_None);
  const auto size = static_cast<std::size_t>(dl_size(comm));
  return !is_root(comm, call) || take_out(kGather, given[0], given[2], call.in.count() * size,
                                          stacked(comm, call.in), call);
}

bool prepare_gather_v(dl_comm* comm, const Given& given, Call& call) {
  std::size_t total = 0;
  if (!integer(kGatherV.signature.call, "root", given[2], call.root) ||
      !take_in(kGatherV, given[0], Use::read, call) ||
      !take_counts(kGatherV, comm, given[1], call, total) || !moves(call.in.count(), call)) {
    return false;
  }
  call.result = Ref::of(Py_None);
  return !is_root(comm, call) ||
         take_out(kGatherV, given[0], given[3], total, {static_cast<Py_ssize_t>(total)}, call);
}

bool prepare_scatter_elsewhere(const Collective& what, PyObject* out, Call& call) {
  if (!given_out(out)) {
    PyErr_Format(PyExc_ValueError, "%s: ranks other than the root need out", what.signature.call);
    return false;
  }
  call.result = Ref::of(out);
  if (!call.out.take(out, Use::write, {what.signature.call, "out"})) return false;
  call.to = call.out.data();
  return set_type(carried(call.out.element()), call.out.count(), call);
}

bool prepare_scatter(dl_comm* comm, const Given& given, Call& call) {
  if (!integer(kScatter.signature.call, "root", given[1], call.root)) return false;
  if (!is_root(comm, call)) {
    return prepare_scatter_elsewhere(kScatter, given[2], call);
  }
  std::size_t count = 0;
  Shape shape;
  return take_in(kScatter, given[0], Use::read, call) &&
         parts(kScatter, comm, call, count, shape) &&
         take_out(kScatter, given[0], given[2], count, shape, call) && moves(count, call);
}

bool prepare_scatter_v(dl_comm* comm, const Given& given, Call& call) {
  const Collective& what = kScatterV;
  if (!integer(what.signature.call, "root", given[2], call.root)) return false;
  std::size_t own = 0, total = 0;
  if (is_root(comm, call)) {
    if (!take_in(what, given[0], Use::read, call) || !take_cut(what, comm, given[1], call, own) ||
        !take_out(what, given[0], given[3], own, {static_cast<Py_ssize_t>(own)}, call)) {
      return false;
    }
    carry(call.counts, call.in.element());
    return moves(own, call);
  }
  if (!take_numbers(what, "counts", comm, given[1], call.counts, total) ||
      !prepare_scatter_elsewhere(what, given[3], call)) {
    return false;
  }
  own = call.counts[static_cast<std::size_t>(dl_rank(comm))];
  if (own != call.out.count()) {
    PyErr_Format(PyExc_ValueError, "scatter_v: out has %zu elements, and needs %zu",
                 call.out.count(), own);
    return false;
  }
  carry(call.counts, call.out.element());
  return true;
}

bool prepare_all_to_all_v(dl_comm* comm, const Given& given, Call& call) {
  const Collective& what = kAllToAllV;
  std::size_t total = 0, own = 0;
  if (!take_in(what, given[0], Use::read, call) || !take_cut(what, comm, given[1], call, own) ||
      !take_numbers(what, "out_counts", comm, given[2], call.out_counts, total) ||
      !take_out(what, given[0], given[3], total, {static_cast<Py_ssize_t>(total)}, call)) {
    return false;
  }
  carry(call.counts, call.in.element());
  carry(call.out_counts, call.in.element());
  return moves(call.in.count(), call);
}

bool prepare_all_to_all(dl_comm* comm, const Given& given, Call& call) {
  std::size_t count = 0;
  Shape shape;
  return take_in(kAllToAll, given[0], Use::read, call) &&
         parts(kAllToAll, comm, call, count, shape) &&
         take_out(kAllToAll, given[0], given[1], call.in.count(), shape_of(call.in), call) &&
         moves(count, call);
}

bool prepare_broadcast(dl_comm* comm, const Given& given, Call& call) {
  if (!integer(kBroadcast.signature.call, "root", given[1], call.root)) return false;
  if (!take_in(kBroadcast, given[0], is_root(comm, call) ? Use::read : Use::write, call)) {
    return false;
  }
  call.to = call.in.data();
  call.result = Ref::of(given[0]);
  return moves(call.in.count(), call);
}

// -- Lists.

Ref new_list(PyObject* like) {
  const Ref arrays = Ref::owned(PySequence_Tuple(like));
  const Py_ssize_t size = arrays ? PyTuple_Size(arrays.get()) : 0;
  std::vector<Ref> made;
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* const x = PyTuple_GetItem(arrays.get(), i);
    View view;
    if (!view.take(x, Use::read, {kAllReduceList.signature.call, "xs"})) return {};
    if (!made.emplace_back(new_array(x, shape_of(view)))) return {};
  }
  // Last, because other code may find a list that is not yet full.
  Ref list = Ref::owned(arrays ? PyList_New(size) : nullptr);
  for (Py_ssize_t i = 0; list && i < size; ++i) {
    PyList_SetItem(list.get(), i, made[static_cast<std::size_t>(i)].release());
  }
  return list;
}

bool set_list_type(std::optional<Carried> type, Call& call) {
  if (!type) return false;
  call.dtype = type->dtype;
  scale(call.counts, type->per_element);
  return true;
}

bool prepare_all_reduce_list(dl_comm*, const Given& given, Call& call) {
  const char* const name = kAllReduceList.signature.call;
  const Ref xs = Ref::owned(PySequence_Tuple(given[0]));
  if (!xs || !takes_op(name, given[1], call)) return false;
  call.result = given_out(given[2]) ? Ref::of(given[2]) : new_list(xs.get());
  std::vector<const View*> in, out;
  if (!call.result || !take_list({name, "xs"}, xs.get(), Use::read, call, in) ||
      !take_list({name, "out"}, call.result.get(), Use::write, call, out)) {
    return false;
  }
  if (in.size() != out.size()) {
    PyErr_Format(PyExc_ValueError, "%s: out has %zu arrays, and needs %zu", name, out.size(),
                 in.size());
    return false;
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (!fits(*out[i], in[i]->count(), *in[i], {name, "out"})) return false;
    call.all_from.push_back(in[i]->data());
    call.all_to.push_back(out[i]->data());
    call.counts.push_back(in[i]->count());
  }
  return in.empty() || set_list_type(reduced_by(kAllReduceList, in[0]->element(), call), call);
}

bool prepare_broadcast_list(dl_comm* comm, const Given& given, Call& call) {
  const char* const name = kBroadcastList.signature.call;
  if (!integer(name, "root", given[1], call.root)) return false;
  const Use use = is_root(comm, call) ? Use::read : Use::write;
  std::vector<const View*> taken;
  if (!take_list({name, "xs"}, given[0], use, call, taken)) return false;
  for (const View* view : taken) {
    call.all_to.push_back(view->data());
    call.counts.push_back(view->count());
  }
  call.result = Ref::of(given[0]);
  return taken.empty() || set_list_type(carried(taken[0]->element()), call);
}

// -- Messages, and the barrier.

bool prepare_barrier(dl_comm*, const Given&, Call& call) {
  call.result = Ref::of(Py_None);
  return true;
}

bool prepare_send(dl_comm*, const Given& given, Call& call) {
  call.result = Ref::of(Py_None);
  return integer("send", "peer", given[1], call.root) &&
         integer("send", "tag", given[2], call.tag) && take_in(kSend, given[0], Use::read, call) &&
         moves(call.in.count(), call);
}

bool prepare_receipt(const Collective& what, PyObject* out, Call& call) {
  if (!take_in(what, out, Use::write, call)) return false;
  call.to = call.in.data();
  call.result = Ref::of(out);
  return moves(call.in.count(), call);
}
bool prepare_recv(dl_comm*, const Given& given, Call& call) {
  return integer("recv", "peer", given[1], call.root) &&
         integer("recv", "tag", given[2], call.tag) && prepare_receipt(kRecv, given[0], call);
}
bool prepare_recv_any(dl_comm*, const Given& given, Call& call) {
  return integer("recv_any", "tag", given[1], call.tag) &&
         prepare_receipt(kRecvAny, given[0], call);
}

}  // namespace

PyObject* result_of(const Collective& collective, Call& call) {
  if (collective.result != nullptr) return collective.result(call);
  Py_XINCREF(call.result.get());
  return call.result.get();
}

// -- The table of the calls, blocking and in the background.

namespace {

auto reduction(const Call& c) { return std::tuple(c.from, c.to, c.count, c.dtype, c.op); }
auto rooted_reduction(const Call& c) {
  return std::tuple(c.from, c.to, c.count, c.dtype, c.op, c.root);
}
auto reduction_v(const Call& c) { return std::tuple(c.from, c.to, c.counts.data(), c.dtype, c.op); }
auto crossing_v(const Call& c) {
  return std::tuple(c.from, c.counts.data(), c.to, c.out_counts.data(), c.dtype);
}
auto moving(const Call& c) { return std::tuple(c.from, c.to, c.count, c.dtype); }
auto moving_v(const Call& c) { return std::tuple(c.from, c.to, c.counts.data(), c.dtype); }
auto rooted_moving(const Call& c) { return std::tuple(c.from, c.to, c.count, c.dtype, c.root); }
auto rooted_moving_v(const Call& c) {
  return std::tuple(c.from, c.to, c.counts.data(), c.dtype, c.root);
}
auto broadcasting(const Call& c) { return std::tuple(c.to, c.count, c.dtype, c.root); }
auto list_reduction(const Call& c) {
  return std::tuple(c.counts.size(), c.all_from.data(), c.all_to.data(), c.counts.data(), c.dtype,
                    c.op);
}
auto list_broadcasting(const Call& c) {
  return std::tuple(c.counts.size(), c.all_to.data(), c.counts.data(), c.dtype, c.root);
}
auto nothing(const Call&) { return std::tuple(); }
auto sending(const Call& c) { return std::tuple(c.from, c.count, c.dtype, c.root, c.tag); }
auto receiving(const Call& c) { return std::tuple(c.to, c.count, c.dtype, c.root, c.tag); }
auto receiving_any(Call& c) { return std::tuple(c.to, c.count, c.dtype, c.tag, &c.source); }

PyObject* source_of(Call& call) { return PyLong_FromLong(call.source); }

template <auto function, auto arguments>
constexpr Collective also_persistent(Collective collective) {
  collective.init = start_with<function, arguments, dl_persistent>;
  return collective;
}

}  // namespace

const Collective kAllReduce = also_persistent<dl_all_reduce_init, reduction>(
    made_of<dl_all_reduce, dl_iall_reduce, reduction>({"all_reduce", {"x", "op", "out"}, 1, 2},
                                                      prepare_all_reduce));
const Collective kScan =
    made_of<dl_scan, dl_iscan, reduction>({"scan", {"x", "op", "out"}, 1, 2}, prepare_scan);
const Collective kExscan =
    made_of<dl_exscan, dl_iexscan, reduction>({"exscan", {"x", "op", "out"}, 1, 2}, prepare_exscan);
const Collective kReduce = also_persistent<dl_reduce_init, rooted_reduction>(
    made_of<dl_reduce, dl_ireduce, rooted_reduction>({"reduce", {"x", "op", "root", "out"}, 1, 3},
                                                     prepare_reduce));
const Collective kReduceScatter = also_persistent<dl_reduce_scatter_init, reduction>(
    made_of<dl_reduce_scatter, dl_ireduce_scatter, reduction>(
        {"reduce_scatter", {"x", "op", "out"}, 1, 2}, prepare_reduce_scatter));
const Collective kReduceScatterV = made_of<dl_reduce_scatter_v, dl_ireduce_scatter_v, reduction_v>(
    {"reduce_scatter_v", {"x", "counts", "op", "out"}, 2, 3}, prepare_reduce_scatter_v);
const Collective kAllGather =
    also_persistent<dl_all_gather_init, moving>(made_of<dl_all_gather, dl_iall_gather, moving>(
        {"all_gather", {"x", "out"}, 1, 1}, prepare_all_gather));
const Collective kAllGatherV = made_of<dl_all_gather_v, dl_iall_gather_v, moving_v>(
    {"all_gather_v", {"x", "counts", "out"}, 2, 2}, prepare_all_gather_v);
const Collective kGather = made_of<dl_gather, dl_igather, rooted_moving>(
    {"gather", {"x", "root", "out"}, 1, 2}, prepare_gather);
const Collective kGatherV = made_of<dl_gather_v, dl_igather_v, rooted_moving_v>(
    {"gather_v", {"x", "counts", "root", "out"}, 2, 3}, prepare_gather_v);
const Collective kScatter = made_of<dl_scatter, dl_iscatter, rooted_moving>(
    {"scatter", {"x", "root", "out"}, 1, 2}, prepare_scatter);
const Collective kScatterV = made_of<dl_scatter_v, dl_iscatter_v, rooted_moving_v>(
    {"scatter_v", {"x", "counts", "root", "out"}, 2, 3}, prepare_scatter_v);
const Collective kAllToAllV = made_of<dl_all_to_all_v, dl_iall_to_all_v, crossing_v>(
    {"all_to_all_v", {"x", "in_counts", "out_counts", "out"}, 3, 3}, prepare_all_to_all_v);
const Collective kAllToAll =
    also_persistent<dl_all_to_all_init, moving>(made_of<dl_all_to_all, dl_iall_to_all, moving>(
        {"all_to_all", {"x", "out"}, 1, 1}, prepare_all_to_all));
const Collective kBroadcast = also_persistent<dl_broadcast_init, broadcasting>(
    made_of<dl_broadcast, dl_ibroadcast, broadcasting>({"broadcast", {"x", "root"}, 1, 2},
                                                       prepare_broadcast));
const Collective kAllReduceList = made_of<dl_all_reduce_list, dl_iall_reduce_list, list_reduction>(
    {"all_reduce_list", {"xs", "op", "out"}, 1, 2}, prepare_all_reduce_list);
const Collective kBroadcastList = made_of<dl_broadcast_list, dl_ibroadcast_list, list_broadcasting>(
    {"broadcast_list", {"xs", "root"}, 1, 2}, prepare_broadcast_list);
const Collective kBarrier = also_persistent<dl_barrier_init, nothing>(
    made_of<dl_barrier, dl_ibarrier, nothing>({"barrier", {}, 0, 0}, prepare_barrier));
const Collective kSend =
    made_of<dl_send, dl_isend, sending>({"send", {"x", "peer", "tag"}, 2, 3}, prepare_send);
const Collective kRecv =
    made_of<dl_recv, dl_irecv, receiving>({"recv", {"out", "peer", "tag"}, 2, 3}, prepare_recv);
const Collective kRecvAny = made_of<dl_recv_any, dl_irecv_any, receiving_any>(
    {"recv_any", {"out", "tag"}, 1, 2}, prepare_recv_any, source_of);

}  // namespace dlaunch::python
