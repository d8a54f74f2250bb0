#include "launcher/node/watch/native_stacks.h"

#ifdef DLAUNCH_HAVE_LIBDW

#include <cxxabi.h>
#include <dirent.h>
#include <elfutils/libdwfl.h>
#include <poll.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/symbols.h"

namespace dlaunch {
namespace {

// -- The functions of libdw, found at run time: loading it and its own libraries takes longer than
// dlaunch's start should, and only stacks need it.

struct Libdw {
  decltype(&::dwarf_getsrc_die) getsrc_die;
  decltype(&::dwarf_haspc) haspc;
  decltype(&::dwarf_lineno) lineno;
  decltype(&::dwarf_linesrc) linesrc;
  decltype(&::dwfl_addrmodule) addrmodule;
  decltype(&::dwfl_begin) begin;
  decltype(&::dwfl_end) end;
  decltype(&::dwfl_errmsg) errmsg;
  decltype(&::dwfl_frame_pc) frame_pc;
  decltype(&::dwfl_getthread_frames) getthread_frames;
  decltype(&::dwfl_lineinfo) lineinfo;
  decltype(&::dwfl_linux_proc_attach) linux_proc_attach;
  decltype(&::dwfl_linux_proc_find_elf) linux_proc_find_elf;
  decltype(&::dwfl_linux_proc_report) linux_proc_report;
  decltype(&::dwfl_module_addrname) module_addrname;
  decltype(&::dwfl_module_getsrc) module_getsrc;
  decltype(&::dwfl_module_info) module_info;
  decltype(&::dwfl_module_nextcu) module_nextcu;
  decltype(&::dwfl_report_end) report_end;
  decltype(&::dwfl_standard_find_debuginfo) standard_find_debuginfo;
  std::string why_not;  // empty: all of it is there
};

Libdw load_libdw() {
  Libdw dw{};
  SymbolReader symbols{.library = open_library("libdw.so.1")};
  if (symbols.library == nullptr) {
    dw.why_not = "native stacks need libdw.so.1, which this host does not have";
    return dw;
  }
  symbols.read(dw.getsrc_die, "dwarf_getsrc_die");
  symbols.read(dw.haspc, "dwarf_haspc");
  symbols.read(dw.lineno, "dwarf_lineno");
  symbols.read(dw.linesrc, "dwarf_linesrc");
  symbols.read(dw.addrmodule, "dwfl_addrmodule");
  symbols.read(dw.begin, "dwfl_begin");
  symbols.read(dw.end, "dwfl_end");
  symbols.read(dw.errmsg, "dwfl_errmsg");
  symbols.read(dw.frame_pc, "dwfl_frame_pc");
  symbols.read(dw.getthread_frames, "dwfl_getthread_frames");
  symbols.read(dw.lineinfo, "dwfl_lineinfo");
  symbols.read(dw.linux_proc_attach, "dwfl_linux_proc_attach");
  symbols.read(dw.linux_proc_find_elf, "dwfl_linux_proc_find_elf");
  symbols.read(dw.linux_proc_report, "dwfl_linux_proc_report");
  symbols.read(dw.module_addrname, "dwfl_module_addrname");
  symbols.read(dw.module_getsrc, "dwfl_module_getsrc");
  symbols.read(dw.module_info, "dwfl_module_info");
  symbols.read(dw.module_nextcu, "dwfl_module_nextcu");
  symbols.read(dw.report_end, "dwfl_report_end");
  symbols.read(dw.standard_find_debuginfo, "dwfl_standard_find_debuginfo");
  if (symbols.missing != nullptr) dw.why_not = fmt::format("libdw.so.1 lacks {}", symbols.missing);
  return dw;
}

const Libdw& libdw() {
  static const Libdw loaded = load_libdw();
  return loaded;
}

// A thread in an uninterruptible sleep does not stop until that ends.
constexpr Duration kUnwindPatience = std::chrono::seconds(1);
constexpr std::size_t kMaxThreads = 256;
constexpr std::size_t kMaxFrames = 128;

struct Thread {
  pid_t tid = 0;
  std::string name;
  char state = '?';  // from /proc, before we attached
  bool held = false;
  int pending = 0;  // a signal that was about to be delivered
  std::string why_not;
  bool forbidden = false;
  std::vector<Dwarf_Addr> frames;  // innermost first; within the call, not after it
};

// "tid (name) S …", where the name may hold anything, ')' included.
void read_stat(pid_t pid, Thread& thread) {
  std::ifstream file(fmt::format("/proc/{}/task/{}/stat", pid, thread.tid));
  std::string text;
  std::getline(file, text, '\0');
  const auto open = text.find('('), close = text.rfind(") ");
  if (open == std::string::npos || close == std::string::npos || close + 2 >= text.size()) return;
  thread.name = text.substr(open + 1, close - open - 1);
  thread.state = text[close + 2];
}

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> tids;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(
      ::opendir(fmt::format("/proc/{}/task", pid).c_str()), ::closedir);
  while (const dirent* entry = dir ? ::readdir(dir.get()) : nullptr) {
    if (const int tid = std::atoi(entry->d_name); tid > 0) tids.push_back(tid);
  }
  std::ranges::sort(
      tids, [pid](pid_t a, pid_t b) { return (a == pid) > (b == pid) || ((b != pid) && a < b); });
  return tids;
}

// PTRACE_SEIZE instead of PTRACE_ATTACH: it sends no SIGSTOP, which could stay behind, and a
// stopped process stays stopped.
class Held {
 public:
  explicit Held(pid_t pid) : pid_(pid) {
    // Threads that have not stopped yet may create new threads.
    for (std::size_t known = 0; threads.size() < kMaxThreads;) {
      for (const pid_t tid : threads_of(pid)) seize(tid);
      if (threads.size() == known) break;
      known = threads.size();
      wait_all();
    }
  }
  ~Held() { release(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  void release() {
    for (auto& thread : threads) {
      if (std::exchange(thread.held, false)) {
        ::ptrace(PTRACE_DETACH, thread.tid, nullptr, static_cast<long>(thread.pending));
      }
    }
  }

  std::vector<Thread> threads;

 private:
  void seize(pid_t tid) {
    const bool known =
        std::ranges::any_of(threads, [tid](const Thread& t) { return t.tid == tid; });
    if (known || threads.size() >= kMaxThreads) return;
    Thread& thread = threads.emplace_back();
    thread.tid = tid;
    read_stat(pid_, thread);
    if (::ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) != 0) {
      thread.forbidden = errno == EPERM;
      thread.why_not = std::strerror(errno);
    } else {
      ::ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
    }
  }

  void wait_all() {
    const TimePoint deadline = steady_now() + kUnwindPatience;
    for (auto& thread : threads) {
      if (!thread.held && thread.why_not.empty()) wait(thread, deadline);
    }
  }

  static void wait(Thread& thread, TimePoint deadline) {
    int status = 0;
    while (::waitpid(thread.tid, &status, __WALL | WNOHANG) == 0) {
      if (steady_now() >= deadline) {
        thread.why_not = "it sleeps uninterruptibly";
        return;
      }
      ::poll(nullptr, 0, 1);
    }
    if (!WIFSTOPPED(status)) {
      thread.why_not = "it has ended";
      return;
    }
    thread.held = true;
    if (status >> 16 == 0) thread.pending = WSTOPSIG(status);
  }

  const pid_t pid_;
};

struct EndDwfl {
  void operator()(Dwfl* dwfl) const { libdw().end(dwfl); }
};

int add_frame(Dwfl_Frame* state, void* frames) {
  auto& found = *static_cast<std::vector<Dwarf_Addr>*>(frames);
  Dwarf_Addr pc = 0;
  bool exact = false;  // else the address a call returns to
  if (found.size() >= kMaxFrames || !libdw().frame_pc(state, &pc, &exact)) return DWARF_CB_ABORT;
  found.push_back(pc - (exact ? 0 : 1));
  return DWARF_CB_OK;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  if (status == 0) return plain.get();
  return {name, std::strcspn(name, "@")};  // "poll@GLIBC_2.2.5"
}

struct Source {
  const char* file = nullptr;  // null: not known
  int line = 0;
};

// Uses the table of addresses, which GCC writes and clang does not: without it, asks each unit.
Source source_of(Dwfl_Module* module, Dwarf_Addr pc) {
  Source source;
  if (Dwfl_Line* known = libdw().module_getsrc(module, pc); known != nullptr) {
    source.file = libdw().lineinfo(known, nullptr, &source.line, nullptr, nullptr, nullptr);
    return source;
  }
  Dwarf_Addr bias = 0;
  Dwarf_Die* unit = nullptr;
  while ((unit = libdw().module_nextcu(module, unit, &bias)) != nullptr) {
    if (libdw().haspc(unit, pc - bias) <= 0) continue;
    Dwarf_Line* line = libdw().getsrc_die(unit, pc - bias);
    if (line == nullptr || libdw().lineno(line, &source.line) != 0) break;
    source.file = libdw().linesrc(line, nullptr, nullptr);
    break;
  }
  return source;
}

// "train_step(int) at train.cc:42", "poll in /lib/libc.so.6"
std::string describe_frame(Dwfl* dwfl, Dwarf_Addr pc) {
  Dwfl_Module* module = libdw().addrmodule(dwfl, pc);
  if (module == nullptr) return fmt::format("{:#x}", pc);
  const char* name = libdw().module_addrname(module, pc);
  std::string text = name != nullptr ? demangled(name) : fmt::format("{:#x}", pc);
  const Source source = source_of(module, pc);
  if (source.file != nullptr) return text + fmt::format(" at {}:{}", source.file, source.line);
  const char* object =
      libdw().module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
  return object == nullptr ? text : text + fmt::format(" in {}", object);
}

std::string words_for(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "in an uninterruptible sleep";
    case 'T':
      return "stopped";
    default:
      return fmt::format("state {}", state);
  }
}

// Threads often stand in the same places, and finding a place's name may take long.
using Places = std::map<Dwarf_Addr, std::string>;

void tell(Dwfl* dwfl, const Thread& thread, Places& places,
          const std::function<void(const std::string&)>& emit) {
  emit(fmt::format("thread {} \"{}\", {}:", thread.tid, thread.name, words_for(thread.state)));
  if (!thread.why_not.empty()) return emit("  not looked at: " + thread.why_not);
  if (thread.frames.empty()) return emit("  no frame was found");
  int number = 0;
  for (const Dwarf_Addr pc : thread.frames) {
    const auto [place, is_new] = places.try_emplace(pc);
    if (is_new) place->second = describe_frame(dwfl, pc);
    emit(fmt::format("  #{} {}", number++, place->second));
  }
}

}  // namespace

void native_stacks(pid_t pid, const std::function<void(const std::string&)>& emit) {
  if (!libdw().why_not.empty()) return emit(libdw().why_not);
  ::unsetenv("DEBUGINFOD_URLS");  // or libdw would ask the network
  char* no_path = nullptr;
  const Dwfl_Callbacks callbacks{.find_elf = libdw().linux_proc_find_elf,
                                 .find_debuginfo = libdw().standard_find_debuginfo,
                                 .section_address = nullptr,
                                 .debuginfo_path = &no_path};
  const std::unique_ptr<Dwfl, EndDwfl> dwfl(libdw().begin(&callbacks));
  if (!dwfl || libdw().linux_proc_report(dwfl.get(), pid) != 0 ||
      libdw().report_end(dwfl.get(), nullptr, nullptr) != 0) {
    return emit("the memory map of the process cannot be read: it has ended, or is another user's");
  }
  Held held(pid);
  const bool none =
      std::ranges::none_of(held.threads, [](const Thread& thread) { return thread.held; });
  if (none && !held.threads.empty() && held.threads[0].forbidden) {
    return emit(
        "the system does not let dlaunch trace this process: "
        "see kernel.yama.ptrace_scope in ptrace(2), and seccomp in containers");
  }
  if (!none && libdw().linux_proc_attach(dwfl.get(), pid, true) != 0) {
    return emit(fmt::format("its stacks cannot be read: {}", libdw().errmsg(-1)));
  }
  for (auto& thread : held.threads) {
    if (thread.held) libdw().getthread_frames(dwfl.get(), thread.tid, add_frame, &thread.frames);
  }
  held.release();  // names take longer than frames
  Places places;
  for (const auto& thread : held.threads) tell(dwfl.get(), thread, places, emit);
  if (held.threads.size() >= kMaxThreads) emit("further threads were left out");
}

}  // namespace dlaunch

#else

namespace dlaunch {

void native_stacks(pid_t, const std::function<void(const std::string&)>& emit) {
  emit("this dlaunch was built without libdw, which reads native stacks");
}

}  // namespace dlaunch

#endif
