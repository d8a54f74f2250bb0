#include "launcher/wire/stack_lines.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

namespace dlaunch {
namespace {

template <std::size_t N>
bool starts_with_one_of(std::string_view text, const std::array<std::string_view, N>& starts) {
  return std::ranges::any_of(starts,
                             [text](std::string_view start) { return text.starts_with(start); });
}

template <std::size_t N>
bool contains_one_of(std::string_view text, const std::array<std::string_view, N>& parts) {
  return std::ranges::any_of(
      parts, [text](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// -- Native frames

bool is_transfer(std::string_view function, std::string_view object) {
  constexpr std::array<std::string_view, 9> kFunctions = {"gloo::transport::",
                                                          "c10d::ProcessGroupGloo::AsyncWork",
                                                          "MPI_",
                                                          "PMPI_",
                                                          "ompi_",
                                                          "MPIDI_",
                                                          "MPIR_",
                                                          "nccl",
                                                          "mca_"};
  // The threads that only serve connections stand there all the time.
  constexpr std::array<std::string_view, 2> kIdle = {"gloo::transport::tcp::Loop",
                                                     "gloo::transport::uv::"};
  if (starts_with_one_of(function, kIdle)) return false;
  return starts_with_one_of(function, kFunctions) || base_name(object).starts_with("libnccl");
}

// It may wait for other ranks, and nothing on the host shows it.
bool waits_for_gpu(std::string_view function) {
  constexpr std::array<std::string_view, 8> kFunctions = {
      "cuStreamSynchronize", "cudaStreamSynchronize", "cuEventSynchronize", "cudaEventSynchronize",
      "cuCtxSynchronize",    "cudaDeviceSynchronize", "hipStreamSync",      "hipEventSync"};
  return starts_with_one_of(function, kFunctions);
}

bool is_collective(std::string_view function, std::string_view object) {
  constexpr std::array<std::string_view, 8> kFunctions = {
      "c10d::", "gloo::",        "horovod::",   "tsl::CoordinationService",
      "PMIx_",  "opal_progress", "ucp_worker_", "xla::DistributedRuntimeClient"};
  constexpr std::array<std::string_view, 3> kParts = {"CoordinationService",
                                                      "DistributedRuntimeClient", "WaitAtBarrier"};
  constexpr std::array<std::string_view, 5> kObjects = {"libdlring", "libgloo", "libmpi.",
                                                        "libmpich.", "libopen-pal"};
  return waits_for_gpu(function) || starts_with_one_of(function, kFunctions) ||
         contains_one_of(function, kParts) || starts_with_one_of(base_name(object), kObjects);
}

bool is_runtime(std::string_view function, std::string_view object) {
  constexpr std::array<std::string_view, 4> kFunctions = {
      "xla::", "tsl::", "tensorflow::", "jax::"};
  constexpr std::array<std::string_view, 9> kObjects = {
      "libcuda",   "libcudart",  "xla_extension",     "_jax", "libjax", "_xla",
      "libamdhip", "libtensorf", "_pywrap_tensorflow"};
  return starts_with_one_of(function, kFunctions) ||
         starts_with_one_of(base_name(object), kObjects);
}

bool is_c_library(std::string_view function, std::string_view file, std::string_view object) {
  constexpr std::array<std::string_view, 14> kFolders = {
      "./nptl/", "../nptl/", "./csu/",    "../csu/",   "./io/",     "./time/",   "./posix/",
      "./misc/", "./libio/", "./malloc/", "./string/", "./socket/", "./signal/", "./sysdeps/"};
  constexpr std::array<std::string_view, 8> kObjects = {
      "libc.so", "libc-", "libpthread", "ld-linux", "libm.so", "libstdc++", "libgcc_s", "[vdso"};
  return function == "_start" || file.starts_with("../sysdeps/") ||
         file.find("/glibc") != std::string_view::npos || starts_with_one_of(file, kFolders) ||
         starts_with_one_of(base_name(object), kObjects);
}

bool is_interpreter(std::string_view object) {
  return base_name(object).starts_with("python") || base_name(object).starts_with("libpython");
}

CodeKind kind_of_native(std::string_view function, std::string_view file, std::string_view object) {
  if (is_interpreter(object)) return CodeKind::interpreter;
  if (is_transfer(function, object)) return CodeKind::transfer;
  if (is_collective(function, object)) return CodeKind::collective;
  if (is_c_library(function, file, object)) return CodeKind::c_library;
  if (is_runtime(function, object)) return CodeKind::runtime;
  const bool shared = object.find(".so") != std::string_view::npos;
  return shared ? CodeKind::library : CodeKind::program;
}

// "gloo::Context::wait(int)" -> "gloo::Context::wait"; "std::function<void ()>::operator()() const"
// keeps its operator.
std::string without_parameters(std::string_view function) {
  int depth = 0;
  std::string name;
  for (std::size_t i = 0; i < function.size(); ++i) {
    const char c = function[i];
    if (c == '<') ++depth;
    if (c == '(' && depth == 0 && !function.substr(i).starts_with("(anonymous")) break;
    if (depth == 0) name += c;
    if (c == '>' && depth > 0) --depth;
  }
  return name;
}

int line_number(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// "  #0 poll at ./io/poll.c:29", "  #3 0x7f12 in /usr/lib/libx.so", "  #1 f in ./train"
StackFrame native_frame(std::string_view line) {
  line.remove_prefix(std::min(line.find(' ', line.find('#')) + 1, line.size()));
  StackFrame frame;
  std::string_view object;
  if (const auto at = line.rfind(" at "); at != std::string_view::npos) {
    const std::string_view where = line.substr(at + 4);
    const auto colon = where.rfind(':');
    frame.file = std::string(where.substr(0, colon));
    if (colon != std::string_view::npos) frame.line = line_number(where.substr(colon + 1));
    line = line.substr(0, at);
  } else if (const auto in = line.rfind(" in /"); in != std::string_view::npos) {
    object = line.substr(in + 4);
    line = line.substr(0, in);
  }
  if (!line.starts_with("0x")) frame.function = without_parameters(line);
  frame.kind = kind_of_native(frame.function, frame.file, object);
  if (frame.kind == CodeKind::c_library) {
    frame.function.erase(0, std::min(frame.function.find_first_not_of('_'), frame.function.size()));
  }
  return frame;
}

// -- Python frames

CodeKind kind_of_python(std::string_view file) {
  constexpr std::array<std::string_view, 6> kCollective = {
      "torch/distributed/distributed_c10d.py", "torch/distributed/rendezvous.py", "mpi4py/",
      "jax/experimental/multihost_utils.py",   "jax/_src/distributed.py",         "horovod/"};
  constexpr std::array<std::string_view, 4> kFolders = {"site-packages/", "dist-packages/",
                                                        "/lib/python3", "<frozen"};
  // py-spy shortens the names of what was imported from its folders.
  constexpr std::array<std::string_view, 26> kShort = {
      "threading.py",  "queue.py",    "selectors.py",     "socket.py",    "ssl.py",
      "subprocess.py", "runpy.py",    "contextlib.py",    "functools.py", "concurrent/",
      "asyncio/",      "importlib/",  "multiprocessing/", "torch/",       "jax/",
      "jaxlib/",       "tensorflow/", "mpi4py/",          "horovod/",     "numpy/",
      "dlaunch/",      "keras/",      "lightning/",       "accelerate/",  "transformers/",
      "deepspeed/"};
  if (contains_one_of(file, kCollective)) return CodeKind::collective;
  const bool library = contains_one_of(file, kFolders) || starts_with_one_of(file, kShort);
  return library ? CodeKind::library : CodeKind::program;
}

// "    acquire (loader.py:17)"
StackFrame python_frame(std::string_view line) {
  line.remove_prefix(line.find_first_not_of(' '));
  StackFrame frame;
  const auto open = line.rfind(" (");
  frame.function = std::string(line.substr(0, open));
  if (open != std::string_view::npos && line.ends_with(')')) {
    const std::string_view where = line.substr(open + 2, line.size() - open - 3);
    const auto colon = where.rfind(':');
    frame.file = std::string(where.substr(0, colon));
    if (colon != std::string_view::npos) frame.line = line_number(where.substr(colon + 1));
  }
  frame.kind = kind_of_python(frame.file);
  return frame;
}

// -- Threads

struct Process {
  std::vector<StackThread> native;
  std::vector<StackThread> python;
  std::optional<std::size_t> main_python;  // its index
  bool stopped = false;
  bool in_python = false;  // the lines to come belong to a thread of `python`
};

bool is_native_thread(std::string_view line) {
  return line.starts_with("thread ") && line.ends_with(':');
}
bool is_python_thread(std::string_view line) {
  return line.starts_with("Thread ") && line.find(": \"") != std::string_view::npos;
}

void add_line(Process& process, std::string_view line) {
  if (line == kStoppedLine) {
    process.stopped = true;
  } else if (is_native_thread(line)) {
    process.in_python = false;
    process.native.push_back({.stopped = line.ends_with(", stopped:"), .frames = {}});
  } else if (is_python_thread(line)) {
    process.in_python = true;
    if (line.find("\"MainThread\"") != std::string_view::npos)
      process.main_python = process.python.size();
    process.python.emplace_back();
  } else if (process.in_python && line.starts_with("    ")) {
    process.python.back().frames.push_back(python_frame(line));
  } else if (!process.native.empty() && line.starts_with("  #")) {
    process.native.back().frames.push_back(native_frame(line));
  }
}

std::vector<Process> processes_in(const std::vector<std::string>& lines) {
  std::vector<Process> processes(1);
  for (const std::string_view line : lines) {
    if (line.starts_with("below it ")) {
      processes.emplace_back();
    } else {
      add_line(processes.back(), line);
    }
  }
  return processes;
}

// What people call a function that Python code has called; "": not known.
std::string_view python_name(std::string_view function) {
  if (function.starts_with("PyThread_acquire_lock")) return "lock.acquire";
  if (function == "PyOS_Readline") return "input";
  if (function.ends_with("clock_nanosleep")) return "time.sleep";
  return "";
}

// Of an interpreter with debug information the file is known, and not the library.
bool is_source_of_python(std::string_view file) {
  constexpr std::array<std::string_view, 6> kFolders = {"Python/",  "Objects/", "Modules/",
                                                        "Include/", "Parser/",  "Programs/"};
  if (file.starts_with("./")) file.remove_prefix(2);
  return starts_with_one_of(file, kFolders);
}

void name_for_python(StackThread& main) {
  for (StackFrame& frame : main.frames) {
    if (is_source_of_python(frame.file)) frame.kind = CodeKind::interpreter;
    const std::string_view name = python_name(frame.function);
    if (name.empty()) continue;
    frame = {.function = std::string(name), .file = {}, .line = 0, .kind = CodeKind::library};
  }
}

// C code that Python code has called, then the Python code.
void put_python_in(StackThread& main, const StackThread& python) {
  const auto eval = std::ranges::find_if(
      main.frames, [](const auto& frame) { return frame.function.starts_with("_PyEval_"); });
  main.frames.erase(eval, main.frames.end());
  for (auto& frame : main.frames) {
    if (frame.kind == CodeKind::program) frame.kind = CodeKind::library;
  }
  main.frames.insert(main.frames.end(), python.frames.begin(), python.frames.end());
}

std::vector<StackThread> threads_in(Process&& process) {
  std::vector<StackThread> threads = std::move(process.native);
  const auto is_c_of_python = [](const StackFrame& frame) {
    return frame.kind == CodeKind::interpreter || frame.function.starts_with("_PyEval_");
  };
  if (!threads.empty() && std::ranges::any_of(threads.front().frames, is_c_of_python)) {
    name_for_python(threads.front());
  }
  if (!process.python.empty()) {
    if (threads.empty()) threads.emplace_back();
    put_python_in(threads.front(),
                  process.python[process.main_python.value_or(process.python.size() - 1)]);
  }
  if (!threads.empty() && process.stopped) threads.front().stopped = true;
  return threads;
}

bool waits_for_a_process(const std::vector<StackThread>& threads) {
  if (threads.empty()) return true;
  constexpr std::array<std::string_view, 5> kWaits = {"wait4", "waitpid", "__wait4", "__waitpid",
                                                      "waitid"};
  const auto& frames = threads.front().frames;
  const auto inner = std::min<std::size_t>(frames.size(), 2);
  return std::any_of(frames.begin(), frames.begin() + static_cast<std::ptrdiff_t>(inner),
                     [&](const StackFrame& f) { return starts_with_one_of(f.function, kWaits); });
}

}  // namespace

std::vector<StackThread> parse_stack(const std::vector<std::string>& lines) {
  std::vector<StackThread> first;
  for (Process& process : processes_in(lines)) {
    auto threads = threads_in(std::move(process));
    if (threads.empty() || threads.front().frames.empty()) continue;
    if (!waits_for_a_process(threads)) return threads;
    if (first.empty()) first = std::move(threads);
  }
  return first;
}

}  // namespace dlaunch
