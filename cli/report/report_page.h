// The HTML page of `dlaunch report`: page.html with page.js, which draws the figures.
#pragma once

#include <string>

namespace dlaunch {

// data: report_data().
std::string report_page(const std::string& data);

}  // namespace dlaunch
