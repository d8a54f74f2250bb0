#include "cli/report/run_report.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <utility>

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
};

Result<Wish> wish_of(const std::vector<std::string>& words) {
  Wish wish;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--out" && i + 1 < words.size()) {
      wish.out = words[++i];
    } else if (word.starts_with("--out=")) {
      wish.out = word.substr(6);
    } else if (word.starts_with("--") || !wish.folder.empty()) {
      return usage_error(fmt::format(
          "dlaunch report: unexpected '{}'; usage: dlaunch report DIR [--out FILE]", word));
    } else {
      wish.folder = word;
    }
  }
  if (wish.folder.empty()) {
    return usage_error(
        "dlaunch report: which folder? usage: dlaunch report DIR [--out FILE]; a job fills DIR if "
        "it has --run-dir DIR");
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
                                                        {"waiting.jsonl", &files.waiting}};
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
