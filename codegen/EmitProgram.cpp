// Prints functions as C++, statement by statement, and the record that the runtime starts from.
#include "codegen/EmitProgram.h"
#include "codegen/CodePrinter.h"
#include "codegen/EmitTables.h"
#include "codegen/NodeTable.h"
#include "codegen/cuda/StepGraphs.h"
#include "ir/Control.h"
#include "ir/Op.h"
#include "ir/Phase.h"
#include "passes/memory/Budget.h"
#include "passes/memory/Liveness.h"
#include "passes/memory/SavedStates.h"
#include "passes/offload/LateNodes.h"
#include "passes/train/Optimizer.h"
#include "runtime/Hash.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace zcc;
using llvm::formatv;
using llvm::StringRef;

namespace {
/// Numbers for what is under way, used again when it is waited for.
class Slots {
public:
  unsigned take() {
    auto free = llvm::find(taken_, false);
    unsigned slot = free - taken_.begin();
    taken_.resize(std::max<size_t>(taken_.size(), slot + 1));
    taken_[slot] = true;
    return slot;
  }
  void free(unsigned slot) { taken_[slot] = false; }
  size_t most() const { return taken_.size(); }

private:
  std::vector<bool> taken_;
};

/// What of its kind a function waits for: "zccrt_wait".
struct Engine {
  const char *wait;
  Slots slots;
};

/// What the target's own printer prints.
static std::vector<Space> spacesOf(const Target &t) {
  return &t.host() == &t ? std::vector{Space::Device, Space::Host} : std::vector{Space::Device};
}

class ProgramEmitter {
  const Module &m;
  const ProgramInfo &info;
  std::unique_ptr<CodePrinter> printer, onHost; ///< null: the first one prints all
  CallTable calls;
  EmittedProgram out;
  std::string functions;
  size_t gradients = 0; ///< parameters with one
  Engine collectives{"zccrt_wait", {}}, transfers{"zccrt_transfer_wait", {}}, host{"zccrt_host_wait", {}};
  llvm::DenseMap<const Node *, unsigned> slotOf; ///< of what is under way at the node being printed
  llvm::DenseMap<const Node *, unsigned> waited; ///< results of a start that are waited for already
  std::string partTable;                         ///< what collectives read and write
  unsigned partCount = 0, mostParts = 0;
  std::string moveTable; ///< what transfers read and write
  unsigned moveCount = 0, mostMoves = 0;
  std::string work; ///< functions that the host's queue runs; A is its arena there
  unsigned workCount = 0;
  Extents extents;
  FirstWrites firstWrites;
  llvm::DenseSet<const Node *> late;
  NodeTable nodes;
  std::vector<int> written;                              ///< saved globals, in the order of a step's first writes
  llvm::DenseMap<const Function *, std::string> symbols; ///< of bodies

public:
  ProgramEmitter(const Module &mod, const ProgramInfo &i)
      : m(mod), info(i), printer(i.target->printer(mod, spacesOf(*i.target))),
        onHost(spacesOf(*i.target).size() == 1 ? i.target->host().printer(mod, {Space::Host}) : nullptr), extents(mod),
        firstWrites(mod), late(lateNodes(mod)), nodes(i.timed) {}
  llvm::Expected<EmittedProgram> emit();

private:
  llvm::Error emitFunction(const Function &f);
  std::string willWrite(const Function &f, const Node &n);
  void emitResults(const Function &body, llvm::raw_ostream &os) const;
  std::string scan(const Function &f, const Node &n) const;
  std::string cond(const Function &f, const Node &n) const;
  llvm::Expected<std::string> statement(const Function &f, const Node &n);
  llvm::Expected<std::string> startAndWait(const Function &f, const Node &n);
  llvm::Expected<std::string> local(const Function &f, const Node &n);
  llvm::Expected<std::string> hostWork(const Function &f, const Node &n, unsigned slot);
  CodePrinter &printerOf(const Node &n) const { return onHost && computeSpace(n) == Space::Host ? *onHost : *printer; }
  llvm::Expected<std::string> kernelCall(const Function &f, const Node &n);
  llvm::Expected<std::string> assign(const Function &f, const Node &n) const;
  llvm::Expected<std::string> insert(const Function &f, const Node &n) const;
  llvm::Expected<std::string> wait(const Node &n);
  llvm::Expected<std::string> collective(const Function &f, const Node &n, unsigned slot);
  llvm::Expected<std::string> transfer(const Function &f, const Node &n, unsigned slot);
  Engine &engineOf(const Node &n);
  llvm::Expected<std::string> start(const Function &f, const Node &n, unsigned slot);
  void printGradients(llvm::raw_ostream &os);
  llvm::Expected<std::string> parts(const Function &f, const Node &n);
  std::string limits() const;
  std::string record() const;
};
} // namespace

/// What a node means, for the reader: "%y = matmul %x, %w  /fc1/MatMul".
static std::string meaningOf(const Node &n) {
  std::string s;
  for (auto &r : n.results)
    s += (s.empty() ? "%" : ", %") + r->name;
  if (!s.empty())
    s += " = ";
  s += n.op->name;
  for (Value *v : n.operands())
    s += (v == n.operand(0) ? " " : ", ") + (v ? "%" + v->name : "-");
  if (n.loc && !n.loc->nodes.empty())
    s += "   " + n.loc->nodes[0];
  return s;
}

// ---- statements

/// Whether it computes or copies within one arena.
static bool isLocal(const OpDef &op) {
  return op.isWork() || op.structural == Structural::Assign || op.structural == Structural::Insert;
}

/// "parts + 3", behind which the node's operands and results are listed.
llvm::Expected<std::string> ProgramEmitter::parts(const Function &f, const Node &n) {
  unsigned first = partCount;
  for (unsigned i = 0; i < n.numOperands(); ++i) {
    auto s = storageOf(n.operand(i));
    if (!s || s->strides != denseStrides(s->dims))
      return errorAt(n.loc, "a collective reads the strided view '%" + n.operand(i)->name + "'");
    partTable += formatv("  {{{0}, {1}, {2}},\n", plannedOffset(f, n.operand(i)), plannedOffset(f, n.result(i)),
                         n.operand(i)->type.count());
    ++partCount;
  }
  mostParts = std::max(mostParts, n.numOperands());
  return "parts + " + std::to_string(first);
}

llvm::Expected<std::string> ProgramEmitter::collective(const Function &f, const Node &n, unsigned slot) {
  const OpDef *op = performed(n);
  auto list = parts(f, n);
  if (!list)
    return list.takeError();
  std::string text = formatv("zccrt_{0}_start(A, {1}, {2}, {3}, ZCCRT_{4}", op->name, slot, *list, n.numOperands(),
                             elemName(n.operand(0)->type.elem).upper());
  if (op->isReduction())
    text += n.attrs.i("mean", 1) ? ", 1" : ", 0";
  return text + ");";
}

llvm::Expected<std::string> ProgramEmitter::transfer(const Function &f, const Node &n, unsigned slot) {
  unsigned first = moveCount;
  for (unsigned i = 0; i < n.numOperands(); ++i) {
    auto s = storageOf(n.operand(i));
    if (!s || s->strides != denseStrides(s->dims))
      return errorAt(n.loc, "a transfer reads the strided view '%" + n.operand(i)->name + "'");
    Place from = placeOf(f, n.operand(i)), to = placeOf(f, n.result(i));
    bool isPaged = from.space == Space::Nvme || to.space == Space::Nvme;
    int64_t bytes = isPaged ? extents.bytes(*n.result(i)) : n.result(i)->type.localBytes();
    moveTable += formatv("  {{{0}, {1}, {2}, {3}, {4}, {5}},\n", int(from.space), int(to.space), from.offset, to.offset, bytes,
                         cString(n.operand(i)->name));
    ++moveCount;
  }
  mostMoves = std::max(mostMoves, n.numOperands());
  return formatv("zccrt_transfer_start({0}, moves + {1}, {2});", slot, first, n.numOperands()).str();
}

/// What runs a node that is started.
Engine &ProgramEmitter::engineOf(const Node &n) {
  const OpDef &op = *performed(n);
  return op.structural == Structural::Transfer ? transfers : op.collective != Collective::None ? collectives : host;
}

/// What computes in host memory, as a function of its arena that the host's queue is given.
llvm::Expected<std::string> ProgramEmitter::hostWork(const Function &f, const Node &n, unsigned slot) {
  auto text = local(f, n);
  if (!text || text->empty())
    return text;
  std::string name = "host_" + std::to_string(workCount++);
  work += printerOf(n).functionHead(name, /*isBody=*/false) + " { " + *text + " }\n";
  return formatv("zccrt_host_start({0}, {1});", slot, name).str();
}

llvm::Expected<std::string> ProgramEmitter::start(const Function &f, const Node &n, unsigned slot) {
  const OpDef *op = performed(n);
  if (op->structural == Structural::Transfer)
    return transfer(f, n, slot);
  if (op->collective == Collective::None && !isLocal(*op))
    return errorAt(n.loc, "'" + StringRef(op->name) + "' cannot be started");
  return op->collective == Collective::None ? hostWork(f, n, slot) : collective(f, n, slot);
}

llvm::Expected<std::string> ProgramEmitter::kernelCall(const Function &f, const Node &n) {
  const Target &target = info.target->of(computeSpace(n));
  auto call = KernelCall::make(f, n, target);
  if (!call)
    return call.takeError();
  if ((*call)->workspace() > (*call)->call.scratch_bytes)
    return errorAt(n.loc, "the plan has no workspace for this operator");
  unsigned number = calls.add(**call, target.name());
  std::string moves;
  for (auto [tensor, step] : (*call)->moving)
    moves += formatv("tensors[{0}].offset = {1} + {2} * t; ", calls.firstTensor(number) + tensor, (*call)->tensors[tensor].offset,
                     step);
  return moves + printerOf(n).libraryCall(performed(n)->kernel, number);
}

llvm::Expected<std::string> ProgramEmitter::assign(const Function &f, const Node &n) const {
  Value *to = n.operand(0), *from = n.operand(1);
  Place at = placeOf(f, to), source = placeOf(f, from);
  at.offset += assigned(n).begin * elemBytes(to->type.elem);
  auto s = storageOf(from);
  if (!s || s->strides != denseStrides(s->dims))
    return errorAt(n.loc, "'%" + to->name + "' is assigned a strided view");
  if (at == source)
    return "";
  if (at.space == Space::Nvme)
    return errorAt(n.loc, "'%" + to->name + "' is not made where it is to lie, in @" + spaceName(at.space));
  return printerOf(n).copy(at, source, from->type.localBytes());
}

llvm::Expected<std::string> ProgramEmitter::insert(const Function &f, const Node &n) const {
  Value *part = n.operand(1);
  Place to = placeOf(f, n.result()), piece = placeOf(f, part), from = n.operand(0) ? placeOf(f, n.operand(0)) : to;
  for (Value *v : n.operands())
    if (auto s = v ? storageOf(v) : std::nullopt; v && (!s || s->strides != denseStrides(s->dims)))
      return errorAt(n.loc, "'%" + v->name + "' is inserted as a strided view");
  std::string text = to == from ? "" : printerOf(n).copy(to, from, n.result()->type.localBytes()) + " ";
  to.offset += n.attrs.i("begin") * elemBytes(part->type.elem);
  return text + printerOf(n).copy(to, piece, part->type.localBytes());
}

llvm::Expected<std::string> ProgramEmitter::wait(const Node &n) {
  const Node *started = n.operand(0)->def;
  if (!started || !slotOf.count(started))
    return errorAt(n.loc, "'%" + n.operand(0)->name + "' was not started here");
  unsigned slot = slotOf.lookup(started);
  Engine &engine = engineOf(*started);
  if (++waited[started] == started->results.size())
    engine.slots.free(slot);
  return engine.wait + ("(" + std::to_string(slot) + ");");
}

/// What a queue runs, at once.
llvm::Expected<std::string> ProgramEmitter::startAndWait(const Function &f, const Node &n) {
  Engine &engine = engineOf(n);
  unsigned slot = engine.slots.take();
  engine.slots.free(slot);
  auto text = start(f, n, slot);
  if (!text || text->empty())
    return text;
  return *text + " " + engine.wait + "(" + std::to_string(slot) + ");";
}

/// What computes or copies in one arena, A.
llvm::Expected<std::string> ProgramEmitter::local(const Function &f, const Node &n) {
  if (runsKernel(n)) {
    auto product = performed(n)->feedsKernel ? kernelCall(f, n) : "";
    if (!product)
      return product;
    auto loops =
        printerOf(n).kernelCall(n, [&](const Value *v) { return v ? placeOf(f, const_cast<Value *>(v)) : productPlace(f, n); });
    return !loops || product->empty() ? std::move(loops) : *product + " " + *loops;
  }
  if (assigns(n))
    return assign(f, n);
  if (n.op->structural == Structural::Insert)
    return insert(f, n);
  return kernelCall(f, n);
}

/// The C++ of one node; empty where nothing is to be done.
llvm::Expected<std::string> ProgramEmitter::statement(const Function &f, const Node &n) {
  const OpDef *op = n.op;
  if (isLocal(*op))
    return computeSpace(n) == Space::Host ? startAndWait(f, n) : local(f, n);
  switch (op->structural) {
  case Structural::Release:
  case Structural::After:
  case Structural::Addend:
    return "";
  case Structural::Scan:
    return scan(f, n);
  case Structural::Cond:
    return cond(f, n);
  case Structural::Shard: {
    auto list = parts(f, n);
    if (!list)
      return list.takeError();
    return "zccrt_shard(A, " + *list + ", ZCCRT_" + elemName(n.result()->type.elem).upper() + ");";
  }
  case Structural::Start:
    return start(f, n, slotOf[&n] = engineOf(n).slots.take());
  case Structural::Wait:
    return wait(n);
  case Structural::Collective:
  case Structural::Transfer:
    return startAndWait(f, n);
  case Structural::SumRanks: // reduce-gradients makes collectives of them
  case Structural::Assign:   // local()
  case Structural::Insert:
  case Structural::Fused:
  case Structural::None:
    break;
  }
  if (op->view || op->leaf == Leaf::Constant)
    return "";
  return errorAt(n.loc, "operator '" + StringRef(op->name) + "' is not lowered");
}

// ---- bodies

/// Copies what is carried to where it is carried, unless it starts there, and runs the body for each slice.
std::string ProgramEmitter::scan(const Function &f, const Node &n) const {
  ScanForm form(n);
  std::string text;
  for (unsigned i = 0; i < form.carried; ++i) {
    Place to = placeOf(f, n.result(i)), from = placeOf(f, n.operand(i));
    if (!(to == from))
      text += printer->copy(to, from, n.operand(i)->type.localBytes()) + " ";
  }
  return text + printer->repeat(symbols.lookup(bodiesOf(n)[0]), form.trips, form.reverse);
}

std::string ProgramEmitter::cond(const Function &f, const Node &n) const {
  auto bodies = bodiesOf(n);
  return printer->choose(placeOf(f, n.operand(0)), symbols.lookup(bodies[0]), symbols.lookup(bodies[1]));
}

/// What a body does not make right where its caller wants it is copied there at its end.
void ProgramEmitter::emitResults(const Function &body, llvm::raw_ostream &os) const {
  const Node &caller = *callersOf(body)[0];
  for (unsigned r = 0; r < body.results.size(); ++r) {
    Value *v = body.results[r];
    Place to = resultPlace(caller, r), from = placeOf(body, v);
    if (!(to == from))
      os << "  " << printer->copy(to, from, v->type.localBytes()) << " // return %" << inComment(v->name) << '\n';
  }
}

/// A name in C++ for a body: "body_lstm_1", and a number if another has it.
static std::string symbolOf(const Function &body, const llvm::StringMap<bool> &taken) {
  std::string s = "body_" + body.name;
  for (char &c : s)
    if (!llvm::isAlnum(c))
      c = '_';
  std::string unique = s;
  for (unsigned i = 1; taken.count(unique); ++i)
    unique = s + "_" + std::to_string(i);
  return unique;
}

// ---- functions

/// In front of the first statement of a step that writes a global which checkpoints hold.
std::string ProgramEmitter::willWrite(const Function &f, const Node &n) {
  if (f.name != "micro" && f.name != "update")
    return "";
  std::vector<int> first = firstWrites.of(f, n);
  if (first.empty())
    return "";
  written.insert(written.end(), first.begin(), first.end());
  return formatv("zccrt_will_write({0}); ", written.size() - 1);
}

llvm::Error ProgramEmitter::emitFunction(const Function &f) {
  llvm::raw_string_ostream os(functions);
  if (f.isBody)
    os << "// body @" << inComment(f.name) << '\n';
  os << printer->functionHead(f.isBody ? StringRef(symbols.find(&f)->second) : StringRef(f.name), f.isBody) << " {\n";
  std::string section;
  llvm::Error all = llvm::Error::success(); // what has no kernel is told at once
  for (auto &n : f.nodes) {
    auto text = statement(f, *n);
    if (!text) {
      all = llvm::joinErrors(std::move(all), text.takeError());
      continue;
    }
    if (text->empty() && !assigns(*n))
      continue;
    std::string scope = n->loc ? n->loc->scope : "";
    std::string head = phaseName(n->phase).str();
    if (!scope.empty() && n->phase != Phase::Update)
      head += ": " + scope;
    if (f.isBody)
      head = scope.empty() ? section : scope;
    if (head != section)
      os << (section.empty() ? "" : "\n") << "  // ---- " << inComment(head) << '\n';
    section = head;
    const StringRef condition = late.contains(n.get()) ? "zccrt_late" : n->attrs.has("once") ? "zccrt_first" : "";
    if (!text->empty())
      *text = (condition.empty() ? "" : "if (" + condition.str() + ") { ") +
              (f.isBody ? "" : formatv("zccrt_at({0}); ", nodes.add(*n)).str()) + willWrite(f, *n) + *text +
              (condition.empty() ? "" : " }");
    os << "  " << *text << (text->empty() ? "// " : " // ") << inComment(meaningOf(*n))
       << (text->empty() ? "   (written in place)" : "") << '\n';
  }
  if (f.isBody)
    emitResults(f, os);
  os << "}\n\n";
  return all;
}

// ---- the record

static int64_t globalOffset(const Module &m, StringRef name) {
  const GlobalValue *g = m.global(name);
  return g ? g->attrs.i("offset", -1) : -1;
}

/// How much may be under way at once, as fields of the record.
std::string ProgramEmitter::limits() const {
  return formatv(
      "    .slots = {0},\n    .most_parts = {1},\n    .transfer_slots = {2},\n    .most_moves = {3},\n    .host_slots = {4},\n",
      collectives.slots.most(), mostParts, transfers.slots.most(), mostMoves, host.slots.most());
}

std::string ProgramEmitter::record() const {
  const Options &o = *info.options;
  const Function *micro = m.function("micro");
  int64_t loss = micro && !micro->results.empty() ? plannedOffset(*micro, micro->results[0]) : -1;
  std::string s = "extern \"C\" const zccrt_program zccrt_the_program = {\n";
  auto field = [&](StringRef name, const llvm::Twine &value) { s += "    ." + name.str() + " = " + value.str() + ",\n"; };
  auto number = [&](StringRef name, int64_t v) { field(name, llvm::Twine(v)); };
  auto words = [&](StringRef name, StringRef text) { return text.empty() ? void() : field(name, cString(text)); };
  auto table = [&](StringRef name, StringRef countName, const llvm::Twine &count) {
    field(name, name);
    field(countName, count);
  };
  auto function = [&](StringRef name, StringRef of) { field(name, m.function(of) ? of : "nullptr"); };
  field("abi", "ZCCRT_ABI");
  field("model", cString(m.name));
  field("optimizer", o.inference || o.optimizer.empty() ? "nullptr" : cString(o.optimizer));
  field("compile_line", cString(info.compileLine));
  field("hash", "programHash");
  field("isa", cString(info.isa));
  number("ranks", m.ranks);
  number("threads", o.threads);
  number("grad_accum", o.gradAccum);
  number("zero", o.zero);
  number("batches_per_call", batchesPerCall(m));
  field("arena_bytes",
        formatv("{{{0}, {1}, {2}}", arenaBytes(m, Space::Device), arenaBytes(m, Space::Host), arenaBytes(m, Space::Nvme)).str());
  number("persistent_bytes", persistentBytes(m, Space::Device));
  number("host_budget", hostBudgetOf(o, *info.target));
  number("library_bytes", info.libraryBytes);
  number("device_library_bytes", m.attrs.i(kDeviceLibraryBytes));
  table("globals", "nglobals", "nglobals");
  table("written", "nwritten", std::to_string(written.size()));
  number("save_bytes", saveBytes(m));
  table("files", "nfiles", "nfiles");
  number("weights_bytes", out.weights.size());
  table("inputs", "ninputs", "ninputs");
  table("outputs", "noutputs", "noutputs");
  number("has_loss", loss >= 0);
  number("batch", m.attrs.i("batch"));
  number("rows", globalOffset(m, "eval_rows"));
  words("batch_why", m.attrs.s("batch_why"));
  if (m.attrs.has("logits_result")) {
    field("tokens", "inputs + tokensInput");
    field("logits", "outputs + " + llvm::Twine(m.attrs.i("logits_result")));
  }
  words("generate_why", m.attrs.s("generate_why"));
  if (m.attrs.has("weight_result"))
    field("weight", "outputs + " + llvm::Twine(m.attrs.i("weight_result")));
  if (m.attrs.has("weight_floor"))
    field("weight_floor", formatv("{0:e17}", m.attrs.f("weight_floor")).str());
  table("metrics", "nmetrics", "nmetrics");
  number("loss_elem", loss >= 0 ? static_cast<int>(micro->results[0]->type.elem) : 0);
  number("loss", loss);
  for (const char *scalar :
       {"late", "step", "micro", "seed", "lr", "grad_norm", "beta1", "loss_scale", "overflow", "skipped", "grad_squares"})
    number(scalar, globalOffset(m, scalar));
  table("gradients", "ngradients", std::to_string(gradients));
  field("base_lr", formatv("{0:e17}", baseLr(o)).str());
  table("onnx", "npieces", std::to_string(info.onnx.size()));
  if (!info.onnxIndex.empty())
    field("onnx_index", "onnx_index");
  table("onnx_train", "npieces_train", std::to_string(info.onnxTrain.size()));
  table("weights", "nweights", std::to_string(info.weights.size()));
  words("absent", info.absent);
  field("schedule", cString(info.schedule));
  if (!info.scheduleParams.empty())
    table("schedule_params", "nschedule_params", std::to_string(info.scheduleParams.size()));
  words("nvme_path", info.nvmePath);
  field("prepare", "prepare");
  function("micro_fn", "micro");
  for (const char *name : {"update", "flush", "eval"})
    function(name, name);
  field("plan_json", "planJson");
  s += limits();
  table("nodes", "nnodes", std::to_string(nodes.size()));
  return s + deviceFields(m, *info.target) + "};\n";
}

/// The parameters with a gradient, in the order of %grad_squares.
void ProgramEmitter::printGradients(llvm::raw_ostream &os) {
  os << "static const char *const gradients[] = {";
  for (auto &g : m.globals) {
    bool isUpdated = llvm::any_of(g->uses, [](auto &u) { return assigns(*u.node) && u.index == 0; });
    if (!g->trained || !isUpdated)
      continue;
    const GlobalValue &whole = m.wholeOf(*g);
    os << cString(whole.onnxName.empty() ? whole.name : whole.onnxName) << ", ";
    ++gradients;
  }
  os << "0};\n\n";
}

llvm::Expected<EmittedProgram> ProgramEmitter::emit() {
  llvm::StringMap<bool> taken;
  for (const Function *f : calleesFirst(m)) {
    if (f->isKernel)
      continue;
    if (f->isBody)
      taken[symbols[f] = symbolOf(*f, taken)] = true;
    if (auto e = emitFunction(*f))
      return e;
  }

  std::string text;
  llvm::raw_string_ostream os(text);
  os << "// " << inComment(m.name + ": " + info.compileLine) << '\n'
     << "// A is the arena of " << arenaBytes(m, Space::Device) << " bytes; numbers behind it are offsets in bytes.\n"
     << "#include \"runtime/zccrt.h\"\n"
     << printer->includes() << "\n"
     << "// ---- generated kernels\n\n"
     << printer->kernelDeclarations() << (onHost ? onHost->kernelDeclarations() : "") << '\n';
  if (auto e = printGlobals(m, info, os, out))
    return e;
  if (auto e = printInputsAndOutputs(m, os))
    return e;
  printMetrics(m, os);
  printGradients(os);
  os << "static const int32_t written[] = {"
     << llvm::join(llvm::map_range(written, [](int i) { return std::to_string(i); }), ", ")
     << (written.empty() ? "0};\n\n" : "};\n\n");
  os << "// ---- the files that --export writes\n\n"
        R"(#ifndef ZCC_LITERALS
#define ZCC_LITERALS "\"literals.bin\""
#endif
asm(".section .rodata\n.global zcc_literals\nzcc_literals: .incbin " ZCC_LITERALS "\n.byte 0\n.text");
)"
        "extern \"C\" const char zcc_literals[];\n";
  printPieces("onnx", info.onnx, m, os, out.literals);
  printPieces("onnx_train", info.onnxTrain, m, os, out.literals);
  os << "static const char *const onnx_index = zcc_literals + " << out.literals.size() << ";\n";
  out.literals += info.onnxIndex;
  printWeights(info.weights, m, os, out.literals);
  os << '\n';
  if (!calls.empty())
    calls.print(os);
  if (partCount)
    os << "// ---- what collectives read and write: offsets, elements of the whole tensor\n\n"
       << "static const zccrt_part parts[] = {\n"
       << partTable << "};\n\n";
  if (moveCount)
    os << "// ---- what transfers move: spaces, offsets, bytes\n\n"
       << "static const zccrt_move moves[] = {\n"
       << moveTable << "};\n\n";
  if (workCount)
    os << "// ---- what is computed in host memory; A is its arena there\n\n" << work << '\n';
  os << functions;
  nodes.print(os);
  calls.printPrepare(os);
  if (!info.scheduleParams.empty()) {
    os << "static const zccrt_setting schedule_params[] = {\n";
    for (auto &[name, value] : info.scheduleParams)
      os << "    {" << cString(name) << ", " << cString(value) << "},\n";
    os << "};\n\n";
  }
  os << "static const char planJson[] = " << cString(info.planJson) << ";\n\n";
  out.kernels = printer->kernelSources();
  out.gpu = info.target->gpu().str();
  if (!info.target->deviceSymbol().empty())
    out.machine = info.target->checksKernels() ? EmittedProgram::Machine::CheckedGpu
                  : out.gpu.empty()            ? EmittedProgram::Machine::EmulatedGpu
                                               : EmittedProgram::Machine::Gpu;
  if (onHost)
    out.hostKernels = onHost->kernelSources();
  uint64_t hash = zccrt::hashBytes(text.data(), text.size()) + 3 * zccrt::hashBytes(out.literals.data(), out.literals.size());
  for (const std::string &part : llvm::concat<const std::string>(out.kernels, out.hostKernels))
    hash = 5 * hash + zccrt::hashBytes(part.data(), part.size());
  os << formatv("static const uint64_t programHash = {0:x}u;\n", hash) << record();
  out.program = std::move(text);
  return std::move(out);
}

llvm::Expected<EmittedProgram> zcc::emitProgram(const Module &m, const ProgramInfo &info) {
  if (!m.has(Property::Planned))
    return error("a module is emitted after plan-memory");
  return ProgramEmitter(m, info).emit();
}
