// Functions of a shared library that the program looks up at run time, so that it starts without
// the library.
#pragma once

#include <dlfcn.h>

namespace dlaunch {

// Opens a library that the program has loaded already, from whatever place, or one from the
// system's paths. Null: there is none. It is never closed.
inline void* open_library(const char* name) {
  void* const loaded = ::dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  return loaded != nullptr ? loaded : ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

// Fills in one function after the other; remembers the first missing one.
struct SymbolReader {
  void* library;
  const char* missing = nullptr;
  template <class Function>
  void read(Function& function, const char* name) {
    if (!read_optional(function, name) && missing == nullptr) missing = name;
  }
  // False: sets null and does not count the function as missing.
  template <class Function>
  bool read_optional(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    return function != nullptr;
  }
};

}  // namespace dlaunch
