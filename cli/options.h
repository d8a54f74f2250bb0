// Options: the user's options as text, each with its source. Filled from the command line, the
// environment and a --config file by the one option table (option_table.h); only the making of the
// Plan judges, converts and combines them (plan_builder.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace dlaunch {

// A value; `source` is its name in errors: "--nproc", "DLAUNCH_NPROC", "nproc in job.toml". flag:
// it was given on the command line, for this job. A value from the environment or a file may be
// meant for many jobs, and is ignored in one where it has no effect.
struct Text {
  std::optional<std::string> value;
  std::string source;
  bool flag = false;
  explicit operator bool() const { return value.has_value(); }
  const std::string& operator*() const { return *value; }
};
struct Switch {
  bool on = false;
  std::string source;
  bool flag = false;
  explicit operator bool() const { return on; }
};
// May be given several times; all values come from one source.
struct List {
  std::vector<std::string> values;
  std::string source;
  std::vector<std::string> spelled = {};  // on the command line: how each value was given

  // The source of the values, for messages.
  const std::string& source_of(std::size_t value) const {
    return value < spelled.size() ? spelled[value] : source;
  }
  // The source of the last value that sets this variable.
  const std::string& source_of(std::string_view variable) const {
    for (std::size_t value = values.size(); value-- > 0;) {
      if (std::string_view(values[value]).substr(0, values[value].find('=')) == variable) {
        return source_of(value);
      }
    }
    return source;
  }
};

// One of several programs of a job (cli/segments.h).
struct Segment {
  std::vector<std::string> program;  // with its arguments
  Text np, nproc;                    // how many workers run it; 1 if neither is given
  std::string ranks;                 // or its ranks: "0-3,5", "*" for the rest
  List env;
  Text chdir;
  Switch module, no_python;
};

struct Options {
  // workers
  Text nproc;
  Text np;
  List env;
  Text chdir;
  Text app;
  Switch multi_prog;
  Switch module;
  Switch no_python;
  Switch run_path;
  Text role;
  Text roles;
  Text framework;
  Switch multi_gpu;
  Switch horovod;
  // hosts and rendezvous
  Text hosts;
  Text hostfile;
  Text nnodes;
  Text node_rank;
  Text topology;
  Text rack;
  Switch standalone;
  Text rdzv;
  Text rdzv_backend;
  Text master_addr;
  Text master_port;
  Text job_id;
  Text secret_file;
  Text journal;
  Text sites;
  Text site;
  Text site_grace;
  Text site_timeout;
  Text site_wait;
  Text site_linger;
  Text site_journal;
  Text ssh_command;
  Text ssh_logins;
  Text ssh_tree;
  Text ssh_port;
  Text ssh_identity_file;
  Text include;
  Text exclude;
  Text host_discovery_script;
  Text health_check;
  Text emit;
  Text queue;
  Text image;
  Text gpus;
  // placement
  Text bind;
  Switch report_bindings;
  Switch isolate_gpus;
  Switch virtual_local_rank;
  Text numa_binding;
  Text omp_threads;
  // output
  Text output;
  Text log_dir;
  Text redirects;
  Text tee;
  Text only_rank;
  Text progress_bars;
  Text progress;
  Switch timestamps;
  Switch tmux;
  Switch goodput;
  Text trace;
  Switch label;
  Text prefix_template;
  Text stdin_to;
  // failure and time
  Text grace;
  Text timeout;
  Text end_signal;
  Text max_restarts;
  Text restart_scope;
  Text no_restart_codes;
  Text same_failure_limit;
  Text spares;
  Text min_nproc;
  Text max_nproc;
  Text join_timeout;
  Text host_timeout;
  Text hang_timeout;
  Text hang_warning;
  Text chaos;
  Text nccl_record;
  Text straggler;
  Text straggler_ratio;
  Text straggler_window;
  Text stop_at_start;
  Text debugger;
  Text debugger_command;
  Text error_file;
  Text events;
  Text run_dir;
  Text metrics;
  Text monitor_interval;
  // engine and dlaunch itself
  Text transport;
  Text verify;
  Text debug;
  Text interface;
  Text port_range;
  Switch tls;
  Text config;
  Switch quiet;
  Switch verbose;
  Switch dry_run;
  Switch check_build;
  Switch allow_run_as_root;
  Switch oversubscribe;
  Switch cflags;
  Switch libs;
  Switch help;
  Switch help_all;
  Switch version;

  // The translations of other launchers' options: for -v, and warnings that are always shown.
  std::vector<std::string> notes;
  std::vector<std::string> warnings;

  std::vector<std::string> program;  // the program and its arguments, untouched
  std::vector<Segment> segments;     // replaces it in a job of several programs
};

// From the words after argv[0]; reads the environment and the --config file. Precedence: flag,
// environment, file, default. With --help, --version, --cflags or --libs among the flags, the rest
// is not judged. Errors: usage (unknown flag, missing value …), not_found (config file
// unreadable), protocol (config file malformed).
Result<Options> read_options(const std::vector<std::string>& words);

}  // namespace dlaunch
