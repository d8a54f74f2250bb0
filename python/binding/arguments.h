// Arguments of calls, with C's numbers and names.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <dlaunch/ring.h>

#include "python/binding/limited.h"

namespace dlaunch::python {

constexpr int kMostArguments = 11;
using Given = std::array<PyObject*, kMostArguments>;  // borrowed; null if left out

struct Signature {
  const char* call;
  std::array<const char*, kMostArguments> names;  // null: no more
  int required;
  int by_position;  // this many may be given without a name
};

// False: sets an exception.
bool parse(const Signature& signature, PyObject* const* args, Py_ssize_t count, PyObject* names,
           Given& given);

// Leave the value unchanged if the argument is left out. False: sets an exception.
bool integer(const char* call, const char* argument, PyObject* given, int& value);
bool seconds(const char* call, const char* argument, PyObject* given, double& value);
// A name, or an Op of the program.
bool operation(const char* call, PyObject* given, dl_op& op);
const char* name_of(dl_op op);
bool codec(const char* call, PyObject* given, dl_codec& value);
bool number(const char* call, const char* argument, PyObject* given, double& value);
bool flag(PyObject* given, int& value);
struct OpParts;
// Null: the object is not an Op.
const OpParts* own_op(PyObject* object);
// A sequence of whole numbers >= 0.
bool sizes(const char* call, const char* argument, PyObject* given, std::vector<std::size_t>& all);
// The virtual shards [first, last) of a rank. False: sets an exception.
bool shard_range(const char* call, int shards, int rank, int size, int& first, int& last);
// UTF-8 text; `kept` owns it.
bool text(const char* call, const char* argument, PyObject* given, Ref& kept, const char*& value);

}  // namespace dlaunch::python
