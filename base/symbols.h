// Functions of a shared library that is looked for at run time, so that a program starts without
// it.
#pragma once

#include <dlfcn.h>

namespace dlaunch {

// One that the program has loaded already, wherever it found it, or else where the system looks.
// Null: there is none. It is never closed.
inline void* open_library(const char* name) {
  void* const loaded = ::dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  return loaded != nullptr ? loaded : ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

// Fills in one function after the other; remembers the first that is missing.
struct SymbolReader {
  void* library;
  const char* missing = nullptr;
  template <class Function>
  void read(Function& function, const char* name) {
    if (!read_optional(function, name) && missing == nullptr) missing = name;
  }
  // False: null, which is no fault of the library.
  template <class Function>
  bool read_optional(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    return function != nullptr;
  }
};

}  // namespace dlaunch
