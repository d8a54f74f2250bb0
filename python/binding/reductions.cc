// The reductions of <dlaunch/reductions.h>.
#include <string_view>

#include "python/binding/call_steps.h"

namespace dlaunch::python {

namespace {

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

}  // namespace

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

}  // namespace dlaunch::python
