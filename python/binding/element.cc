#include "python/binding/element.h"

#include <cstring>
#include <iterator>

namespace dlaunch::python {
namespace {

using Kind = Element::Kind;

constexpr struct {
  Element element;
  const char* name;
} kNames[] = {
    {{Kind::integer, 1}, "int8"},        {{Kind::integer, 2}, "int16"},
    {{Kind::integer, 4}, "int32"},       {{Kind::integer, 8}, "int64"},
    {{Kind::natural, 1}, "uint8"},       {{Kind::natural, 2}, "uint16"},
    {{Kind::natural, 4}, "uint32"},      {{Kind::natural, 8}, "uint64"},
    {{Kind::real, 2}, "float16"},        {{Kind::real, 4}, "float32"},
    {{Kind::real, 8}, "float64"},        {{Kind::real, 16}, "float128"},
    {{Kind::brain, 2}, "bfloat16"},      {{Kind::complex, 8}, "complex64"},
    {{Kind::complex, 16}, "complex128"}, {{Kind::complex, 32}, "complex256"},
    {{Kind::boolean, 1}, "bool"},        {{Kind::e4m3, 1}, "float8_e4m3fn"},
    {{Kind::e5m2, 1}, "float8_e5m2"},
};

std::optional<dl_dtype> dtype_of(Element element) {
  switch (element.kind) {
    case Kind::integer:
      if (element.bytes == 1) return DL_INT8;
      if (element.bytes == 4) return DL_INT32;
      if (element.bytes == 8) return DL_INT64;
      break;
    case Kind::natural:
      if (element.bytes == 1) return DL_UINT8;
      if (element.bytes == 4) return DL_UINT32;
      if (element.bytes == 8) return DL_UINT64;
      break;
    case Kind::real:
      if (element.bytes == 2) return DL_FLOAT16;
      if (element.bytes == 4) return DL_FLOAT32;
      if (element.bytes == 8) return DL_FLOAT64;
      break;
    case Kind::brain:
      if (element.bytes == 2) return DL_BFLOAT16;
      break;
    case Kind::complex:
      if (element.bytes == 8) return DL_COMPLEX64;
      if (element.bytes == 16) return DL_COMPLEX128;
      break;
    case Kind::e4m3:
      return DL_FLOAT8_E4M3;
    case Kind::e5m2:
      return DL_FLOAT8_E5M2;
    case Kind::boolean:
    case Kind::other:
      break;
  }
  return std::nullopt;
}

std::optional<Kind> kind_of_letter(char letter) {
  if (std::strchr("bhilqn", letter) != nullptr) return Kind::integer;
  if (std::strchr("BHILQNc", letter) != nullptr) return Kind::natural;
  if (std::strchr("efdg", letter) != nullptr) return Kind::real;
  if (letter == '?') return Kind::boolean;
  return std::nullopt;
}

constexpr bool kLittleEndian = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
bool is_native(char order, std::size_t bytes) {
  return bytes == 1 || order == (kLittleEndian ? '<' : '>') || order == '=' || order == '@' ||
         order == '|';
}

bool is_power_of_two(std::size_t bytes) { return bytes > 0 && (bytes & (bytes - 1)) == 0; }

}  // namespace

std::optional<Element> element_of_format(const char* format, std::size_t itemsize) {
  if (format == nullptr) return Element{Kind::natural, 1};
  if (*format != '\0' && std::strchr("@=<>!|", *format) != nullptr) {
    if (!is_native(*format, itemsize)) return std::nullopt;
    ++format;
  }
  const bool is_complex = *format == 'Z';
  if (is_complex) ++format;
  if (*format == '\0' || format[1] != '\0' || !is_power_of_two(itemsize)) return std::nullopt;
  const auto kind = kind_of_letter(*format);
  if (!kind) return std::nullopt;
  if (!is_complex) return Element{*kind, itemsize};
  if (*kind != Kind::real) return std::nullopt;
  return Element{Kind::complex, itemsize};
}

std::optional<Element> element_of_typestr(const char* typestr) {
  if (std::strlen(typestr) < 3 || std::strchr("<>|=", typestr[0]) == nullptr) return std::nullopt;
  std::size_t bytes = 0;
  for (const char* digit = typestr + 2; *digit != '\0'; ++digit) {
    if (*digit < '0' || *digit > '9' || bytes > 99) return std::nullopt;
    bytes = bytes * 10 + static_cast<std::size_t>(*digit - '0');
  }
  if (!is_power_of_two(bytes) || bytes > 32 || !is_native(typestr[0], bytes)) return std::nullopt;
  switch (typestr[1]) {
    case 'i':
      return Element{Kind::integer, bytes};
    case 'u':
      return Element{Kind::natural, bytes};
    case 'f':
      return Element{Kind::real, bytes};
    case 'c':
      return Element{Kind::complex, bytes};
    case 'b':
      return Element{Kind::boolean, bytes};
    default:
      return std::nullopt;
  }
}

std::optional<Element> element_of_dlpack(unsigned code, unsigned bits, unsigned lanes) {
  if (lanes != 1 || bits % 8 != 0 || !is_power_of_two(bits / 8) || bits > 256) return std::nullopt;
  constexpr Kind kKinds[] = {Kind::integer, Kind::natural, Kind::real,   Kind::other,
                             Kind::brain,   Kind::complex, Kind::boolean};
  constexpr unsigned kPointer = 3;  // an opaque handle
  if (code == kPointer) return std::nullopt;
  constexpr unsigned kE4m3 = 10, kE5m2 = 12;  // "fn", of OCP
  if (bits == 8 && code == kE4m3) return Element{Kind::e4m3, 1};
  if (bits == 8 && code == kE5m2) return Element{Kind::e5m2, 1};
  return Element{code < std::size(kKinds) ? kKinds[code] : Kind::other, bits / 8};
}

std::optional<Element> element_of_name(const char* name, std::size_t itemsize) {
  if (std::strcmp(name, "bfloat16") == 0 && itemsize == 2) return Element{Kind::brain, 2};
  if (std::strcmp(name, "float8_e4m3fn") == 0 && itemsize == 1) return Element{Kind::e4m3, 1};
  if (std::strcmp(name, "float8_e5m2") == 0 && itemsize == 1) return Element{Kind::e5m2, 1};
  if (std::strncmp(name, "float8_", 7) == 0 && itemsize == 1) return Element{Kind::other, 1};
  return std::nullopt;
}

Carried carried(Element element) {
  if (const auto dtype = dtype_of(element)) return {*dtype, 1};
  return {DL_UINT8, element.bytes};
}

std::optional<Carried> reduced(Element element, dl_op op) {
  if (const auto dtype = dtype_of(element)) return Carried{*dtype, 1};
  const bool is_logical =
      op == DL_MAX || op == DL_MIN || op == DL_BAND || op == DL_BOR || op == DL_BXOR;
  if (element.kind == Kind::boolean && element.bytes == 1 && is_logical) return Carried{};
  return std::nullopt;
}

std::size_t alignment_of(Element element) {
  const dl_dtype dtype = carried(element).dtype;
  const bool has_parts = dtype == DL_COMPLEX64 || dtype == DL_COMPLEX128;
  return dl_dtype_bytes(dtype) / (has_parts ? 2 : 1);
}

const char* name_of(Element element) {
  for (const auto& known : kNames) {
    if (known.element == element) return known.name;
  }
  return "a type of its own";
}

const char* name_of(dl_dtype dtype) {
  for (const auto& known : kNames) {
    if (dtype_of(known.element) == dtype) return known.name;
  }
  return "";
}

std::optional<dl_dtype> dtype_named(const char* name) {
  for (const auto& known : kNames) {
    if (std::strcmp(known.name, name) == 0) return dtype_of(known.element);
  }
  return std::nullopt;
}

}  // namespace dlaunch::python
