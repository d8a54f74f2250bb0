#include "ring/process_hooks.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "rendezvous/tls_tunnel.h"

namespace dlaunch {
namespace {

struct Registered {
  std::mutex mutex;
  std::vector<ProcessEvents*> objects;
};

void process_exits();

Registered& registered() {
  static auto* const all = [] {
    auto* const made = new Registered;
    before_tunnels_end(process_exits);  // runs before the destructors
    ::pthread_atfork([] { registered().mutex.lock(); }, [] { registered().mutex.unlock(); },
                     [] {
                       for (auto* object : registered().objects) object->on_forked();
                       registered().objects.clear();
                       registered().mutex.unlock();
                     });
    return made;
  }();
  return *all;
}

// Runs after the program's own exit handlers, which may still leave properly.
__attribute__((destructor)) void process_exits() {
  const std::lock_guard lock(registered().mutex);
  for (auto* object : registered().objects) object->on_exit();
}

}  // namespace

void add_process_events(ProcessEvents& object) {
  const std::lock_guard lock(registered().mutex);
  registered().objects.push_back(&object);
}

void remove_process_events(ProcessEvents& object) {
  const std::lock_guard lock(registered().mutex);
  std::erase(registered().objects, &object);
}

}  // namespace dlaunch
