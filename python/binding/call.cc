#include "python/binding/call.h"

#include <numeric>
#include <string_view>
#include <tuple>

namespace dlaunch::python {
namespace {

PyObject* g_empty = nullptr;  // never freed

using Shape = std::vector<Py_ssize_t>;

Shape shape_of(const View& view) {
  Shape shape(static_cast<std::size_t>(view.dimensions()));
  for (int d = 0; d < view.dimensions(); ++d) shape[static_cast<std::size_t>(d)] = view.extent(d);
  return shape;
}

Ref new_array(PyObject* like, const Shape& shape) {
  Ref tuple = Ref::owned(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  if (!tuple) return {};
  for (std::size_t i = 0; i < shape.size(); ++i) {
    PyObject* const extent = PyLong_FromSsize_t(shape[i]);
    if (extent == nullptr) return {};
    PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), extent);
  }
  return Ref::owned(PyObject_CallFunctionObjArgs(g_empty, like, tuple.get(), nullptr));
}

bool given_out(PyObject* out) { return out != nullptr && out != Py_None; }

// Whether the view fits `like`: the expected number of elements, the same type, the same GPU.
bool fits(const View& view, std::size_t expected, const View& like, Named named) {
  if (view.count() != expected) {
    PyErr_Format(PyExc_ValueError, "%s: %s has %zu elements, and needs %zu", named.call,
                 named.argument, view.count(), expected);
    return false;
  }
  if (view.element() != like.element()) {
    PyErr_Format(PyExc_TypeError, "%s: %s has type %s, and the other array has type %s", named.call,
                 named.argument, name_of(view.element()), name_of(like.element()));
    return false;
  }
  if (view.count() > 0 && like.count() > 0 && view.gpu() != like.gpu()) {
    PyErr_Format(PyExc_ValueError, "%s: %s is not where the other array is, in host or GPU memory",
                 named.call, named.argument);
    return false;
  }
  return true;
}

bool take_in(const Collective& what, PyObject* object, Use use, Call& call) {
  if (!call.in.take(object, use, {what.signature.call, what.signature.names[0]})) return false;
  call.from = call.in.data();
  return true;
}

// Takes the result: `out`, or a new array of this shape. call.in must have been taken.
bool take_out(const Collective& what, PyObject* in, PyObject* out, std::size_t expected,
              const Shape& shape, Call& call) {
  const Named named{what.signature.call, "out"};
  call.result = given_out(out) ? Ref::of(out) : new_array(in, shape);
  if (!call.result || !call.out.take(call.result.get(), Use::write, named)) return false;
  call.to = call.out.data();
  return fits(call.out, expected, call.in, named);
}

bool takes_op(const char* name, PyObject* given, Call& call) {
  if (given == nullptr || own_op(given) == nullptr) return operation(name, given, call.op);
  return call.used_op.take(name, given, call.op);
}

// The type in which libdlring reduces the element by call.op; none: sets an exception.
std::optional<Carried> reduced_by(const Collective& what, Element element, const Call& call) {
  const auto type = reduced(element, call.op);
  if (!type) {
    PyErr_Format(PyExc_TypeError, "%s: '%s' is not defined for %s", what.signature.call,
                 name_of(call.op), name_of(element));
  }
  return type;
}
bool set_type(std::optional<Carried> type, std::size_t count, Call& call) {
  if (!type) return false;
  call.dtype = type->dtype;
  call.count = count * type->per_element;
  return true;
}
bool moves(std::size_t count, Call& call) {
  return set_type(carried(call.in.element()), count, call);
}
bool reduces(const Collective& what, std::size_t count, Call& call) {
  return set_type(reduced_by(what, call.in.element(), call), count, call);
}

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

// Takes `x` and a result of its form, which may be `x` itself.
bool take_result(const Collective& what, PyObject* x, PyObject* out, Call& call) {
  const bool in_place = x == out;
  if (!take_in(what, x, in_place ? Use::write : Use::read, call)) return false;
  if (!in_place) {
    return take_out(what, x, out, call.in.count(), given_out(out) ? Shape() : shape_of(call.in),
                    call);
  }
  call.to = call.in.data();
  call.result = Ref::of(x);
  return true;
}
bool prepare_like(const Collective& what, const Given& given, Call& call) {
  const auto [x, op, out] = std::array{given[0], given[1], given[2]};
  return takes_op(what.signature.call, op, call) && take_result(what, x, out, call) &&
         reduces(what, call.in.count(), call);
}
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

// Takes all arrays of a sequence, which must have one type.
bool take_list(Named named, PyObject* sequence, Use use, Call& call,
               std::vector<const View*>& taken) {
  const Ref arrays = Ref::owned(PySequence_Tuple(sequence));
  if (!arrays) return false;
  const Py_ssize_t size = PyTuple_Size(arrays.get());
  taken.reserve(static_cast<std::size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    View& view = call.views.emplace_back();
    if (!view.take(PyTuple_GetItem(arrays.get(), i), use, named)) return false;
    const View& first = call.views.front();
    if (!fits(view, view.count(), first, named)) return false;
    taken.push_back(&view);
  }
  return true;
}

Ref new_list(PyObject* like) {
  const Ref arrays = Ref::owned(PySequence_Tuple(like));
  const Py_ssize_t size = arrays ? PyTuple_Size(arrays.get()) : 0;
  Ref list = Ref::owned(arrays ? PyList_New(size) : nullptr);
  for (Py_ssize_t i = 0; list && i < size; ++i) {
    PyObject* const x = PyTuple_GetItem(arrays.get(), i);
    View view;
    if (!view.take(x, Use::read, {kAllReduceList.signature.call, "xs"})) return {};
    Ref made = new_array(x, shape_of(view));
    if (!made) return {};
    PyList_SetItem(list.get(), i, made.release());
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

// Each array has the values of one shard.
bool prepare_all_reduce_shards(dl_comm* comm, const Given& given, Call& call) {
  const char* const name = kAllReduceShards.signature.call;
  const Ref xs = Ref::owned(PySequence_Tuple(given[0]));
  int first = 0, last = 0;
  if (!xs || !integer(name, "shards", given[1], call.shards) || !takes_op(name, given[2], call) ||
      !shard_range(name, call.shards, dl_rank(comm), dl_size(comm), first, last)) {
    return false;
  }
  if (PyTuple_Size(xs.get()) != last - first) {
    PyErr_Format(PyExc_ValueError, "%s: xs has %zd arrays, and this rank has %d of %d shards", name,
                 PyTuple_Size(xs.get()), last - first, call.shards);
    return false;
  }
  std::vector<const View*> in;
  if (!take_list({name, "xs"}, xs.get(), Use::read, call, in)) return false;
  if (in.empty() && !given_out(given[3])) {
    PyErr_Format(PyExc_ValueError, "%s: a rank without shards needs out", name);
    return false;
  }
  call.result = given_out(given[3]) ? Ref::of(given[3])
                                    : new_array(PyTuple_GetItem(xs.get(), 0), shape_of(*in[0]));
  if (!call.result || !call.out.take(call.result.get(), Use::write, {name, "out"})) return false;
  for (const View* view : in) {
    if (!fits(*view, call.out.count(), call.out, {name, "xs"})) return false;
    call.all_from.push_back(view->data());
  }
  call.to = call.out.data();
  return set_type(reduced_by(kAllReduceShards, call.out.element(), call), call.out.count(), call);
}

bool is_float32(const char* argument, const View& view) {
  if (view.element() == Element{Element::Kind::real, sizeof(float)}) return true;
  PyErr_Format(PyExc_TypeError, "%s: %s has type %s, and must have float32",
               kCompressedAverage.signature.call, argument, name_of(view.element()));
  return false;
}
bool prepare_compressed_average(dl_comm*, const Given& given, Call& call) {
  const char* const name = kCompressedAverage.signature.call;
  const auto [x, words, residual, out] = std::array{given[0], given[1], given[2], given[3]};
  if (!codec(name, words, call.codec) || !take_result(kCompressedAverage, x, out, call) ||
      !is_float32("x", call.in)) {
    return false;
  }
  if (given_out(residual) && (!call.residual.take(residual, Use::write, {name, "residual"}) ||
                              !fits(call.residual, call.in.count(), call.in, {name, "residual"}))) {
    return false;
  }
  call.count = call.in.count();
  return true;
}

// "drop" or "carry".
bool take_late(PyObject* given, dl_late& late) {
  Ref kept;
  const char* word = "drop";
  if (!text(kAllReduceSome.signature.call, "late", given, kept, word)) return false;
  const std::string_view named = word;
  if (named != "drop" && named != "carry") {
    PyErr_SetString(PyExc_ValueError, "all_reduce_some: late must be 'drop' or 'carry'");
    return false;
  }
  late = named == "carry" ? DL_LATE_CARRY : DL_LATE_DROP;
  return true;
}

// x None: this rank gives nothing, and `out` says what it takes.
bool prepare_all_reduce_some(dl_comm* comm, const Given& given, Call& call) {
  const Collective& what = kAllReduceSome;
  const char* const name = what.signature.call;
  dl_some_options_init(&call.some);
  call.given.resize(static_cast<std::size_t>(dl_size(comm)));
  if (!integer(name, "need", given[1], call.some.need) ||
      !seconds(name, "wait", given[3], call.some.wait_s) || !take_late(given[4], call.some.late) ||
      !integer(name, "max_behind", given[5], call.some.max_behind) ||
      !integer(name, "slot", given[6], call.some.slot)) {
    return false;
  }
  if (given[0] != Py_None) {
    const Given reduction{given[0], given[2], given[7]};
    if (!prepare_like(what, reduction, call)) return false;
    if (call.from == nullptr) call.from = "";  // an array without elements is still given
    return true;
  }
  if (!given_out(given[7])) {
    PyErr_Format(PyExc_ValueError, "%s: a rank that gives None needs out", name);
    return false;
  }
  call.result = Ref::of(given[7]);
  if (!takes_op(name, given[2], call) ||
      !call.out.take(call.result.get(), Use::write, {name, "out"})) {
    return false;
  }
  call.to = call.out.data();
  return set_type(reduced_by(what, call.out.element(), call), call.out.count(), call);
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

bool load_arrays() {
  const Ref module = Ref::owned(PyImport_ImportModule("dlaunch._arrays"));
  if (!module) return false;
  g_empty = PyObject_GetAttrString(module.get(), "empty");
  return g_empty != nullptr;
}

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
auto shard_reduction(const Call& c) {
  return std::tuple(c.shards, c.all_from.data(), c.to, c.count, c.dtype, c.op);
}
auto compressing(const Call& c) {
  return std::tuple(static_cast<const float*>(c.from), static_cast<float*>(c.to), c.count, c.codec,
                    static_cast<float*>(c.residual.data()));
}
auto some_reduction(Call& c) {
  return std::tuple(c.from, c.to, c.count, c.dtype, c.op, &c.some, c.given.data(), &c.fate);
}
auto list_broadcasting(const Call& c) {
  return std::tuple(c.counts.size(), c.all_to.data(), c.counts.data(), c.dtype, c.root);
}
auto nothing(const Call&) { return std::tuple(); }
auto sending(const Call& c) { return std::tuple(c.from, c.count, c.dtype, c.root, c.tag); }
auto receiving(const Call& c) { return std::tuple(c.to, c.count, c.dtype, c.root, c.tag); }
auto receiving_any(Call& c) { return std::tuple(c.to, c.count, c.dtype, c.tag, &c.source); }

PyObject* source_of(Call& call) { return PyLong_FromLong(call.source); }

// The array, how many contributions of each rank are in, and what became of this rank's own.
PyObject* some_outcome(Call& call) {
  static constexpr const char* kFates[] = {"none", "in", "dropped", "carried"};
  const Ref given = Ref::owned(PyList_New(0));
  if (!given) return nullptr;
  for (const int of_rank : call.given) {
    const Ref number = Ref::owned(PyLong_FromLong(of_rank));
    if (!number || PyList_Append(given.get(), number.get()) != 0) return nullptr;
  }
  return Py_BuildValue("OOs", call.result.get(), given.get(), kFates[call.fate]);
}

template <auto function, auto arguments>
dl_result run_with(dl_comm* comm, Call& call) {
  return std::apply(function, std::tuple_cat(std::tuple(comm), arguments(call)));
}
template <auto function, auto arguments>
dl_result start_with(dl_comm* comm, Call& call, dl_request** request) {
  return std::apply(function,
                    std::tuple_cat(std::tuple(comm), arguments(call), std::tuple(request)));
}

template <auto blocking, auto background, auto arguments>
constexpr Collective made_of(const Signature& signature,
                             bool (*prepare)(dl_comm*, const Given&, Call&),
                             PyObject* (*result)(Call&) = nullptr) {
  return {signature, prepare, run_with<blocking, arguments>, start_with<background, arguments>,
          result};
}

}  // namespace

const Collective kAllReduce = made_of<dl_all_reduce, dl_iall_reduce, reduction>(
    {"all_reduce", {"x", "op", "out"}, 1, 2}, prepare_all_reduce);
const Collective kScan =
    made_of<dl_scan, dl_iscan, reduction>({"scan", {"x", "op", "out"}, 1, 2}, prepare_scan);
const Collective kExscan =
    made_of<dl_exscan, dl_iexscan, reduction>({"exscan", {"x", "op", "out"}, 1, 2}, prepare_exscan);
const Collective kReduce = made_of<dl_reduce, dl_ireduce, rooted_reduction>(
    {"reduce", {"x", "op", "root", "out"}, 1, 3}, prepare_reduce);
const Collective kReduceScatter = made_of<dl_reduce_scatter, dl_ireduce_scatter, reduction>(
    {"reduce_scatter", {"x", "op", "out"}, 1, 2}, prepare_reduce_scatter);
const Collective kReduceScatterV = made_of<dl_reduce_scatter_v, dl_ireduce_scatter_v, reduction_v>(
    {"reduce_scatter_v", {"x", "counts", "op", "out"}, 2, 3}, prepare_reduce_scatter_v);
const Collective kAllGather = made_of<dl_all_gather, dl_iall_gather, moving>(
    {"all_gather", {"x", "out"}, 1, 1}, prepare_all_gather);
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
const Collective kAllToAll = made_of<dl_all_to_all, dl_iall_to_all, moving>(
    {"all_to_all", {"x", "out"}, 1, 1}, prepare_all_to_all);
const Collective kBroadcast = made_of<dl_broadcast, dl_ibroadcast, broadcasting>(
    {"broadcast", {"x", "root"}, 1, 2}, prepare_broadcast);
const Collective kAllReduceList = made_of<dl_all_reduce_list, dl_iall_reduce_list, list_reduction>(
    {"all_reduce_list", {"xs", "op", "out"}, 1, 2}, prepare_all_reduce_list);
const Collective kAllReduceShards =
    made_of<dl_all_reduce_shards, dl_iall_reduce_shards, shard_reduction>(
        {"all_reduce_shards", {"xs", "shards", "op", "out"}, 2, 3}, prepare_all_reduce_shards);
const Collective kCompressedAverage =
    made_of<dl_compressed_average, dl_icompressed_average, compressing>(
        {"compressed_average", {"x", "codec", "residual", "out"}, 2, 2},
        prepare_compressed_average);
const Collective kAllReduceSome = {
    {"all_reduce_some", {"x", "need", "op", "wait", "late", "max_behind", "slot", "out"}, 2, 3},
    prepare_all_reduce_some,
    run_with<dl_all_reduce_some, some_reduction>,
    nullptr,
    some_outcome};
const Collective kBroadcastList = made_of<dl_broadcast_list, dl_ibroadcast_list, list_broadcasting>(
    {"broadcast_list", {"xs", "root"}, 1, 2}, prepare_broadcast_list);
const Collective kBarrier =
    made_of<dl_barrier, dl_ibarrier, nothing>({"barrier", {}, 0, 0}, prepare_barrier);
const Collective kSend =
    made_of<dl_send, dl_isend, sending>({"send", {"x", "peer", "tag"}, 2, 3}, prepare_send);
const Collective kRecv =
    made_of<dl_recv, dl_irecv, receiving>({"recv", {"out", "peer", "tag"}, 2, 3}, prepare_recv);
const Collective kRecvAny = made_of<dl_recv_any, dl_irecv_any, receiving_any>(
    {"recv_any", {"out", "tag"}, 1, 2}, prepare_recv_any, source_of);

}  // namespace dlaunch::python
