#include "launcher/lead/start/ssh_talk.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/exit_code.h"
#include "base/record.h"
#include "base/text.h"
#include "base/units.h"

namespace dlaunch {
namespace {

constexpr RecordLimits kOrderLimits{.text = kMaxOrder};
constexpr std::string_view kMark = "dlaunch-ssh ";
constexpr std::size_t kKept = 4096;  // limit of others' output
constexpr std::size_t kMaxTalkLine = 16384;

// For any shell, and without a quote or a newline of its own. One program without a pipe checks
// the file there: od skips past the file's end into a second copy of it, so that the bytes found
// prove both its size and its content. The binary is pushed to the first folder from which programs
// may run: in one that is mounted noexec no file is executable. Our binary removes the folder that
// it was pushed to; if it does not run, the trap does. Where all users may make folders, a folder
// that is not the user's own may hold any file, even one with the build ID of ours.
constexpr const char* kScript =
    "p=$1 n=$2 o=$3 j=$4 k=$5 i=$6; "
    "set -- $(od -An -v -tx1 -j \"$j\" -N \"$k\" \"$p\" \"$p\" 2>/dev/null); "
    "case $p in /tmp/* | /var/tmp/* | /dev/shm/*) [ -O \"${p%/*}\" ];; esac && "
    "if [ \"$*\" = \"$i\" ] && [ -x \"$p\" ]; then exec \"$p\" --ssh-node; fi; "
    "head -c \"$o\" >/dev/null; "
    "echo dlaunch-ssh push; "
    "trap \"rm -rf \\\"\\$d\\\"\" EXIT; "
    "for t in \"${TMPDIR:-/tmp}\" /var/tmp /dev/shm \"$HOME\"; do "
    "d=$(mktemp -d \"$t/dlaunch-push-XXXXXX\" 2>/dev/null) || continue; "
    ": >\"$d/dlaunch\" && chmod 700 \"$d/dlaunch\" && [ -x \"$d/dlaunch\" ] && break; "
    "rm -rf \"$d\"; d=; done; "
    "[ -n \"$d\" ] || { echo no folder to run dlaunch from: set TMPDIR >&2; exit 73; }; "
    "head -c \"$n\" >\"$d/dlaunch\" && chmod 700 \"$d/dlaunch\" || exit 73; "
    "exec \"$d/dlaunch\" --ssh-node \"$d\"";

// The words as od prints them.
std::string hex_words(std::string_view bytes) {
  std::string words;
  for (const char c : bytes) {
    words += fmt::format("{}{:02x}", words.empty() ? "" : " ", static_cast<unsigned char>(c));
  }
  return words;
}

std::vector<std::string> script_arguments(const SameBinary& binary, std::size_t order_size) {
  const std::string id = binary.build_id.empty() ? "none" : hex_words(binary.build_id);
  return {binary.path,
          std::to_string(binary.size),
          std::to_string(order_size),
          std::to_string(binary.size + binary.build_id_at),
          std::to_string(binary.build_id.size()),
          id};
}

// Removes and returns the last line that is not empty.
std::string_view cut_last_line(std::string_view& text) {
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);  // npos + 1 is 0
  const auto start = text.rfind('\n') + 1;
  const auto line = text.substr(start);
  text = text.substr(0, start);
  return line;
}

std::string last_line(std::string_view text) { return escaped(cut_last_line(text)); }

// The last line, except ssh's message about the connection from its ProxyCommand: the reason
// stands before it.
std::string telling_line(std::string_view text) {
  const std::string last = last_line(text);
  while (!text.empty()) {
    const auto line = cut_last_line(text);
    if (line.starts_with("proxy dialer did not ") || line.starts_with("mm_receive_fd: ")) continue;
    return line.empty() ? last : escaped(line);
  }
  return last;
}

void keep_last(std::string& text, std::string_view bytes) {
  text += bytes;
  if (text.size() > 2 * kKept) text.erase(0, text.size() - kKept);
}

}  // namespace

std::string encode(const OrderFrame& frame) {
  Writer out;
  out.put_string(encode_record(frame, kOrderLimits));
  return out.take();
}

Result<OrderFrame> decode_order_frame(std::string_view bytes) {
  OrderFrame frame;
  const bool whole = decode_record(bytes, frame, kOrderLimits);
  if (whole && frame.number >= 0 && frame.nproc >= 0 && frame.login > 0) return frame;
  return Error{.code = Errc::protocol, .what = "a malformed order"};
}

std::vector<std::string> ssh_arguments(const std::vector<std::string>& ssh, const HostPlan& host,
                                       const SameBinary& binary, std::size_t order_size) {
  std::vector<std::string> words = ssh;
  for (const char* option :
       {"BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=15", "ControlMaster=no"}) {
    words.insert(words.end(), {"-o", option});
  }
  words.emplace_back("-T");
  if (host.port) words.insert(words.end(), {"-p", std::to_string(*host.port)});
  if (!host.user.empty()) words.insert(words.end(), {"-l", host.user});
  std::string command = "exec sh -c " + shell_quoted(kScript) + " sh";
  for (const auto& word : script_arguments(binary, order_size)) command += " " + shell_quoted(word);
  words.insert(words.end(), {"--", host.name, std::move(command)});
  return words;
}

std::vector<std::string> srun_arguments(const HostPlan& host, const SameBinary& binary,
                                        std::size_t order_size) {
  std::vector<std::string> words = {"srun",
                                    "--quiet",
                                    "--nodes=1",
                                    "--ntasks=1",
                                    "--nodelist=" + host.name,
                                    "--overlap",
                                    "--cpus-per-task=" + std::to_string(std::max(host.cpus, 1)),
                                    "--cpu-bind=none",
                                    "--mpi=none",
                                    "--input=all",
                                    "--unbuffered",
                                    "--export=ALL",
                                    "--job-name=dlaunch",
                                    "/bin/sh",
                                    "-c",
                                    kScript,
                                    "sh"};
  for (auto& word : script_arguments(binary, order_size)) words.push_back(std::move(word));
  return words;
}

Result<std::vector<std::string>> plain_arguments(std::vector<std::string> words,
                                                 const HostPlan& host, const SameBinary& binary) {
  if (shell_quoted(binary.path) != binary.path) {
    return Error{.code = Errc::usage,
                 .what = fmt::format("{} cannot start dlaunch from the path {}: move it, or say "
                                     "--ssh-command ssh",
                                     words[0], shell_quoted(binary.path))};
  }
  words.insert(words.end(), {host.name, binary.path, kSshNodeWord});
  return words;
}

std::vector<std::string> flux_arguments(const HostPlan& host, const SameBinary& binary) {
  return {"flux",    "exec",      fmt::format("--rank={}", host.place),
          "--dir=/", binary.path, kSshNodeWord};
}

bool asks_srun(std::string_view variable) {
  constexpr std::array<std::string_view, 13> kKept = {
      "SLURM_CONF",        "SLURM_JOB_ID",          "SLURM_JOBID",         "SLURM_CLUSTER_NAME",
      "SLURM_CLUSTERS",    "SLURM_SUBMIT_DIR",      "SLURM_SUBMIT_HOST",   "SLURM_JWT",
      "SLURM_SACK_SOCKET", "SLURM_WORKING_CLUSTER", "SLURM_RESTART_COUNT", "SLURM_JOB_END_TIME",
      "SLURM_JOB_NAME"};
  const auto name = variable.substr(0, variable.find('='));
  if (name.starts_with("SLURM_ARRAY_")) return false;  // the same on all hosts of the job
  return (name.starts_with("SLURM_") || name.starts_with("SRUN_")) &&
         std::ranges::find(kKept, name) == kKept.end();
}

std::string here_line() { return std::string(kMark) + "here\n"; }

std::string ready_line() { return std::string(kMark) + "ready\n"; }

std::string error_line(int exit_code, const std::string& what) {
  return fmt::format("{}error {} {}\n", kMark, exit_code, escaped(what));
}

std::optional<SshTalk::Action> SshTalk::judge(std::string_view line) const {
  // A login script's unfinished line may stand before it.
  const auto mark = line.find(kMark);
  if (mark == line.npos) return std::nullopt;
  line.remove_prefix(mark + kMark.size());
  if (line == "push") return Push{};
  if (line == "here") return Order{};
  if (line == "ready") return Ready{};
  if (!line.starts_with("error ")) return std::nullopt;
  line.remove_prefix(6);
  const auto blank = std::min(line.find(' '), line.size());
  const auto code = parse_int(line.substr(0, blank), 1, 255, "an exit code");
  if (!code) return std::nullopt;
  return Failed{*code, escaped(line.substr(std::min(blank + 1, line.size())))};
}

std::vector<SshTalk::Action> SshTalk::heard(std::string_view bytes) {
  std::vector<Action> actions;
  while (!bytes.empty()) {
    const auto newline = bytes.find('\n');
    line_ += bytes.substr(0, newline);
    bytes.remove_prefix(newline == bytes.npos ? bytes.size() : newline + 1);
    if (newline == bytes.npos && line_.size() > kMaxTalkLine) line_.clear();
    if (newline == std::string_view::npos) break;
    const std::string line = std::exchange(line_, {});
    auto action = judge(line);
    if (!action) {
      keep_last(words_, line + '\n');
      continue;
    }
    if (std::holds_alternative<Push>(*action)) pushed_ = true;
    if (std::holds_alternative<Order>(*action) && !pushed_) continue;  // it has the order
    if (auto* ready = std::get_if<Ready>(&*action)) {
      ready->begun = bytes;
      bytes = {};
    }
    actions.push_back(std::move(*action));
  }
  return actions;
}

void SshTalk::said(std::string_view bytes) { keep_last(errors_, bytes); }

SshTalk::Failed SshTalk::ended(const std::string& how) const {
  std::string words = telling_line(errors_);
  if (words.empty()) words = last_line(words_ + line_);
  return {kExitRendezvous, words.empty() ? starter_ + " " + how + " without a word" : words};
}

std::vector<HostFailure> LoginFailures::all() const {
  std::vector<HostFailure> failures;
  for (const auto& [node, failure] : by_node_) failures.push_back(failure);
  return failures;
}

std::vector<std::string> failure_table(std::vector<HostFailure> failures,
                                       const std::vector<HostPlan>& hosts) {
  const auto name = [&](const HostFailure& failure) -> const std::string& {
    return hosts[static_cast<std::size_t>(failure.node)].name;
  };
  std::ranges::sort(failures, [](const auto& a, const auto& b) { return a.node < b.node; });
  std::size_t width = 0;
  for (const auto& failure : failures) width = std::max(width, name(failure).size());
  std::vector<std::string> lines = {
      fmt::format("cannot start on {} of {} hosts:", failures.size(), hosts.size())};
  for (const auto& failure : failures) {
    lines.push_back(fmt::format("  {:<{}}  {}", name(failure), width, failure.what));
  }
  return lines;
}

int exit_code_of(const std::vector<HostFailure>& failures) {
  const auto first = std::ranges::min_element(
      failures, [](const auto& a, const auto& b) { return a.node < b.node; });
  return first == failures.end() ? kExitOk : first->exit_code;
}

}  // namespace dlaunch
