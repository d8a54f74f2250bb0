// What arrays consist of, and as which type of libdlring it travels.
#pragma once

#include <cstddef>
#include <optional>

#include <dlaunch/ring.h>

namespace dlaunch::python {

struct Element {
  enum class Kind : unsigned char { integer, natural, real, brain, complex, boolean, other };
  Kind kind = Kind::other;
  std::size_t bytes = 0;
  bool operator==(const Element&) const = default;
};

// How an element travels: as so many of a type of libdlring.
struct Carried {
  dl_dtype dtype = DL_UINT8;
  std::size_t per_element = 1;
};

// Of a format of the buffer protocol ("f") or of a type of __array_interface__ ("<f4"). Nothing for
// another byte order, and for pointers, text and records.
std::optional<Element> element_of_format(const char* format, std::size_t itemsize);
std::optional<Element> element_of_typestr(const char* typestr);
// Of the codes of DLPack.
std::optional<Element> element_of_dlpack(unsigned code, unsigned bits, unsigned lanes);
// Of "bfloat16" and "float8_…", the names that the dtypes of ml_dtypes have in place of a typestr.
std::optional<Element> element_of_name(const char* name, std::size_t itemsize);

// As what any element is moved: as bytes where libdlring has no type for it.
Carried carried(Element element);
// As what it is reduced; nothing if that is not defined.
std::optional<Carried> reduced(Element element, dl_op op);

// "int32", "complex128", …
const char* name_of(Element element);

}  // namespace dlaunch::python
