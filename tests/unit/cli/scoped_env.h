#pragma once

#include <cstdlib>
#include <string>

namespace dlaunch {

// Sets a variable for as long as it lives.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~ScopedEnv() { ::unsetenv(name_.c_str()); }

 private:
  std::string name_;
};

}  // namespace dlaunch
