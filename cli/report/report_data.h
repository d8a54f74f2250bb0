// What `dlaunch report` shows, from the files of a run folder (--run-dir). Pure.
#pragma once

#include <string>

namespace dlaunch {

// The contents of the files; "": there is none.
struct RunFiles {
  std::string job;        // job.json
  std::string events;     // events.jsonl
  std::string error;      // error.json, as of --error-file
  std::string waiting;    // waiting.jsonl
  std::string bandwidth;  // bandwidth.jsonl
  std::string limits;     // limits.json
};

// A JSON object for the page's script, without any "<". What cannot be read is left out, and the
// object's notes say so.
std::string report_data(const RunFiles& files);

}  // namespace dlaunch
