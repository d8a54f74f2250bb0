// What calls of libdlring take from Python, step by step: arrays, results, types. Each `false` and
// each value that is not there sets an exception.
#pragma once

#include <optional>
#include <tuple>
#include <vector>

#include "python/binding/call.h"

namespace dlaunch::python {

using Shape = std::vector<Py_ssize_t>;

Shape shape_of(const View& view);
Ref new_array(PyObject* like, const Shape& shape);

inline bool given_out(PyObject* out) { return out != nullptr && out != Py_None; }

// Whether the view fits `like`: the expected number of elements, the same type, the same GPU.
bool fits(const View& view, std::size_t expected, const View& like, Named named);
bool take_in(const Collective& what, PyObject* object, Use use, Call& call);
// Takes the result: `out`, or a new array of this shape. call.in must have been taken.
bool take_out(const Collective& what, PyObject* in, PyObject* out, std::size_t expected,
              const Shape& shape, Call& call);
// Takes `x` and a result of its form, which may be `x` itself.
bool take_result(const Collective& what, PyObject* x, PyObject* out, Call& call);
// Takes all arrays of a sequence, which must have one type.
bool take_list(Named named, PyObject* sequence, Use use, Call& call,
               std::vector<const View*>& taken);

bool takes_op(const char* name, PyObject* given, Call& call);
// The type in which libdlring reduces the element by call.op.
std::optional<Carried> reduced_by(const Collective& what, Element element, const Call& call);
bool set_type(std::optional<Carried> type, std::size_t count, Call& call);
bool moves(std::size_t count, Call& call);
bool reduces(const Collective& what, std::size_t count, Call& call);
// given: x, op and out of a reduction whose result has the form of x.
bool prepare_like(const Collective& what, const Given& given, Call& call);

// -- Rows of the table of calls. arguments(call): the function's, without the communicator and what
// it makes: a request, or a persistent call.

template <auto function, auto arguments>
dl_result run_with(dl_comm* comm, Call& call) {
  return std::apply(function, std::tuple_cat(std::tuple(comm), arguments(call)));
}
template <auto function, auto arguments, class Made>
dl_result start_with(dl_comm* comm, Call& call, Made** made) {
  return std::apply(function, std::tuple_cat(std::tuple(comm), arguments(call), std::tuple(made)));
}

template <auto blocking, auto background, auto arguments>
constexpr Collective made_of(const Signature& signature,
                             bool (*prepare)(dl_comm*, const Given&, Call&),
                             PyObject* (*result)(Call&) = nullptr) {
  return {signature, prepare, run_with<blocking, arguments>,
          start_with<background, arguments, dl_request>, result};
}

}  // namespace dlaunch::python
