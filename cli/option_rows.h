// The parts of the option table, one file for each subject (option_table.h).
#pragma once

#include <span>

#include "cli/option_table.h"

namespace dlaunch {

std::span<const OptionRow> workers_rows();  // and placement
std::span<const OptionRow> output_rows();
std::span<const OptionRow> failure_rows();
std::span<const OptionRow> nodes_rows();
std::span<const OptionRow> general_rows();

}  // namespace dlaunch
