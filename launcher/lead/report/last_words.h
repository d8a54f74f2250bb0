// A failed worker's last words, as the report quotes them. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/lead/report/report.h"

namespace dlaunch {

// Adds the lines of the report. The source is the first of these that exists: the error file of
// PyTorch's elastic programs, the last traceback, the end of stderr. Of a chain of Python
// exceptions the first and the last are quoted. by_traceback: as Verdict; shown_last: as
// render_text().
void add_last_words(std::vector<std::string>& out, const WorkerEnd& root, bool by_traceback,
                    const ShownLast& shown_last);

// Adds the worker's traceback; of a chain both ends.
void add_traceback(std::vector<std::string>& out, const Traceback& traceback);

}  // namespace dlaunch
