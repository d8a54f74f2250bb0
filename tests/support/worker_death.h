// Ways for a worker of a test to fail, by name:
//
//   kill      SIGKILL                      throw     an uncaught exception
//   exit      code 3, with last words      memory    malloc fails
//   abort     SIGABRT                      close     closes all its descriptors, and goes on
//   segv      a wrong pointer              scribble  random bytes into every socket, and goes on
//   stack     the stack overflows          eat       memory until it is killed
//   spin      does nothing, for ever
#pragma once

#include <string>

// Returns only from close and scribble. Throws std::invalid_argument for another name.
void die(const std::string& how);
