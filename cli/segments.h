// Segments: the programs of a job that runs several, one segment for each, with its own arguments,
// number of workers, variables and folder. They come from a command line ("-np 2 a : -np 2 b"),
// from a file of such lines (mpirun's --app), or from a file that maps ranks to programs (srun's
// --multi-prog). Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/options.h"
#include "cli/scanner.h"

namespace dlaunch {

// Splits a scanned command line at each word ":" of its program. `line` keeps the options for the
// whole job. Empty: there is only one program, and `line` is unchanged. After "--" a ":" is an
// ordinary argument. Errors: usage; a part without a program, or with an option for the whole job.
Result<std::vector<Segment>> take_segments(ScannedLine& line);

// A segment a line: "-np 2 -x A=1 prog args". '#' begins a comment; quotes and backslashes work as
// in a shell. Malformed: Errc::protocol, "<name>:<line>: …".
Result<std::vector<Segment>> parse_app_file(std::string_view text, const std::string& name);

// A line for each program: "0-3,5 prog args", the ranks as numbers and ranges or '*' for the rest.
// %t becomes the rank and %o its place among the ranks of the line; a backslash at the end of a
// line joins it with the next. Malformed: as above.
Result<std::vector<Segment>> parse_multi_prog(std::string_view text, const std::string& name);

// The number of workers that run it; 0: its ranks decide.
Result<int> count_of(const Segment& segment);

// The segments as words of a command line, without a ':' at the end. Their ranks must be counted.
std::vector<std::string> words_of(const std::vector<Segment>& segments);

}  // namespace dlaunch
