// The skeleton of the pages that zcc and its programs write: style, scripts and data in one file, which asks for nothing else.
#pragma once

#include <string>

namespace zccrt {

/// `json`: what the script finds as `data`; names in it may hold anything. `script` runs behind runtime/page/charts.js.
std::string page(const std::string &title, const std::string &json, const char *script);

} // namespace zccrt
