// The rows of the option table: how libdlring moves data, and dlaunch itself.
#include "base/contract.h"
#include "cli/option_rows.h"

namespace dlaunch {
namespace {

constexpr OptionRow kGeneralRows[] = {
    {"transport", "", "", kChoices<kTransportWords>, "auto", Group::general,
     "How libdlring moves data between the workers", &Options::transport},
    {"verify", "", "", kChoices<kVerifyWords>, "off", Group::general,
     "The workers' libdlring compares results that must be equal on all ranks, and names a rank "
     "whose data are corrupt. sample: the results of one call in 64. results: all results. full: "
     "every rank also does all sums itself",
     &Options::verify},
    {"interface", "", "network-interface network-interfaces nics iface", "NAME|ADDRESS|NET,...", "",
     Group::general,
     "The address at which the workers' libdlring listens, and which this host gives to the "
     "others: eth0, 10.0.0.7, 10.0.0.0/8. The first that fits counts",
     &Options::interface},
    {"port-range", "", "", "FIRST-LAST", "", Group::general,
     "The ports at which libdlring may listen. Without this option the kernel chooses",
     &Options::port_range},
    {"debug", "", "", kChoices<kDebugWords>, "", Group::general,
     "With explain, rank 0 prints how libdlring does each new kind and size of call",
     &Options::debug},
    {"tls", "", "", "", "", Group::general,
     "Encrypt the connections of dlaunch and libdlring (TLS 1.3, keyed by the job's secret)",
     &Options::tls},
    {"config", "", "config-file", "FILE", "", Group::general,
     "Read options from a TOML file: nproc = 4. Flags and the environment come before it",
     &Options::config, kNoFile},
    {"dry-run", "", "", "", "", Group::general, "Print the plan of the job, and do nothing",
     &Options::dry_run, kCommon | kNoFile},
    {"quiet", "q", "", "", "", Group::general, "Of dlaunch's own messages, print only errors",
     &Options::quiet},
    {"verbose", "v", "", "", "", Group::general, "Print what dlaunch does and decides",
     &Options::verbose, kCommon},
    {"check-build", "", "cb", "", "", Group::general,
     "Print what this dlaunch was built with and what it finds here, and do nothing else",
     &Options::check_build, kNoEnv | kNoFile},
    {"allow-run-as-root", "", "", "", "", Group::general,
     "This changes nothing: root may run dlaunch anyway", &Options::allow_run_as_root, kHidden},
    {"oversubscribe", "", "", "", "", Group::general,
     "This changes nothing: more workers than CPUs are no error", &Options::oversubscribe, kHidden},
    {"cflags", "", "", "", "", Group::general,
     "Print what compilers need to find the headers, as pkg-config does. dlaunch --cflags "
     "--libs dlelastic is for libdlelastic",
     &Options::cflags, kNoEnv | kNoFile},
    {"libs", "", "", "", "", Group::general, "Print what the linker needs to find the libraries",
     &Options::libs, kNoEnv | kNoFile},
    {"help", "h", "", "", "", Group::general, "Print the options that most jobs need",
     &Options::help, kNoEnv | kNoFile},
    {"help-all", "", "", "", "", Group::general, "Print all options", &Options::help_all,
     kNoEnv | kNoFile},
    {"version", "V", "", "", "", Group::general, "Print the version", &Options::version,
     kNoEnv | kNoFile},
};

}  // namespace

std::span<const OptionRow> general_rows() { return kGeneralRows; }

}  // namespace dlaunch
