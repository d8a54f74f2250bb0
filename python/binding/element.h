// The elements of arrays, and the types of libdlring that carry them.
#pragma once

#include <cstddef>
#include <optional>

#include <dlaunch/ring.h>

namespace dlaunch::python {

struct Element {
  enum class Kind : unsigned char {
    integer,
    natural,
    real,
    brain,
    complex,
    boolean,
    e4m3,
    e5m2,
    other
  };
  Kind kind = Kind::other;
  std::size_t bytes = 0;
  bool operator==(const Element&) const = default;
};

// How an element travels: as a number of elements of a libdlring type.
struct Carried {
  dl_dtype dtype = DL_UINT8;
  std::size_t per_element = 1;
};

// From a format of the buffer protocol ("f") or a type of __array_interface__ ("<f4"). Nothing for
// another byte order, and for pointers, text and records.
std::optional<Element> element_of_format(const char* format, std::size_t itemsize);
std::optional<Element> element_of_typestr(const char* typestr);
// From the codes of DLPack.
std::optional<Element> element_of_dlpack(unsigned code, unsigned bits, unsigned lanes);
// From "bfloat16" and "float8_…", the names that the dtypes of ml_dtypes have instead of a typestr.
std::optional<Element> element_of_name(const char* name, std::size_t itemsize);

// The carrier for moves: bytes for a type that libdlring lacks.
Carried carried(Element element);
// The carrier for a reduction; nothing if that is not defined.
std::optional<Carried> reduced(Element element, dl_op op);

// The library's alignment for such elements: a complex number needs only that of its parts.
std::size_t alignment_of(Element element);

// "int32", "complex128", …
const char* name_of(Element element);
const char* name_of(dl_dtype dtype);
// Nothing: libdlring has no such type.
std::optional<dl_dtype> dtype_named(const char* name);

}  // namespace dlaunch::python
