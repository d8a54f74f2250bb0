#include "cli/debugger.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace dlaunch {
namespace {

// A worker that changes a terminal's settings from the background stops, by SIGTTOU. dlaunch then
// gives it the terminal.
constexpr std::string_view kTakeTerminal = R"py(
def take_terminal():
    import termios
    terminal = os.open("/dev/tty", os.O_RDWR)
    termios.tcsetattr(terminal, termios.TCSANOW, termios.tcgetattr(terminal))
    return terminal
)py";

// As Python itself, it runs a script or a module as __main__. An exception that nothing catches
// opens pdb.
constexpr std::string_view kPostMortem = R"py(
def run(words):
    if words[0] == "-m":
        import runpy
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = words
    sys.path[0] = os.path.dirname(os.path.realpath(words[0]))
    with open(words[0], "rb") as file:
        code = compile(file.read(), words[0], "exec")
    import types
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    module.__file__ = words[0]
    exec(code, module.__dict__)

def post_mortem(error):
    import pdb, traceback
    of_program = error.__traceback__
    runpy = os.path.join(os.path.dirname(os.__file__), "runpy.py")
    launching = ("<string>", "<frozen runpy>", runpy)
    while of_program.tb_next and of_program.tb_frame.f_code.co_filename in launching:
        of_program = of_program.tb_next
    traceback.print_exception(type(error), error, of_program)
    sys.stdout.flush()
    terminal = take_terminal()
    for descriptor in (0, 1, 2):
        os.dup2(terminal, descriptor)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
    pdb.post_mortem(of_program)

try:
    run(sys.argv[1:])
except Exception as error:
    post_mortem(error)
    os._exit(1)
)py";

// gdb without a terminal runs the program. At a fatal signal it leaves the program stopped to a
// second gdb, which has the terminal.
constexpr std::string_view kAtSignal = R"py(
import subprocess
program = gdb.selected_inferior()
if program.pid:
    pid = program.pid
    code = 128 + int(gdb.parse_and_eval("$_siginfo.si_signo"))
    terminal = take_terminal()
    gdb.execute("queue-signal SIGSTOP")
    gdb.execute("detach")
    subprocess.call(["gdb", "-q", "-iex", "set confirm off", "-p", str(pid)],
                    stdin=terminal, stdout=terminal, stderr=terminal)
    os.kill(pid, signal.SIGKILL)
    gdb.execute("quit " + str(code))
)py";

std::string_view base_name(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);
}

// The place of the script, or of -m, in a command of Python; a cluster such as -um is split before
// the m. Error: there is neither.
Result<std::size_t> find_program_of_python(CommandWords& command) {
  for (std::size_t at = 1; at < command.size(); ++at) {
    const std::string word = command[at];
    if (word.size() < 2 || word[0] != '-') return at;
    if (word.starts_with("--")) {
      at += word == "--check-hash-based-pycs" ? 1 : 0;
      continue;
    }
    const auto letter = word.find_first_of("WXmc", 1);
    if (letter == std::string::npos) continue;
    if (word[letter] == 'c') break;
    if (word[letter] != 'm') {
      at += letter + 1 == word.size() ? 1 : 0;
      continue;
    }
    const std::string module = word.substr(letter + 1);
    command[at] = "-m";
    const auto position = command.begin() + static_cast<std::ptrdiff_t>(at);
    if (!module.empty()) command.insert(position + 1, module);
    if (letter == 1) return at;
    command.insert(command.begin() + static_cast<std::ptrdiff_t>(at), word.substr(0, letter));
    return at + 1;
  }
  return Error{.code = Errc::usage,
               .what = "a debugger of Python needs a script or a module, and '" + command[0] +
                       "' gets neither"};
}

Result<CommandWords> with_module(const CommandWords& command, const CommandWords& inserted) {
  if (!is_python(command)) {
    return Error{.code = Errc::usage,
                 .what = "'" + command[0] +
                         "' is not run by Python: a debugger of Python cannot "
                         "run it"};
  }
  CommandWords words = command;
  auto at = find_program_of_python(words);
  if (!at) return at.error();
  words.insert(words.begin() + static_cast<std::ptrdiff_t>(*at), inserted.begin(), inserted.end());
  return words;
}

CommandWords in_front(CommandWords words, const CommandWords& command) {
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

}  // namespace

const CommandWords& gdb_words() {
  static const CommandWords words = {"gdb", "-q", "-return-child-result", "--args"};
  return words;
}

const CommandWords& lldb_words() {
  static const CommandWords words = {"lldb", "--"};
  return words;
}

const CommandWords& pdb_words() {
  static const CommandWords words = {"-m", "pdb"};
  return words;
}

const CommandWords& debugpy_words() {
  static const CommandWords words = {"-m", "debugpy", "--listen", "127.0.0.1:${debug_port}",
                                     "--wait-for-client"};
  return words;
}

bool is_python(const CommandWords& command) {
  const std::string_view name = base_name(command.at(0));
  return name.starts_with("python") || name.starts_with("pypy");
}

Result<CommandWords> under_debugger(const CommandWords& command, const CommandWords& debugger) {
  return debugger.at(0) == "-m" ? with_module(command, debugger) : in_front(debugger, command);
}

Result<CommandWords> debugged_on_failure(const CommandWords& command, bool native) {
  if (is_python(command) && !native) {
    const std::string code =
        "import os, sys" + std::string(kTakeTerminal) + std::string(kPostMortem);
    return with_module(command, {"-c", code});
  }
  const std::string code =
      "python import os, signal" + std::string(kTakeTerminal) + std::string(kAtSignal);
  CommandWords words = {"gdb", "-q", "-nx", "-batch", "-return-child-result"};
  for (const char* setting : {"startup-with-shell off", "auto-solib-add off",
                              "print thread-events off", "print inferior-events off"}) {
    words.insert(words.end(), {"-iex", std::string("set ") + setting});
  }
  for (const char* step :
       {"handle all nostop noprint pass",
        "handle SIGSEGV SIGBUS SIGFPE SIGILL SIGABRT SIGSYS stop print", "run"}) {
    words.insert(words.end(), {"-ex", step});
  }
  words.insert(words.end(), {"-ex", code, "--args"});
  return in_front(std::move(words), command);
}

}  // namespace dlaunch
