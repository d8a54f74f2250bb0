#include "cli/ctl/follow.h"

#include <cerrno>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/exit_code.h"
#include "base/print.h"
#include "cli/ctl/options.h"

namespace dlaunch::ctl {
namespace {

using Json = nlohmann::ordered_json;  // as in the line
using Command = ControlRequest::Command;

// Asks again and again. The answer comes with the next news.
class Following {
 public:
  Following(const RunningJob& job, ControlRequest request, std::optional<Duration> timeout = {})
      : job_(job, {.end_is_told = true, .timeout = timeout}), request_(std::move(request)) {
    request_.after = 0;
  }
  // The next answer, of this leader or of the next one.
  Json next() {
    Json answer = job_.ask(request_);
    request_.after = answer.at("next").get<std::uint64_t>();
    return answer;
  }

 private:
  LedJob job_;
  ControlRequest request_;
};

// Until take(event) is false.
void follow_events(const RunningJob& job, const std::function<bool(const Json&)>& take,
                   std::optional<Duration> timeout = {}) {
  Following following(job, {.command = Command::events, .number = {}}, timeout);
  while (true) {
    const Json answer = following.next();
    for (const Json& event : answer.at("events")) {
      if (!take(event)) return;
    }
  }
}

void print(const std::string& text) {
  if (!print_all(text)) throw Failure{kExitSystem, errno_error("write to stdout", errno).what};
}

// Prints lines of a worker, each once: the next leader may send some again.
class TailPrinter {
 public:
  // The last `most` lines of an answer. False: the job has ended.
  bool show(const Json& answer, std::size_t most = SIZE_MAX) {
    const Json& lines = answer.at("lines");
    if (const auto missing = answer.at("missing").get<std::uint64_t>(); missing > 0) {
      say_missing(std::to_string(missing) + " lines");
    }
    std::size_t left = lines.size();
    for (const Json& line : lines) {
      if (line.contains("ended")) return false;
      if (line.contains("lost_bytes")) {
        say_missing(line["lost_bytes"].dump() + " bytes");
      } else if (is_new(line) && left <= most) {
        show_line(line);
      }
      --left;
    }
    return true;
  }

 private:
  static void say_missing(const std::string& what) {
    std::fprintf(stderr, "dlaunchctl: %s came too fast and are missing\n", what.c_str());
  }
  bool is_new(const Json& line) {
    std::uint64_t& shown = shown_[line.at("from").get<std::string>()];
    const auto end = line.at("end").get<std::uint64_t>();
    if (end <= shown) return false;
    shown = end;
    return true;
  }
  static void show_line(const Json& line) {
    const std::string text = line.at("text").get<std::string>() + "\n";
    if (line.at("stream") == "stdout") return print(text);
    std::fputs(text.c_str(), stderr);
  }

  std::map<std::string, std::uint64_t> shown_;  // the end of the last line, by its origin
};

}  // namespace

void run_events(const RunningJob& job, bool follow) {
  const auto show = [](const Json& event) {
    print(event.dump() + "\n");
    return event.at("event") != "job_ended";
  };
  if (follow) return follow_events(job, show);
  const Json answer = ask_in_order(job, {.command = Command::events, .number = {}});
  for (const Json& event : answer.at("events")) show(event);
}

void run_tail(const RunningJob& job, const Options& options) {
  const auto most = static_cast<std::size_t>(options.lines);
  TailPrinter printer;
  const Json kept = ask_in_order(job, *options.request);
  if (!printer.show(kept, most) || !options.follow) return;
  Following following(job, *options.request);
  while (printer.show(following.next())) continue;
}

int run_wait(const RunningJob& job, std::optional<Duration> timeout) {
  int exit_code = kExitInternal;
  const auto take = [&exit_code](const Json& event) {
    if (event.at("event") != "job_ended") return true;
    exit_code = event.at("exit_code").get<int>();
    return false;
  };
  follow_events(job, take, timeout);
  return exit_code;
}

}  // namespace dlaunch::ctl
