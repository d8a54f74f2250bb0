// The files of a run folder, as `dlaunch report` reads them, divided by bytes of 0. What the page
// gets must be JSON, and must not be able to end the page's script.
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "cli/report/report_data.h"
#include "fuzz.h"

static int fuzz_run_files(const std::uint8_t* data, std::size_t size) {
  std::string_view rest = fuzz_text(data, size);
  dlaunch::RunFiles files;
  for (std::string* file :
       {&files.job, &files.events, &files.error, &files.waiting, &files.limits}) {
    const std::size_t end = std::min(rest.find('\0'), rest.size());
    *file = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  files.bandwidth = rest;
  const std::string page = dlaunch::report_data(files);
  if (page.find('<') != std::string::npos || !nlohmann::json::accept(page)) std::abort();
  return 0;
}

static const FuzzTarget run_files_target("run_files", fuzz_run_files);
