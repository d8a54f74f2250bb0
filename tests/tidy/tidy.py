#!/usr/bin/env python3
"""Rules of the house as tests: include arrows, banned calls, dead files. Run: tidy.py SOURCE_DIR"""

import pathlib
import re
import sys

# A layer may include itself and these. ring sees of rendezvous only what a client needs.
ARROWS = {
    "base": set(),
    "rendezvous": {"base"},
    "ring": {"base", "rendezvous"},
    "elastic": {"base"},
    # Beside base only the public headers of libdlring, like any program.
    "elastic/state": {"base"},
    # Only the public headers.
    "python": set(),
    "launcher": {"base", "rendezvous", "elastic"},
    "cli": {"base", "rendezvous", "elastic", "launcher"},
    "cli/bench": {"base"},
    "cli/doctor": {"base", "launcher"},
    "examples": set(),
}
# Within a layer: a room may include itself and these. Of rooms within rooms the innermost one counts. What
# stands in no room may include them all, and no room includes it. No room of launcher/node may include one of
# launcher/lead, and none of launcher/lead one of launcher/node: each reaches the other by messages only.
SHARED = {"plan", "wire", "process", "output"}
ROOM_ARROWS = {
    "launcher": {
        "plan": set(),
        "wire": set(),
        "process": {"wire"},
        "output": {"plan"},
        "node/placement": {"plan"},
        "node/workers": SHARED,
        "node/mpi": {"process", "node/workers"},
        "node/watch": {"plan", "wire", "process", "node/workers"},
        "node": SHARED | {"node/placement", "node/workers", "node/mpi", "node/watch"},
        "lead/report": {"wire", "output"},
        "lead/events": {"wire", "output"},
        "lead/metrics": {"wire", "process", "lead/events", "lead/control"},
        "lead/monitor": {"wire", "lead/events"},
        "lead/control": {"wire", "process"},
        "lead/start": SHARED | {"lead/report"},
        "lead/election": {"plan", "wire", "process"},
        "lead/membership": {"plan", "wire", "lead/monitor", "lead/control"},
        "lead": SHARED | {"lead/report", "lead/events", "lead/metrics", "lead/monitor", "lead/control", "lead/start", "lead/election",
                          "lead/membership"},
        "agent": SHARED | {"node", "node/watch", "node/workers", "lead", "lead/control", "lead/election",
                           "lead/membership", "lead/start"},
    },
    "ring": {
        "kernels": set(),
        "call": {"kernels"},
        "plan": {"kernels", "call"},
        "compress": {"kernels", "call"},
        "links": {"kernels", "call", "plan"},
        "shm": {"kernels", "call", "plan", "links"},
        "stream": {"kernels", "call", "plan"},
        "hosts": {"kernels", "call", "plan", "stream"},
        "device": {"kernels", "call", "stream"},
        "sites": {"kernels", "call", "compress", "links"},
        "torch": set(),
        "profiler": set(),
    },
}
RING_MAY_SEE = {"rendezvous/store.h", "rendezvous/crowd.h", "rendezvous/handshake.h", "rendezvous/store_server_thread.h",
                "rendezvous/tls_tunnel.h", "rendezvous/worker_message.h"}
# Pure, so that it predicts the library's choices and costs instead of imitating them.
BENCH_MAY_SEE = {"ring/plan/host_costs.h", "ring/plan/schedule.h"}
# Heavy or foreign headers, each behind the files that need it.
CONFINED = {
    "asio": r"(rendezvous/store_server(_thread)?\.(h|cc)|launcher/|tests/)",
    "hwloc": r"launcher/node/placement/topology_hwloc\.cc",
    "elfutils": r"launcher/node/watch/native_stacks\.cc",
    "CLI": r"cli/",
    "Python": r"python/binding/limited\.h",
    "ATen": r"ring/torch/",
    "c10": r"ring/torch/",
    "cuda": r"ring/device/libraries\.h",
    "nccl": r"ring/device/libraries\.h",
    "curl": r"rendezvous/http_client\.cc",
    "nlohmann": r"(launcher/|rendezvous/etcd_message\.cc|cli/bench/|cli/ctl/|cli/doctor/findings_json|cli/report/report_data|tests/)",
    "pybind11": r"ring/torch/",
    "openssl": r"(rendezvous/openssl\.h|tests/)",
    "torch": r"ring/torch/",
    "xxhash": r"ring/kernels/hash\.cc",
    "zlib": r"(elastic/state/pull\.cc|examples/)",
}
# Pure cores: no clock, no system calls, no containers with an accidental order.
CORES = re.compile(
    r"(elastic/(?!state/|include/)|elastic/state/(holding|plan|registry|sampler)\.|"
    r"rendezvous/(store_core|wire|handshake|etcd_message)\.|"
    r"cli/bench/(step_model|advice)\.|ring/(plan/|compress/|call/(plane|some_quorum)\.|stream/frame\.|sites/(payload_sources|site_(core|journal|merge|message|order))\.|device/(device_choice|host_granules|nccl_steps)\.)|"
    r"launcher/(plan/host|lead/(report/|job_events|events/(event_feed|job_event)|metrics/(bandwidth_samples|goodput_counters|http_request|job_counters|metrics_text)|control/(control_request|job_status|progress_line|run_pace)|membership/(job_slots|node_)|job_monitor|monitor/|start/host_quorum)|output/(line_|traceback_)|wire/after_|"
    r"node/(node_session|placement/binding|workers/worker_env|mpi/(pmi_core|pmix_job)))\w*\.)"
)
BANNED_IN_CORES = [
    (r"\bsteady_now\(|::now\(", "take a TimePoint as an argument"),
    (r"\bunordered_(map|set)\b", "std::map or std::set: the order must not depend on hashing"),
    (r"#include <(thread|mutex|sys/socket\.h|sys/epoll\.h)>", "cores do no I/O and have no threads"),
]
BANNED = [
    (r"\bsystem\(", "posix_spawn or clone: no shell in between"),
    (r"\bstd::(cout|cerr)\b", "base/log.h or the output hub"),
    (r"\bsleep_for\(|\busleep\(", "wait for the condition itself"),
    # ring/call/spread.cc gives up the core in the one place where that is measured to pay.
    (r"\bstd::this_thread::yield\(|(?<!::)\bsched_yield\(", "offer_core(), or sleep on a futex"),
    (r"\bTODO(?!\()", "TODO(reason)"),
    # clang 14 does not compile them with the headers of GCC 12.
    (r"\bstd::(views|ranges::(subrange|stable_partition|partition|remove|remove_if|unique|rotate|search|equal_range))\b",
     "the algorithm of std:: without ranges, or a loop"),
]
RAW_THREAD = (r"\bstd::j?thread( \w+)?\(", "start_quiet_thread(): it blocks signals, and fails with an Error")
# ring/torch: a module that may not link base. cli/bench: threads that measure.
MAY_START_THREADS = ("base/quiet_thread.h", "ring/torch/", "cli/bench/", "examples/")
# Clocks that somebody may set: for the time stamps of lines, and for nothing that decides.
WALL_CLOCK = (r"\bsystem_clock\b|\bCLOCK_REALTIME\b|\bgettimeofday\(|\btime\((nullptr|NULL|0)\)",
              "steady_now(): that clock cannot jump")
# event_log: events bear the time that users know, too. slurm_time: Slurm says when a job ends by that clock. doctor: compares the hosts'.
# journal_writer: the journal of a site is for people, and a later endpoint of a site has a larger incarnation.
MAY_READ_WALL_CLOCK = {"launcher/output/output_printer.cc", "launcher/lead/events/event_log.cc",
                       "cli/slurm_time.cc", "cli/doctor/doctor.cc", "ring/sites/journal_writer.cc"}
# The names that dlaunch and its workers agree on.
CONTRACT = "base/contract.h"
OWN_VARIABLE = re.compile(r'"[^"\n]*\bDLAUNCH_(?!VERSION\b)\w*')
CODE = ("base", "rendezvous", "ring", "elastic", "python", "launcher", "cli", "examples")


# A layer inside another one's folder: (what it is called, where it is).
ROOMS = [("cli/bench", "cli/bench/"), ("cli/doctor", "cli/doctor/"), ("elastic/state", "elastic/state/"), ("elastic/state", "elastic/include/")]
# Who may use the libraries as programs do.
PROGRAMS = {"ring", "elastic/state", "python", "cli/bench", "cli/doctor", "examples"}


def layer_of(path):
    return next((room for room, folder in ROOMS if path.startswith(folder)), path.split("/")[0])


def room_of(path):
    rooms = ROOM_ARROWS.get(path.split("/")[0], {})
    folder = path.split("/")[1:-1]
    while folder and "/".join(folder) not in rooms:
        folder.pop()
    return "/".join(folder)


def strip_comments(text):
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def check_includes(path, line_no, line, complain):
    match = re.match(r'\s*#include ["<]([^">]+)[">]', line)
    if not match:
        return
    target = match.group(1)
    top = target.split("/")[0]
    layer = layer_of(path)
    if top in ("base", "rendezvous", "ring", "elastic", "python", "launcher", "cli"):
        allowed = top in ARROWS[layer] or layer == "cli/bench" and target in BENCH_MAY_SEE
        if top != layer.split("/")[0] and not allowed:
            complain(path, line_no, f"{layer}/ must not include {target}")
        if top == "elastic" and layer_of(target) != layer and "/" in layer + layer_of(target):
            complain(path, line_no, f"{layer}/ must not include {target}")
        room, seen = room_of(path), room_of(target)
        if top == layer and room and seen not in ROOM_ARROWS[layer][room] | {room}:
            complain(path, line_no, f"{layer}/{room}/ must not include {target}")
        if layer == "ring" and top == "rendezvous" and target not in RING_MAY_SEE:
            complain(path, line_no, f"ring/ must not include {target}")
    if top == "dlaunch" and layer not in PROGRAMS:
        complain(path, line_no, f"{layer}/ must not include <{target}>")
    confined = CONFINED.get(re.split(r"[/.]", target)[0])
    if confined and "<" in line and not re.match(confined, path):
        complain(path, line_no, f"<{target}> is confined to {confined}")


def check_file(root, path, complain):
    text = (root / path).read_text()
    if not text.endswith("\n") or "\t" in text or "\r" in text:
        complain(path, 1, "tab, carriage return, or no newline at the end")
    for line_no, line in enumerate(text.splitlines(), 1):
        check_includes(path, line_no, line, complain)
        if len(line) > 100:
            complain(path, line_no, f"{len(line)} columns, 100 allowed")
    bare = strip_comments(text)
    for match in [] if path == CONTRACT else OWN_VARIABLE.finditer(bare):
        complain(path, bare.count("\n", 0, match.start()) + 1, f"a variable's name: take it from {CONTRACT}")
    rules = BANNED + (BANNED_IN_CORES if CORES.match(path) else [])
    if path not in MAY_READ_WALL_CLOCK:
        rules = rules + [WALL_CLOCK]
    if not path.startswith(MAY_START_THREADS):
        rules = rules + [RAW_THREAD]
    for pattern, instead in rules:
        source = text if "TODO" in pattern else bare
        for match in re.finditer(pattern, source):
            complain(path, source.count("\n", 0, match.start()) + 1, f"{match.group().strip()}: {instead}")
    if path.endswith(".cc") and (root / path).with_suffix(".h").exists():
        own = path[:-3] + ".h"
        first = re.search(r'#include ["<]([^">]+)[">]', bare)
        if first and first.group(1) != own:
            complain(path, 1, f"includes its own header {own} first")
    if path.endswith(".h") and "#pragma once" not in text and "#ifndef" not in text:
        complain(path, 1, "no #pragma once")


def check_named_in_meson(root, path, complain):
    folder = (root / path).parent
    while not (folder / "meson.build").exists():
        folder = folder.parent
    text = (folder / "meson.build").read_text()
    # Named whole, by its stem, or by the stem's last word where a loop puts names together.
    stem = pathlib.Path(path).stem
    if not re.search(rf"'({re.escape(stem)}(\.\w+)?|{re.escape(stem.split('_')[-1])})'", text):
        complain(path, 1, f"not named in {folder.relative_to(root)}/meson.build")


# script/build compiles several files as one: what two unnamed namespaces of a program or library name alike
# must be alike, and an overload of another file's function might be the one that is called.
UNNAMED = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.M | re.S)
OWN_NAME = re.compile(
    r"^(?:using (\w+) = .*|const(?:expr|init)? [\w:<>,*& ]+[ *&](k\w+)\b.*|(?:struct|enum class|class|enum) (\w+)\b.*\{.*"
    r"|(?!TEST_CASE)[A-Za-z][\w:<>,&* ]*[ &*](\w+)\([^;{]*\) (?:const )?\{.*)$", re.M)


def heap_of(path):
    parts = path.split("/")
    if parts[0] in ("tests", "examples") or path.startswith(("ring/torch/", "cli/ctl/")):
        return path if parts[:3] == ["tests", "unit", "device"] else "/".join(parts[:3])
    return layer_of(path)


def check_unnamed(path, text, seen, complain):
    for body in UNNAMED.finditer(text):
        for found in OWN_NAME.finditer(body.group(1)):
            name = next(group for group in found.groups() if group)
            other, alike = seen.setdefault((heap_of(path), name), (path, found.group()))
            if other != path and not (found.group(1) and alike == found.group()):
                at = body.start(1) + found.start()
                complain(path, text.count("\n", 0, at) + 1, f"{other} has a {name} of its own: take another name")


# dlaunch holds the ring, too: two types of one name would share their members' code, whichever the linker
# takes.
TYPE = re.compile(r"^(?:struct|class|enum class) (?:\[\[nodiscard\]\] |alignas\(\w+\) )*(\w+)(?: final)?(?: : [^;{]+)? \{", re.M)
NOT_IN_DLAUNCH = ("examples/", "python/", "ring/profiler/", "cli/bench/", "cli/ctl/", "elastic/state/", "ring/torch/")


def check_types(path, text, seen, complain):
    for found in TYPE.finditer(text):
        other = seen.setdefault(found.group(1), path)
        if other != path:
            line = text.count("\n", 0, found.start()) + 1
            complain(path, line, f"{other} has a {found.group(1)}, too: take another name")


def main():
    root = pathlib.Path(sys.argv[1])
    problems = []

    def complain(path, line_no, what):
        problems.append(f"{path}:{line_no}: {what}")

    count = 0
    unnamed, types = {}, {}
    for folder in CODE:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".cc", ".h", ".hpp", ".c"):
                continue
            path = str(file.relative_to(root))
            check_file(root, path, complain)
            if file.suffix == ".h" and not path.startswith(NOT_IN_DLAUNCH):
                check_types(path, file.read_text(), types, complain)
            if file.suffix in (".cc", ".c"):
                check_named_in_meson(root, path, complain)
                check_unnamed(path, file.read_text(), unnamed, complain)
            count += 1
    for file in sorted((root / "tests").rglob("*.cc")):
        check_unnamed(str(file.relative_to(root)), file.read_text(), unnamed, complain)
    print("\n".join(problems) or f"{count} files are tidy")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
