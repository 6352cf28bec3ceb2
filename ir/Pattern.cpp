// Refuses patterns whose repetitions, written out, would fill the memory; LLVM's matcher takes the rest.
#include "ir/Pattern.h"
#include "ir/Diag.h"
#include <algorithm>
#include <vector>

using namespace zcc;
using llvm::StringRef;

/// The end of "[...]", which begins at `at`; a ']' right behind the '[' or "[^" stands for itself.
static size_t endOfSet(StringRef s, size_t at) {
  size_t from = at + 1 + s.substr(at + 1).starts_with("^");
  return std::min(s.find(']', from + 1), s.size());
}

/// How many characters an expression has when repetitions are written out, as LLVM's library does. A "{" that begins no
/// repetition is an error there.
static double writtenOut(StringRef s) {
  std::vector<double> sums = {0}; // of the groups that are open
  double last = 0;                // of what a repetition would repeat
  auto add = [&](double n) { sums.back() += last = n; };
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '(') {
      sums.push_back(0);
      last = 0;
    } else if (s[i] == ')' && sums.size() > 1) {
      double inner = sums.back();
      sums.pop_back();
      add(inner + 2);
    } else if (s[i] == '{') {
      StringRef counts = s.substr(i + 1).split('}').first;
      unsigned n = 1, least = 1;
      counts.split(',').second.getAsInteger(10, n);
      counts.split(',').first.getAsInteger(10, least);
      double once = last;
      add(once * (std::max({n, least, 1u}) - 1));
      last = once + last;
      i += counts.size() + 1;
    } else if (s[i] == '[') {
      i = endOfSet(s, i);
      add(1);
    } else {
      i += s[i] == '\\';
      add(1);
    }
  }
  double all = 0;
  for (double n : sums)
    all += n;
  return all;
}

llvm::Expected<llvm::Regex> zcc::readPattern(StringRef text) {
  constexpr double kMost = 1e6;
  if (writtenOut(text) > kMost)
    return error("its repetitions multiply to more than a million");
  llvm::Regex regex(text);
  std::string why;
  if (!regex.isValid(why))
    return error(why);
  return regex;
}
