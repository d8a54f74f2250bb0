#include "launcher/node/mpi/pmix_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "base/contract.h"
#include "base/symbols.h"

namespace dlaunch {
namespace {

constexpr const char* kPmixName = "libpmix.so.2";  // of versions 2 to 6
constexpr const char* kPmixVariable = contract::kPmixLibrary;

Error no_pmix(std::string what) { return {.code = Errc::unsupported, .what = std::move(what)}; }

}  // namespace

std::string pmix_library_name() {
  const char* const chosen = std::getenv(kPmixVariable);
  return chosen != nullptr && *chosen != '\0' ? chosen : kPmixName;
}

Result<PmixLibrary> PmixLibrary::load() {
  const std::string name = pmix_library_name();
  SymbolReader symbols{.library = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL)};
  if (symbols.library == nullptr) return no_pmix(::dlerror());
  PmixLibrary found{};
  const char* (*version)() = nullptr;
  symbols.read(version, "PMIx_Get_version");
  symbols.read(found.init, "PMIx_server_init");
  symbols.read(found.finalize, "PMIx_server_finalize");
  symbols.read(found.register_nspace, "PMIx_server_register_nspace");
  symbols.read(found.deregister_nspace, "PMIx_server_deregister_nspace");
  symbols.read(found.register_client, "PMIx_server_register_client");
  symbols.read(found.setup_fork, "PMIx_server_setup_fork");
  symbols.read(found.generate_regex, "PMIx_generate_regex");
  symbols.read(found.generate_ppn, "PMIx_generate_ppn");
  symbols.read(found.error_string, "PMIx_Error_string");
  if (symbols.missing != nullptr)
    return no_pmix(fmt::format("{} has no {}", name, symbols.missing));
  found.version = pmix_version_in(version());
  if (found.version.major < kOldestPmix) {
    return no_pmix(fmt::format("{} is of version '{}'", name, version()));
  }
  return found;
}

Result<void> PmixLibrary::check(const char* what, pmix::Status status) const {
  if (status == pmix::kSuccess || status == pmix::kSucceededAtOnce) return {};
  return Error{.what = fmt::format("{}: {}", what, error_string(status))};
}

}  // namespace dlaunch
