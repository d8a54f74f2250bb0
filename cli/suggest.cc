#include "cli/suggest.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "cli/option_table.h"

namespace dlaunch {
namespace {

struct Foreign {
  std::string_view names;  // separated by blanks
  std::string_view advice;
};

// Flags of torchrun, horovodrun, mpirun and srun whose meaning is not here.
constexpr Foreign kForeign[] = {
    {"mca gmca prtemca tune am", "it sets a parameter of Open MPI; leave it out"},
    {"genvlist envlist", "workers inherit the whole environment; leave it out"},
    {"genvall envall genvnone envnone", "workers inherit the environment; use --env to change it"},
    {"rank-by rankfile cpu-set bind-to-core numa-binding cpu-bind mem-bind", "use --bind"},
    {"virtual-local-rank", "use --isolate-gpus, and device 0 in the program"},
    {"gpus-per-node gpus-per-task gres", "use --nproc gpu or --isolate-gpus"},
    {"display-map display-allocation display-topo display", "use --report-bindings or --dry-run"},
    {"N", "use --nproc for workers per machine or --nnodes for machines"},
    {"no-stall-check", "use --hang-warning 0"},
    {"pernode", "use --nproc 1"},
    {"nodelist w", "use --hosts"},
    {"c cpus-per-task", "use -n for workers or --omp-threads for threads of each"},
    {"rdzv-conf", "use --join-timeout for its join_timeout, and leave out the rest"},
    {"local-addr", "use --interface"},
    {"role log-line-prefix-template start-method run-path logs-specs event-log-handler",
     "this version has no such thing; leave it out"},
    {"signals-to-handle forward-signals", "signals are passed on; leave it out"},
    {"kill-on-bad-exit K", "a failure ends the job in any case; leave it out"},
    {"unbuffered u", "what is written is shown at once; leave it out"},
    {"outfile-pattern errfile-pattern error o e", "use --log-dir"},
    {"time", "use --timeout"},
    {"merge-stderr-to-stdout", "use 2>&1"},
    {"reset-limit", "use --max-restarts"},
    {"ssh-port p", "use --ssh-command 'ssh -p PORT'"},
    {"ssh-identity-file", "use --ssh-command 'ssh -i FILE'"},
    {"start-timeout elastic-timeout", "use --join-timeout"},
    {"network-interface network-interfaces nics", "use --interface"},
    {"gloo mpi", "the program chooses how to communicate; leave it out"},
};

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the matrix: the one before last is needed for swaps.
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string nearest_option(std::string_view name) {
  constexpr std::size_t kLongest = 40;
  if (name.size() < 2 || name.size() > kLongest) return "";
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(1, wanted.size() / 3) + 1;
  const auto consider = [&](std::string_view candidate) {
    const std::size_t distance = edit_distance(wanted, candidate);
    if (candidate.size() > 1 && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  };
  for (const OptionRow& row : option_table()) {
    consider(row.name);
    for (const auto alias : split_words(row.aliases, ' ')) consider(alias);
  }
  return std::string(best);
}

std::string advice_for(std::string_view name) {
  if (name.size() == 1 && find_option(name) != nullptr) return "; a letter has one dash";
  std::string spelled(name);
  std::replace(spelled.begin(), spelled.end(), '_', '-');
  for (const Foreign& foreign : kForeign) {
    for (const auto known : split_words(foreign.names, ' ')) {
      if (known == spelled) return fmt::format("; {}", foreign.advice);
    }
  }
  const std::string near = nearest_option(name);
  return near.empty() ? near : fmt::format("; did you mean '--{}'?", near);
}

}  // namespace dlaunch
