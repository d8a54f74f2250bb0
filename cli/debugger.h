// The command with which a worker's program runs under a debugger. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace dlaunch {

using CommandWords = std::vector<std::string>;

// The words of debuggers that dlaunch knows. What begins with -m is a module of Python.
const CommandWords& gdb_words();
const CommandWords& lldb_words();
const CommandWords& pdb_words();
const CommandWords& debugpy_words();  // listens on port 5678 + rank

// Python runs the command: its first word is a Python, by name.
bool is_python(const CommandWords& command);

// Runs the command under the debugger from its start. A debugger that is a module of Python stands
// between Python's own options and the program. Error: such a debugger, and the command is not a
// Python with a script or a module.
Result<CommandWords> under_debugger(const CommandWords& command, const CommandWords& debugger);

// Runs the command, and opens the debugger once it fails: pdb at an exception that nothing catches
// if Python runs it and `native` is not wanted, else gdb at a fatal signal. The debugger takes the
// terminal for itself. Error: as above.
Result<CommandWords> debugged_on_failure(const CommandWords& command, bool native);

}  // namespace dlaunch
