// The lines of dump_stacks(), read back: native frames, Python frames as py-spy prints them, and
// what kind of code each frame is. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

enum class CodeKind {
  program,      // the user's own
  library,      // any other library, Python's included
  c_library,    // or the runtime of C++
  interpreter,  // of Python, in C
  runtime,      // of an accelerator: it may wait for threads of its own
  collective,   // waits for other ranks
  transfer,     // the same, also in a thread that is not the main one
};

struct StackFrame {
  // Without parameters; of a function in C that Python code has called, what people call it there
  // ("lock.acquire"), if that is known. "": no name was found.
  std::string function;
  std::string file;  // "": not known
  int line = 0;
  CodeKind kind = CodeKind::library;
};

struct StackThread {
  bool stopped = false;            // by a signal
  std::vector<StackFrame> frames;  // the innermost first
};

// The threads of the worker's process, the main one first; of a process that only waits for one
// below it, those of that one. In a Python program the main thread's frames are those in C that
// Python code has called, and then those in Python. Empty: no frame was found.
std::vector<StackThread> parse_stack(const std::vector<std::string>& lines);

// The line of dump_stacks() about a process that a signal has stopped.
inline constexpr std::string_view kStoppedLine = "the process is stopped by a signal";

}  // namespace dlaunch
