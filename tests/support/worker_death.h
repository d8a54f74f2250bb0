// Ways for a worker of a test to come to grief, by name:
//
//   kill      SIGKILL                      throw     an exception that nobody catches
//   exit      code 3, with last words      memory    malloc has nothing more to give
//   abort     SIGABRT                      close     all its descriptors are closed, and it goes on
//   segv      a wrong pointer              scribble  random bytes into every socket, and it goes on
//   stack     the stack overflows          eat       memory until somebody kills it
//   spin      does nothing, for ever
#pragma once

#include <string>

// Returns only from close and scribble. std::invalid_argument for another name.
void die(const std::string& how);
