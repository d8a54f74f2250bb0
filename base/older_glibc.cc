// Functions that a linked-in C++ library and unwinder need, but that the oldest glibc we support
// (2.34) lacks: arc4random() came with 2.36, _dl_find_object() with 2.35. Only for packaged builds,
// whose link lines redirect these names to this file.
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <sys/random.h>

#include <cstddef>
#include <cstdint>

extern "C" [[gnu::visibility("hidden")]] std::uint32_t arc4random() noexcept {
  std::uint32_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) abort();
  return number;
}

#ifdef DLFO_STRUCT_HAS_EH_DBASE
namespace {

struct UnwindSearch {
  std::uintptr_t pc;
  void* eh_frame;
};

// Whether the code belongs to this program or library, and where its tables are.
int find_unwind_tables(dl_phdr_info* info, std::size_t, void* data) {
  auto& search = *static_cast<UnwindSearch*>(data);
  void* tables = nullptr;
  bool is_here = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && search.pc - begin < part.p_memsz) is_here = true;
    if (part.p_type == PT_GNU_EH_FRAME) tables = reinterpret_cast<void*>(begin);
  }
  if (!is_here) return 0;
  search.eh_frame = tables;
  return 1;
}

}  // namespace

// Fills only the field that the unwinder reads: the place of the tables.
extern "C" [[gnu::visibility("hidden")]] int _dl_find_object(void* pc,
                                                             dl_find_object* found) noexcept {
  UnwindSearch search{reinterpret_cast<std::uintptr_t>(pc), nullptr};
  dl_iterate_phdr(find_unwind_tables, &search);
  if (search.eh_frame == nullptr) return -1;
  *found = {};
  found->dlfo_eh_frame = search.eh_frame;
  return 0;
}
#endif
