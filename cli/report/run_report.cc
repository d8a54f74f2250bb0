#include "cli/report/run_report.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/print.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "base/write_all.h"
#include "cli/help.h"
#include "cli/plan_builder.h"
#include "cli/read_file.h"
#include "cli/report/report_data.h"
#include "cli/report/report_page.h"

namespace dlaunch {
namespace {

struct Wish {
  std::string folder, out;
  bool help = false;
};

Result<Wish> wish_of(std::vector<std::string> words) {
  Wish wish;
  CLI::App app("Makes a page from the folder that a job with --run-dir DIR has filled.",
               "dlaunch report");
  app.add_option("DIR", wish.folder, "the folder")->required();
  app.add_option("-o,--out", wish.out, "the file for the page (DIR/report.html); - is stdout")
      ->type_name("FILE");
  try {
    std::reverse(words.begin(), words.end());
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    print_all(app.help());
    wish.help = true;
    return wish;
  } catch (const CLI::ParseError& error) {
    return usage_error(
        fmt::format("dlaunch report: {}; usage: dlaunch report DIR [--out FILE]", error.what()));
  }
  if (wish.out.empty()) wish.out = wish.folder + "/report.html";
  return wish;
}

Result<void> write_file(const std::string& path, const std::string& text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  const int err = file ? write_all(file.get(), text).os_errno : errno;
  if (err != 0) return errno_error("write " + path, err);
  return {};
}

// A file that the job did not write is no error: it may have had no such thing to say.
Result<std::string> if_there(const std::string& path) {
  auto text = read_file(path);
  const int err = text ? 0 : text.error().os_errno;
  if (err == ENOENT || err == ENOTDIR) return std::string();
  return text;
}

Result<RunFiles> read_files(const std::string& folder) {
  RunFiles files;
  const std::pair<const char*, std::string*> parts[] = {{"job.json", &files.job},
                                                        {"events.jsonl", &files.events},
                                                        {"error.json", &files.error},
                                                        {"waiting.jsonl", &files.waiting},
                                                        {"bandwidth.jsonl", &files.bandwidth},
                                                        {"limits.json", &files.limits}};
  for (const auto& [name, text] : parts) {
    auto found = if_there(folder + "/" + name);
    if (!found) return found.error();
    *text = std::move(*found);
  }
  if (!files.job.empty() || !files.events.empty()) return files;
  return Error{Errc::not_found, fmt::format("{} has neither job.json nor events.jsonl: it is no "
                                            "folder that a job with --run-dir has filled",
                                            folder)};
}

Result<void> make_report(const std::vector<std::string>& words) {
  const auto wish = wish_of(words);
  if (!wish) return wish.error();
  if (wish->help) return {};
  const auto files = read_files(wish->folder);
  if (!files) return files.error();
  const std::string page = report_page(report_data(*files));
  if (wish->out == "-") {
    if (!print_all(page)) return errno_error("write to stdout", errno);
    return {};
  }
  if (auto ok = write_file(wish->out, page); !ok) return ok;
  print_all(wish->out + "\n");
  return {};
}

}  // namespace

int run_report(const std::vector<std::string>& words) {
  const auto done = make_report(words);
  if (done) return kExitOk;
  std::fputs(error_text(done.error()).c_str(), stderr);
  return exit_code_of(done.error());
}

}  // namespace dlaunch
