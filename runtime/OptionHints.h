// What somebody means by an option that a tool has not: the other tool's, or what another trainer calls it.
#pragma once

#include <string>
#include <vector>

namespace zccrt {

/// zcc, or a program that it compiled.
enum class Tool { Compiler, Program };

/// What goes behind "unknown option '--NAME'": "; did you mean '--lr'?", "; it is an option of the program: ...", or
/// nothing. `own`: the options that the asked tool has.
std::string optionHint(Tool asked, const std::string &name, const std::vector<std::string> &own);

} // namespace zccrt
