// A machine for tests of plans, and the plans that command lines make on it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "cli/plan_builder.h"

namespace dlaunch {

using Words = std::vector<std::string>;

// Eight CPUs on two sockets, files and variables as the test says.
struct FakeMachine {
  std::map<std::string, std::string> env;
  std::map<std::string, std::string> files;
  std::map<std::string, FileKind> kinds;
  std::string topology = "package:2 numa:1 l3:2 core:2 pu:1";
  UsableCpus cpus{8, 0};
  std::vector<GpuFiles> gpus;
  std::map<std::string, int, std::less<>> accelerators = {{"xpu", 0}, {"hpu", 0}};
  std::vector<Hca> hcas;
  bool terminal = false;
  int topology_asked = 0;
  std::map<std::string, int> resolved;           // how often
  std::optional<Duration> time_left;             // of a Slurm job
  std::map<std::string, std::string> flux = {};  // what it prints for which words
  std::string any = "10.0.0.5";                  // address of ours
  std::string loopback = "127.0.0.1";

  Machine machine() {
    Machine m;
    m.cpus = cpus;
    m.hostname = "here";
    m.stdout_is_terminal = m.stderr_is_terminal = m.has_terminal = terminal;
    m.topology = [this] {
      ++topology_asked;
      return synthetic_topology(topology);
    };
    m.gpus = [this] { return gpus; };
    m.accelerators = [this](std::string_view kind) -> std::optional<int> {
      const auto found = accelerators.find(kind);
      if (found == accelerators.end()) return std::nullopt;
      return found->second;
    };
    m.hcas = [this] { return hcas; };
    m.local_address = [this](const std::string& host) -> Result<std::string> {
      ++resolved[host];
      if (host == "here") return std::string("10.0.0.1");
      if (host == "debian") return std::string("127.0.1.1");  // its own name
      if (host == "localhost" || host == "127.0.0.1") return std::string("127.0.0.1");
      if (host == "::1") return host;
      return Error{.what = "another machine"};
    };
    m.read_file = [this](const std::string& path) -> Result<std::string> {
      if (files.contains(path)) return files[path];
      return Error{.code = Errc::not_found, .what = "read " + path + ": No such file or directory"};
    };
    m.file_kind = [this](const std::string& path) {
      return kinds.contains(path) ? kinds[path] : FileKind::absent;
    };
    m.can_create = [](const std::string& path) -> Result<void> {
      if (path.starts_with("/full")) return Error{.what = "write " + path + ": No space"};
      return {};
    };
    m.check_secret = [](const std::string& path) -> Result<void> {
      if (path == "secret") return {};
      return Error{.code = Errc::not_found, .what = "open secret file " + path};
    };
    m.environment = [this](const std::string& name) -> std::optional<std::string> {
      if (env.contains(name)) return env[name];
      return std::nullopt;
    };
    m.new_job_id = [] { return "random"; };
    m.ask_flux = [this](const Words& words) -> Result<std::string> {
      std::string line;
      for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
      if (flux.contains(line)) return flux[line];
      return Error{.what = "flux " + line + " ended with exit code 1: no broker"};
    };
    m.slurm_time_left = [this](const std::string&) { return time_left; };
    m.any_address = [this] { return any; };
    m.loopback = [this] { return loopback; };
    m.address_towards = [](const std::string& host) -> Result<std::string> {
      if (host == "alias") return Error{.code = Errc::usage, .what = "resolve host 'alias': no"};
      if (host == "here" || host == "localhost") return std::string("127.0.0.1");
      if (host == "there2") return std::string("10.0.0.2");
      return std::string("10.0.0.1");
    };
    m.interface_address = [](const std::string& name) -> Result<std::string> {
      if (name == "none0") return Error{.code = Errc::usage, .what = "no interface 'none0'"};
      return std::string("10.9.9.9");
    };
    m.folder = [] { return std::string("/work"); };
    m.whole_environment = [this] {
      std::vector<std::string> all;
      for (const auto& [name, value] : env) all.push_back(name + "=" + value);
      return all;
    };
    return m;
  }

  Result<BuiltPlan> build(const Words& words) {
    auto options = read_options(words);
    if (!options) return options.error();
    return build_plan(*options, machine());
  }
  BuiltPlan built(const Words& words) {
    auto result = build(words);
    REQUIRE_MESSAGE(result, (result ? "" : result.error().what));
    return *result;
  }
  Plan plan(const Words& words) { return built(words).plan; }
  // The exit code and the sentence.
  std::string refused(const Words& words) {
    auto result = build(words);
    if (result) return "accepted";
    CHECK(result.error().what.find('\n') == std::string::npos);
    return std::to_string(exit_code_of(result.error())) + " " + result.error().what;
  }
};

// "a:2 b:0 …", a star behind the one that leads.
inline std::string hosts_of(const Plan& plan) {
  std::string text;
  for (const auto& host : plan.nodes.hosts) {
    text += (text.empty() ? "" : " ") + host.name + ":" + std::to_string(host.nproc) +
            (host.leads ? "*" : "");
  }
  return text;
}

}  // namespace dlaunch
