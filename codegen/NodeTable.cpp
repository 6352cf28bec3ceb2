// Prints the nodes with their names in the IR and in the model.
#include "codegen/NodeTable.h"
#include "codegen/EmitTables.h"
#include "ir/Op.h"
#include "ir/Phase.h"
#include "llvm/Support/FormatVariadic.h"

using namespace zcc;
using llvm::formatv;

NodeTable::NodeTable(const TimedSchedule *schedule) {
  if (!schedule)
    return;
  for (const TimedFunction &f : schedule->functions) {
    llvm::DenseMap<const Node *, std::pair<double, double>> times;
    for (const Span &s : f.spans)
      times.try_emplace(s.node, s.begin, s.end).first->second.second = s.end;
    times_.insert(times.begin(), times.end()); // of a function's first run
  }
}

unsigned NodeTable::add(const Node &n) {
  nodes_.push_back(&n);
  return nodes_.size() - 1;
}

/// "wait all_gather", of a node that waits for what another one started.
static std::string operation(const Node &n) {
  if (n.op->structural != Structural::Wait)
    return performed(n)->name;
  const Node *started = n.operand(0)->def;
  return started ? "wait " + std::string(performed(*started)->name) : "wait";
}

void NodeTable::print(llvm::raw_ostream &os) const {
  os << "static const zccrt_node nodes[] = {\n";
  for (const Node *n : nodes_) {
    auto [begin, end] = times_.lookup(n);
    os << formatv("    {{{0}, {1}, {2}, {3}, {4:e6}},\n", cString(n->results.empty() ? "" : "%" + n->result()->name),
                  cString(n->loc && !n->loc->nodes.empty() ? n->loc->nodes[0] : ""), cString(operation(*n)),
                  cString(phaseName(n->phase)), end - begin);
  }
  os << "    {}};\n\n";
}
