// What the page of --report is made of, before it is JSON: times in whole nanoseconds, names by their number in one list.
#pragma once

#include "codegen/Plan.h"
#include "passes/memory/Liveness.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/JSON.h"

namespace zcc {

/// Texts of a page, each once.
class PageTexts {
public:
  PageTexts() { number(""); }
  int64_t number(llvm::StringRef text);
  llvm::json::Array list() { return std::move(list_); }

private:
  llvm::StringMap<int64_t> known_;
  llvm::json::Array list_;
};

inline int64_t wholeNs(double seconds) { return int64_t(seconds * 1e9 + 0.5); }
/// The ONNX node of a location, or "".
std::string onnxNode(const Loc &l);

/// When the program comes to each node of a function of the step, and when it leaves it, since the step began.
struct NodeTimes {
  const TimedFunction *timed;
  int64_t begin = 0; ///< of the function
  std::vector<int64_t> from, to;
  int64_t end() const { return begin + wholeNs(timed->seconds); }
};
/// Of each function, one behind the other, each once.
std::vector<NodeTimes> nodeTimes(const TimedSchedule &s);

/// [{name, arena, note, budget, live {at, bytes}, values {begin, end, offset, bytes, kind, name, type, node}}], of kinds in
/// memoryKinds().
llvm::Expected<llvm::json::Array> memoryOfPage(const Module &m, const Options &o, llvm::ArrayRef<NodeTimes> times,
                                               PageTexts &texts);
llvm::json::Array memoryKinds();

/// blocks [{name, times, forward, backward, parameters, kept, nodes}] and edges [[from, to, bytes]], of the model's modules.
void addBlocks(llvm::json::Object &page, llvm::ArrayRef<NodeTimes> times);

} // namespace zcc
