#include "cli/options.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include <doctest/doctest.h>

#include "cli/option_table.h"
#include "tests/unit/cli/scoped_env.h"

using namespace dlaunch;

namespace {

class ScopedFile {
 public:
  explicit ScopedFile(const std::string& text) {
    char name[] = "/tmp/dl-config-XXXXXX";
    const int fd = ::mkstemp(name);
    REQUIRE(fd >= 0);
    ::close(fd);
    path_ = name;
    std::ofstream(path_) << text;
  }
  ~ScopedFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Options got(const std::vector<std::string>& words) {
  auto options = read_options(words);
  REQUIRE_MESSAGE(options, (options ? "" : options.error().what));
  return *options;
}

Error options_error(const std::vector<std::string>& words) {
  auto options = read_options(words);
  REQUIRE_FALSE(options);
  return options.error();
}

}  // namespace

TEST_CASE("torchrun's variables count if ours are not set, and not inside a worker") {
  const ScopedEnv nodes("PET_NNODES", "2"), workers("PET_NPROC_PER_NODE", "4"),
      address("PET_MASTER_ADDR", "head");
  {
    const auto options = read_options({"train"});
    REQUIRE(options);
    CHECK((*options->nnodes == "2" && options->nnodes.source == "PET_NNODES"));
    CHECK(*options->nproc == "4");
    CHECK(*options->master_addr == "head");
    CHECK(*read_options({"--nnodes", "3", "train"})->nnodes == "3");
  }
  {
    const ScopedEnv ours("DLAUNCH_NNODES", "5");
    const auto options = read_options({"train"});
    CHECK((*options->nnodes == "5" && options->nnodes.source == "DLAUNCH_NNODES"));
    const ScopedEnv none("DLAUNCH_NNODES", "");
    CHECK(read_options({"train"})->nnodes.source == "PET_NNODES");
  }
  const ScopedEnv inside("DLAUNCH_ROUND", "1");
  CHECK(!read_options({"train"})->nnodes);
}

TEST_CASE("precedence in every combination: flag, environment, file, default") {
  const ScopedFile file("grace = \"3s\"\ntimestamps = false\nenv = ['A=file']\n");
  for (int mask = 0; mask < 8; ++mask) {
    const bool flag = (mask & 4) != 0;
    const bool env = (mask & 2) != 0;
    const bool config = (mask & 1) != 0;
    std::optional<ScopedEnv> grace;
    std::optional<ScopedEnv> timestamps;
    if (env) {
      grace.emplace("DLAUNCH_GRACE", "2s");
      timestamps.emplace("DLAUNCH_TIMESTAMPS", "1");
    }
    std::vector<std::string> words;
    if (config) words.insert(words.end(), {"--config", file.path()});
    if (flag)
      words.insert(words.end(), {"--grace_period", "1s", "--timestamps=false", "-x", "A=flag"});
    words.push_back("prog");
    const auto options = got(words);
    CAPTURE(mask);
    CHECK(options.grace.value.value_or("default") == (flag     ? "1s"
                                                      : env    ? "2s"
                                                      : config ? "3s"
                                                               : "default"));
    CHECK(options.grace.source == (flag     ? "--grace_period"
                                   : env    ? "DLAUNCH_GRACE"
                                   : config ? "grace in " + file.path()
                                            : ""));
    CHECK(options.timestamps.on == (!flag && env));
    const std::vector<std::string> from_flag{"A=flag"};
    const std::vector<std::string> from_file{"A=file"};
    CHECK(options.env.values == (flag     ? from_flag
                                 : config ? from_file
                                          : std::vector<std::string>{}));
  }
}

TEST_CASE("every option that takes a value is read from flag, environment and file alike") {
  for (const auto& row : option_table()) {
    const auto* text = std::get_if<Text Options::*>(&row.target);
    if (text == nullptr) continue;
    CAPTURE(row.name);
    const std::string flag = "--" + std::string(row.name);
    if (row.name == "config") continue;
    CHECK((got({flag, "some,value", "p"}).**text).value == "some,value");
    {
      const ScopedEnv env(env_name(row).c_str(), "some,value");
      const auto options = got({"p"});
      CHECK((options.**text).value == "some,value");
      CHECK((options.**text).source == env_name(row));
      CHECK((got({flag, "flag", "p"}).**text).value == "flag");
    }
    const ScopedFile file(std::string(row.name) + " = 'some,value'\n");
    CHECK((got({"--config", file.path(), "p"}).**text).value == "some,value");
  }
}

TEST_CASE("the last of several flags counts, lists keep all") {
  const auto options = got({"--nproc", "2", "--ppn", "3", "-x", "A=1", "--env", "B=[2],{3}", "p"});
  CHECK(*options.nproc == "3");
  CHECK(options.nproc.source == "--ppn");
  CHECK(options.env.values == std::vector<std::string>{"A=1", "B=[2],{3}"});
}

TEST_CASE("an empty variable counts as not set") {
  const ScopedEnv env("DLAUNCH_NPROC", "");
  CHECK_FALSE(got({"p"}).nproc);
}

TEST_CASE("the config file may be named in the environment") {
  const ScopedFile file("nproc = 5\n");
  const ScopedEnv env("DLAUNCH_CONFIG", file.path().c_str());
  CHECK(*got({"p"}).nproc == "5");
}

TEST_CASE("a dlaunch started by a worker does not take the outer job's variables for its own") {
  const ScopedEnv job("DLAUNCH_JOB_ID", "outer");
  const ScopedEnv rdzv("DLAUNCH_RDZV", "tcp://127.0.0.1:1");
  const ScopedEnv transport("DLAUNCH_TRANSPORT", "tcp");
  CHECK(*got({"p"}).job_id == "outer");
  const ScopedEnv round("DLAUNCH_ROUND", "1");
  const auto options = got({"p"});
  CHECK_FALSE(options.job_id);
  CHECK_FALSE(options.rdzv);
  CHECK(*options.transport == "tcp");
  CHECK(*got({"--job-id", "inner", "p"}).job_id == "inner");
}

TEST_CASE("config files: arrays, aliases, and refused lines") {
  const ScopedFile good("only-rank = [0, '2-5']\nnproc_per_node = 8\n");
  const auto options = got({"--config", good.path(), "p"});
  CHECK(*options.only_rank == "0,2-5");
  CHECK(*options.nproc == "8");

  const ScopedFile unknown("nproc = 2\nlogdir = 'x'\n");
  const auto error = options_error({"--config", unknown.path(), "p"});
  CHECK(error.code == Errc::protocol);
  CHECK(error.what ==
        unknown.path() + ":2: 'logdir' is not an option for a file; did you mean 'log-dir'?");
  const ScopedFile twice("nproc = 2\nppn = 3\n");
  CHECK(options_error({"--config", twice.path(), "p"}).what ==
        twice.path() + ":2: 'ppn' is the same option as an earlier line's");
  const ScopedFile help("help = true\n");
  CHECK(options_error({"--config", help.path(), "p"}).code == Errc::protocol);
  const ScopedFile boolean("timestamps = 7\n");
  CHECK(options_error({"--config", boolean.path(), "p"}).what ==
        "timestamps in " + boolean.path() + ": '7' is not true or false");
  const auto absent = options_error({"--config", "/nonexistent/x.toml", "p"});
  CHECK(absent.code == Errc::not_found);
  CHECK(absent.what == "read /nonexistent/x.toml: No such file or directory");
}

TEST_CASE("a switch takes true and false, nothing else") {
  const ScopedEnv env("DLAUNCH_QUIET", "maybe");
  CHECK(options_error({"p"}).what == "DLAUNCH_QUIET: 'maybe' is not true or false");
  CHECK(options_error({"--timestamps=2", "p"}).what == "--timestamps: '2' is not true or false");
}

TEST_CASE("--help and --version work although other values are wrong") {
  CHECK(got({"--nproc", "banana", "--help"}).help);
  CHECK(got({"-V"}).version);
  CHECK_FALSE(got({"prog", "--help"}).help);
}
