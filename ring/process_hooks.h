// Process events outside the library's control: the process forks, or exits without leaving its
// communicators. Registered objects get both.
//
// - A forked child holds copies of all sockets. Open copies would hide the parent's death from its
//   peers; so the child closes them at once.
// - exit() and a return from main() are a departure in good order, unlike a kill.
//
// The process has one list of the registered objects; it is never destroyed, because it is needed
// last.
#pragma once

namespace dlaunch {

class ProcessEvents {
 public:
  virtual ~ProcessEvents() = default;
  // In the child right after fork(); other threads of the parent do not exist here and may have
  // held any lock. The object gets no further events in the child.
  virtual void on_forked() = 0;
  // The process exits normally; other threads may still be running.
  virtual void on_exit() = 0;
};

// Any thread. An object must be removed before it is destroyed, except in a forked child.
void add_process_events(ProcessEvents& object);
void remove_process_events(ProcessEvents& object);

}  // namespace dlaunch
