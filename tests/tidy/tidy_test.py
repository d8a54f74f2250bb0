#!/usr/bin/env python3
"""Plants faults in a small tree of its own: tidy.py must report each of them, and nothing else. Run: tidy_test.py"""

import sys

from planted import complaints_about

# (file, its include, the complaint; None: allowed)
INCLUDES = [
    ("launcher/node/node.h", "launcher/wire/node_port.h", None),
    ("launcher/node/watch/rank_news.h", "launcher/wire/monitor_message.h", None),
    ("launcher/node/node.h", "launcher/lead/job_monitor.h", "launcher/node/ must not include"),
    ("launcher/node/watch/rank_news.h", "launcher/lead/monitor/requests.h", "launcher/node/watch/ must not include"),
    ("launcher/node/new_room/some.h", "launcher/lead/report/report.h", "launcher/node/ must not include"),
    ("launcher/lead/membership/node_membership.h", "launcher/node/node.h",
     "launcher/lead/membership/ must not include"),
    ("launcher/lead/start/started_hosts.h", "launcher/node/workers/worker_starter.h",
     "launcher/lead/start/ must not include"),
    ("launcher/lead/job_monitor.h", "launcher/node/watch/node_monitor.h", "launcher/lead/ must not include"),
    ("launcher/wire/node_port.h", "launcher/node/node.h", "launcher/wire/ must not include"),
    ("launcher/process/spawn.h", "launcher/agent/follower.h", "launcher/process/ must not include"),
    ("launcher/agent/follower.h", "launcher/node/node.h", None),
    ("launcher/agent/follower.h", "launcher/lead/job_monitor.h", None),
    ("launcher/agent/follower.h", "launcher/stray.h", "launcher/agent/ must not include"),
    ("ring/kernels/add.h", "ring/stream/frame.h", "ring/kernels/ must not include"),
    ("elastic/job_core.h", "launcher/plan/plan.h", "elastic/ must not include"),
    ("elastic/job_core.h", "elastic/state/plan.h", "elastic/ must not include"),
    ("cli/main.h", "launcher/node/watch/nvml.h", None),
    ("cli/bench/step_model.h", "ring/plan/host_costs.h", None),
    ("cli/bench/step_model.h", "ring/stream/frame.h", "cli/bench/ must not include"),
]


# (file, a line of it, the complaint; None: allowed)
LINES = [
    ("ring/links/job_view.cc", 'const char* name = "DLAUNCH_ROUND";', "a variable's name: take it from base/contract.h"),
    ("cli/main.h", 'const char* text = "set DLAUNCH_ROUND to 1";', "a variable's name: take it from base/contract.h"),
    ("cli/main.h", 'const char* text = "dlaunch " DLAUNCH_VERSION;', None),
    ("cli/main.h", "int rounds = 0;  // DLAUNCH_ROUND", None),
    ("ring/links/trunk.h", "std::thread([] {}).detach();",
     "std::thread(: start_quiet_thread(): it blocks signals, and fails with an Error"),
    ("ring/links/trunk.h", "std::thread thread_;", None),
    ("base/contract.h", 'const char* name = "DLAUNCH_ROUND";', None),
    ("elastic/job_core.h", "const auto rest = std::ranges::remove(all, 0);",
     "std::ranges::remove: the algorithm of std:: without ranges, or a loop"),
    ("elastic/job_core.h", "const bool none = std::ranges::none_of(all, is_old);", None),
]

# A line of two files, each in an unnamed namespace, and the name that must not stand in both; None: it may.
NAMES = [
    ("constexpr int kLimit = 3;", "kLimit"),
    ('const char* kName = "a";', "kName"),
    ('constexpr const char* const kName = "a";', "kName"),
    ("const char *kName = nullptr;", "kName"),
    ("const std::pair<int, int> kRange(1, 2);", "kRange"),
    ("struct Found { int at; };", "Found"),
    ("int sum(int a, int b) { return a + b; }", "sum"),
    ("using Found = std::vector<int>;", None),
]


def main():
    planted = [(path, f'#include "{include}"', complaint and f"{complaint} {include}")
               for path, include, complaint in INCLUDES] + LINES
    wrong = 0
    for path, line, complaint in planted:
        found = complaints_about("tidy.py", path, f"#pragma once\n\n{line}\n", meson=True)
        expected = [] if complaint is None else [f"{path}:3: {complaint}"]
        if found != expected:
            wrong += 1
            print(f"{path} with {line}: expected {expected}, found {found}")
    for line, name in NAMES:
        text = f"namespace {{\n\n{line}\n\n}}  // namespace\n"
        found = complaints_about("tidy.py", "base/b.cc", text, meson=True, beside=["a.cc"])
        expected = [] if name is None else [f"base/b.cc:3: base/a.cc has a {name} of its own: take another name"]
        if found != expected:
            wrong += 1
            print(f"{line} in two files: expected {expected}, found {found}")
    print(f"{len(planted) + len(NAMES)} lines planted, {wrong} judged wrongly")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
