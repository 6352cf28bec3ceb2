// Each rule is one function. What is checked of a single node, and shared with the parser, is in NodeRules.cpp.
#include "ir/Verifier.h"
#include "ir/Control.h"
#include "ir/Epilogue.h"
#include "ir/Notes.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

using namespace zcc;
using llvm::StringRef;
using llvm::Twine;

namespace {
/// What the rules share: where violations go, and the broken node they lie in.
struct Report {
  const Module &m;
  std::vector<Violation> all;

  void at(const Node &n, const Twine &text) { all.push_back({&n, nullptr, n.parent(), text.str()}); }
  void at(const GlobalValue &g, const Twine &text) { all.push_back({nullptr, &g, nullptr, text.str()}); }
  void at(const Module &, const Twine &text) { all.push_back({nullptr, nullptr, nullptr, text.str()}); }
  void at(const Function &f, const Twine &text) { all.push_back({nullptr, nullptr, &f, text.str()}); }
};
} // namespace

static std::string quoted(const Value *v) { return "'%" + v->name + "'"; }
static bool is(const Node &n, Structural::Kind k) { return n.op->structural == k; }

static bool sumsOverRanks(const Node &n) {
  const OpDef *op = performed(n);
  return op && op->isReduction();
}
static bool gathers(const Node &n) {
  const OpDef *op = performed(n);
  return op && op->collective == Collective::Gather;
}

// ---- V1: definitions before uses, types by the record

static void checkGlobal(const GlobalValue &g, Report &r) {
  const Init &i = g.init;
  int64_t bytes = g.type.count() * elemBytes(i.elem.value_or(g.type.elem));
  if (g.type.isFuture)
    r.at(g, "[V1] a global cannot be a future");
  if (g.type.shards > 1 && g.type.shards != r.m.ranks)
    r.at(g, "[V2] " + g.type.str() + " has " + Twine(g.type.shards) + " shards, where there are " + Twine(r.m.ranks) +
                (r.m.ranks == 1 ? " rank" : " ranks"));
  if (g.type.isPacked() && (g.role != GlobalValue::State || i.kind != Init::Zero))
    r.at(g, "[V1] only a state that starts at zero can be packed, not " + g.type.str());
  if (g.trained && (g.role != GlobalValue::Param || !isFloat(g.type.elem)))
    r.at(g, "[V1] only a floating-point param can be trained");
  if ((i.kind == Init::Uniform || i.kind == Init::Normal) && !isFloat(g.type.elem))
    r.at(g, "[V1] random initial values need a floating-point type, not " + g.type.str());
  if (i.kind == Init::Box)
    return;
  if (i.kind == Init::Copy || !i.from.empty()) {
    const GlobalValue *from = r.m.global(i.from);
    if (!from || from == &g)
      r.at(g, "[V1] there is no global '%" + Twine(i.from) + "' to copy");
    else if (from->type.count() != g.type.count() || isFloat(from->type.elem) != isFloat(g.type.elem))
      r.at(g, "[V1] " + g.type.str() + " cannot start as a copy of " + from->type.str());
    else if (from->init.kind == Init::Copy && from->init.from == g.name)
      r.at(g, "[V1] '%" + Twine(g.name) + "' and '%" + Twine(i.from) + "' start as copies of each other");
  }
  if (i.kind != Init::File)
    return;
  if (i.elem && !(isFloat(*i.elem) && isFloat(g.type.elem)))
    r.at(g, "[V1] " + elemName(*i.elem) + " in the file cannot become " + g.type.str());
  if (i.bytes != bytes)
    r.at(g, "[V1] " + g.type.str() + " takes " + Twine(bytes) + " bytes, not " + Twine(i.bytes));
  if (i.offset < 0 || i.offset > INT64_MAX - i.bytes)
    r.at(g, "[V1] the file range is out of bounds");
  else if (i.file.empty() && uint64_t(i.offset + i.bytes) > r.m.constData.size())
    r.at(g, "[V1] the range lies outside the constant data");
  if (i.encoding != "raw" && (i.encoding != "transposed" || g.type.ndim() < 2))
    r.at(g, "[V1] '" + i.encoding + "' does not encode " + g.type.str());
}

/// Says where two boxes of a tensor overlap. They are looked at along an axis on which they differ.
static void checkOverlaps(std::vector<GlobalValue *> boxes, Report &r) {
  auto from = [](const GlobalValue *g, size_t axis) { return g->init.start[axis]; };
  auto to = [](const GlobalValue *g, size_t axis) { return g->init.start[axis] + g->type.dims[axis]; };
  size_t axes = boxes[0]->init.start.size(), by = 0;
  while (by + 1 < axes && llvm::all_of(boxes, [&](auto *g) { return from(g, by) == from(boxes[0], by); }))
    ++by;
  llvm::stable_sort(boxes, [&](auto *a, auto *b) { return axes && from(a, by) < from(b, by); });
  for (size_t i = 0; i < boxes.size(); ++i)
    for (size_t j = i + 1; j < boxes.size() && (!axes || from(boxes[j], by) < to(boxes[i], by)); ++j) {
      bool overlap = true;
      for (size_t axis = 0; axis < axes; ++axis)
        overlap &= from(boxes[i], axis) < to(boxes[j], axis) && from(boxes[j], axis) < to(boxes[i], axis);
      if (overlap)
        r.at(*boxes[j], "[V10] " + quoted(boxes[j]) + " overlaps " + quoted(boxes[i]));
    }
}

// ---- V10: boxes lie in their tensors, side by side, and are all of them

static bool checkBox(const GlobalValue &g, const GlobalValue *tensor, Report &r) {
  size_t before = r.all.size();
  if (!tensor || tensor->role != GlobalValue::Tensor)
    r.at(g, "[V10] there is no tensor '%" + Twine(g.init.from) + "'");
  else if (g.role != GlobalValue::Param && g.role != GlobalValue::State)
    r.at(g, "[V10] only a param or a state is a box of a tensor");
  else if (g.type.elem != tensor->type.elem || g.type.ndim() != tensor->type.ndim() || g.init.start.size() != g.type.ndim())
    r.at(g, "[V10] " + g.type.str() + " is no box of " + tensor->type.str());
  else
    for (size_t axis = 0; axis < g.type.ndim(); ++axis)
      if (g.init.start[axis] + g.type.dims[axis] > tensor->type.dims[axis])
        r.at(g, "[V10] " + quoted(&g) + " reaches beyond " + quoted(tensor) + " (" + tensor->type.str() + ")");
  return r.all.size() == before;
}

static void checkBoxes(Report &r) {
  llvm::DenseMap<const GlobalValue *, std::vector<GlobalValue *>> boxes;
  bool areBoxes = true;
  for (auto &g : r.m.globals)
    if (g->isBox()) {
      const GlobalValue *tensor = r.m.global(g->init.from);
      areBoxes &= checkBox(*g, tensor, r);
      boxes[tensor].push_back(g.get());
    }
  for (auto &g : r.m.globals) {
    if (g->role != GlobalValue::Tensor || !areBoxes)
      continue;
    if (g->isBox() || g->type.isPartitioned() || g->type.isAddend() || g->type.space != Space::Device || g->hasUses())
      r.at(*g, "[V10] tensor " + quoted(g.get()) + " has no storage: params or states are boxes of it, and nodes read those");
    const std::vector<GlobalValue *> &own = boxes[g.get()];
    int64_t elements = 0;
    for (const GlobalValue *b : own)
      elements += b->type.count();
    if (!own.empty())
      checkOverlaps(own, r);
    if (elements < g->type.count())
      r.at(*g, "[V10] of " + Twine(g->type.count()) + " elements of tensor " + quoted(g.get()) + " " + Twine(elements) +
                   " are in boxes");
  }
}

static void checkResults(const Node &n, Report &r) {
  auto types = expectedTypes(n, r.m);
  if (!types) {
    r.at(n, "[V1] '" + StringRef(n.op->name) + "': " + llvm::toString(types.takeError()));
    return;
  }
  if (types->size() != n.results.size()) {
    r.at(n, "[V1] '" + StringRef(n.op->name) + "' has " + Twine(types->size()) + " results, not " + Twine(n.results.size()));
    return;
  }
  for (unsigned i = 0; i < types->size(); ++i)
    if (n.result(i)->type != (*types)[i])
      r.at(n, "[V1] " + quoted(n.result(i)) + " is " + (*types)[i].str() + ", not " + n.result(i)->type.str());
}

/// Returns what is of the right form and in the wrong place, for V2.
static std::vector<std::pair<const Node *, std::string>> checkV1(const Function &f, const llvm::DenseSet<const Value *> &globals,
                                                                 Report &r) {
  std::vector<std::pair<const Node *, std::string>> misplaced;
  llvm::DenseSet<const Value *> defined;
  defined.reserve(f.args.size() + f.nodes.size());
  for (auto &a : f.args)
    defined.insert(a.get());
  auto isVisible = [&](const Value *v) {
    if (defined.contains(v) || f.isKernel || !globals.contains(v))
      return defined.contains(v);
    return !f.isBody || static_cast<const GlobalValue *>(v)->role == GlobalValue::Const;
  };
  for (auto &n : f.nodes) {
    bool known = true;
    for (const Value *v : n->operands()) {
      if (!v || isVisible(v))
        continue;
      known = false;
      if (v->isGlobal() && f.isKernel)
        r.at(*n, "[V1] a kernel reads only its arguments, not " + quoted(v));
      else if (v->isGlobal() && f.isBody)
        r.at(*n, "[V1] a body reads only its arguments and constants, not " + quoted(v));
      else
        r.at(*n, "[V1] " + quoted(v) + " is used before it is defined");
    }
    std::string form = checkForm(*n);
    if (!form.empty())
      r.at(*n, form);
    else if (std::string place = checkPlacement(*n); !place.empty())
      misplaced.push_back({n.get(), std::move(place)});
    else if (known)
      checkResults(*n, r);
    for (unsigned i = 0; i < n->numOperands(); ++i) {
      const Value *v = n->operand(i);
      if (!n->op->updates(i) || !v || !assigns(*n))
        continue;
      auto *g = v->isGlobal() ? static_cast<const GlobalValue *>(v) : nullptr;
      if (!g || g->role == GlobalValue::Const)
        r.at(*n, "[V1] '" + StringRef(n->op->name) + "' writes a param or a state, not " + quoted(v));
    }
    for (auto &res : n->results)
      defined.insert(res.get());
  }
  for (const Value *v : f.results)
    if (!v || !isVisible(v))
      r.at(f, "[V1] '@" + f.name + "' returns " + (v ? quoted(v) : "nothing") + ", which is not defined in it");
  return misplaced;
}

// ---- V3: what is started is waited for

/// `n` starts it; whatever is waited for first, all that it started is there then.
static void checkStarted(const Node &n, const Value &future, const llvm::DenseSet<const Node *> &waits, Report &r) {
  const Node *wait = nullptr;
  for (auto &u : future.uses) {
    if (!is(*u.node, Structural::Wait) || u.node->parent() != n.parent())
      continue; // V1 and V2
    if (wait)
      r.at(*u.node, "[V3] " + quoted(&future) + " is waited for twice");
    wait = u.node;
  }
  if (!wait) {
    r.at(n, "[V3] " + quoted(&future) + " is started and never waited for");
    return;
  }
  for (const Node *k = n.next(); k && !waits.contains(k); k = k->next())
    for (unsigned i = 0; i < k->numOperands(); ++i) {
      bool changes = k->op->updates(i) || is(*k, Structural::Release);
      if (changes && k->operand(i) && llvm::is_contained(n.operands(), k->operand(i)))
        r.at(*k, "[V3] " + quoted(k->operand(i)) + " is " + (is(*k, Structural::Release) ? "released" : "written") + " before " +
                     quoted(&future) + " is waited for");
    }
}

static void checkV3(const Function &f, Report &r) {
  for (auto &a : f.args)
    if (a->type.isFuture)
      r.at(f, "[V3] argument " + quoted(a.get()) + " is a future; wait where it was started");
  for (const Value *v : f.results)
    if (v && v->type.isFuture)
      r.at(f, "[V3] result " + quoted(v) + " is a future; wait for it first");
  for (auto &n : f.nodes) {
    llvm::DenseSet<const Node *> waits;
    for (auto &res : n->results)
      for (auto &u : res->uses)
        if (res->type.isFuture && is(*u.node, Structural::Wait))
          waits.insert(u.node);
    for (auto &res : n->results)
      if (res->type.isFuture)
        checkStarted(*n, *res, waits, r);
  }
}

// ---- V2: what is packed stays within the program

static void checkPacked(const Function &f, Report &r) {
  for (auto &a : f.args)
    if (f.isEntry() && a->type.isPacked())
      r.at(f, "[V2] argument " + quoted(a.get()) + " is packed (" + a->type.str() + ")");
  for (const Value *v : f.results)
    if (v && v->type.isPacked())
      r.at(f, "[V2] result " + quoted(v) + " is packed (" + v->type.str() + "); return what it is packed from");
}

// ---- V4: what is gathered is released

/// The last node that reads `v` or a view of it, but for releases; nullptr if none does.
static const Node *lastReader(const Value &v, const llvm::DenseMap<const Node *, int> &number) {
  const Node *last = nullptr;
  for (auto &u : v.uses) {
    if (is(*u.node, Structural::Release))
      continue;
    const Node *reader = u.node;
    if (reader->op->view)
      if (const Node *behind = lastReader(*reader->result(), number))
        reader = behind;
    if (!last || number.lookup(reader) > number.lookup(last))
      last = reader;
  }
  return last;
}

static void checkV4(const Function &f, Report &r) {
  llvm::DenseMap<const Node *, int> number;
  for (auto &n : f.nodes)
    number.insert({n.get(), int(number.size())});
  auto check = [&](const Node &n, const Value &v) {
    const Node *release = nullptr;
    bool isKept = llvm::is_contained(f.results, &v);
    for (auto &u : v.uses) {
      isKept |= assigns(*u.node) && u.index == 1; // it becomes a parameter
      if (!is(*u.node, Structural::Release))
        continue;
      if (release)
        r.at(*u.node, "[V4] " + quoted(&v) + " is released twice");
      release = u.node;
    }
    if (!release && !isKept)
      r.at(n, "[V4] " + quoted(&v) + " is gathered and never released");
    if (!release)
      return;
    const Node *last = lastReader(v, number);
    if (last && number.lookup(last) > number.lookup(release))
      r.at(*last, "[V4] " + quoted(&v) + " is read after its release");
  };
  for (auto &n : f.nodes) {
    if (is(*n, Structural::Start))
      continue; // what is waited for counts
    bool isWait = is(*n, Structural::Wait) && n->operand(0)->def;
    for (auto &res : n->results)
      if (gathers(isWait ? *n->operand(0)->def : *n))
        check(*n, *res);
  }
}

// ---- V5: each trained parameter is updated once, from gradients that were summed

/// The results of what reads a value; where that runs for several parts, of the part that does, and of a fused loop those that
/// its kernel computes from the value.
static llvm::SmallVector<const Value *, 4> resultsFor(const Value::Use &u, const Module &m) {
  const size_t parts = std::max<int64_t>(u.node->attrs.i("parts", 1), 1);
  const size_t operands = std::max<size_t>(u.node->numOperands() / parts, 1), results = u.node->results.size() / parts;
  const Function *kernel = u.node->op->isFused() ? m.function(u.node->attrs.s("kernel")) : nullptr;
  llvm::DenseSet<const Value *> depends;
  if (kernel && kernel->args.size() == operands && kernel->results.size() == results) {
    depends.insert(kernel->args[u.index % operands].get());
    for (auto &n : kernel->nodes)
      if (llvm::any_of(n->operands(), [&](Value *v) { return depends.contains(v); }))
        for (auto &r : n->results)
          depends.insert(r.get());
  }
  llvm::SmallVector<const Value *, 4> out;
  for (size_t i = 0; i < results; ++i)
    if (depends.empty() || depends.contains(kernel->results[i]))
      out.push_back(u.node->result(u.index / operands * results + i));
  return out;
}

/// The collectives that an addend reaches through what is linear, and through states that hold it.
static unsigned reductionsOf(const Value *addend, const Module &m) {
  llvm::SmallVector<const Value *> work = {addend};
  llvm::DenseSet<const Value *> seen = {addend};
  llvm::DenseSet<const Node *> found;
  while (!work.empty()) {
    const Value *v = work.pop_back_val();
    auto follow = [&](const Value *next) {
      if (next && next->type.isAddend() && seen.insert(next).second)
        work.push_back(next);
    };
    for (auto &u : v->uses) {
      if (sumsOverRanks(*u.node))
        found.insert(u.node);
      else if (assigns(*u.node))
        follow(u.node->operand(0));
      for (const Value *res : resultsFor(u, m))
        follow(res);
    }
  }
  return found.size();
}

static void checkV5(Report &r) {
  llvm::DenseMap<const Value *, int64_t> updates; // elements
  llvm::DenseSet<const Value *> summed;           // depends on a collective
  for (auto &f : r.m.functions)
    for (auto &n : f->nodes) {
      if (is(*n, Structural::SumRanks))
        r.at(*n, "[V5] a sum over ranks is left behind reduce-gradients");
      if (is(*n, Structural::Addend))
        if (unsigned k = reductionsOf(n->result(), r.m); k != 1)
          r.at(*n, "[V5] addend " + quoted(n->result()) + " is summed " + Twine(k) + " times over the ranks, not once");
      bool depends = sumsOverRanks(*n) || llvm::any_of(n->operands(), [&](Value *v) { return summed.contains(v); });
      for (auto &res : n->results)
        if (depends)
          summed.insert(res.get());
      if (!assigns(*n))
        continue;
      if (f->name != "flush") // what it updates, @micro would have in the next step
        updates[n->operand(0)] += n->operand(1)->type.localCount();
      if (depends)
        summed.insert(n->operand(0));
    }
  for (auto &g : r.m.globals) {
    if (!g->trained)
      continue;
    if (int64_t n = updates.lookup(g.get()), all = g->type.localCount(); n % std::max<int64_t>(all, 1))
      r.at(*g, "[V5] of " + Twine(all) + " elements of trained " + quoted(g.get()) + " " + Twine(n) + " are updated");
    else if (n != all)
      r.at(*g, "[V5] trained " + quoted(g.get()) + " is updated " + Twine(n / std::max<int64_t>(all, 1)) + " times, not once");
    else if (r.m.ranks > 1 && !summed.contains(g.get()))
      r.at(*g, "[V5] the update of " + quoted(g.get()) + " depends on no sum over the ranks");
  }
}

// ---- V6: the same order of collectives on every rank

static bool isPlain(const Type &t) { return !t.isFuture && t.shards == 1 && t.addends == 1 && t.space == Space::Device; }

static void checkBody(const Function &f, Report &r) {
  if (llvm::is_contained({"init", "micro", "update", "flush", "eval"}, StringRef(f.name)))
    r.at(f, "[V6] a body is no entry of the program: it cannot be called '@" + f.name + "'");
  if (isRecursive(f))
    r.at(f, "[V6] body '@" + f.name + "' names itself");
  for (auto &a : f.args)
    if (!isPlain(a->type))
      r.at(f, "[V6] a body takes whole tensors in @device, not " + quoted(a.get()) + " (" + a->type.str() + ")");
  for (auto &n : f.nodes)
    if (!n->op->isPure() || llvm::any_of(n->results, [](auto &v) { return !isPlain(v->type); }))
      r.at(*n, "[V6] '" + StringRef(n->op->name) + "' is not allowed in a body");
}

static void checkV6(const Function &f, Report &r) {
  if (f.isBody)
    checkBody(f, r);
  if (!f.isKernel)
    return;
  for (auto &n : f.nodes)
    if (!n->op->isPure() || n->op->kernel || n->op->structural || callsBodies(*n->op))
      r.at(*n, "[V6] '" + StringRef(n->op->name) + "' is not allowed in a kernel");
}

// ---- V8: locations

static void checkV8(const Function &f, Report &r) {
  for (auto &n : f.nodes)
    if (!n->loc)
      r.at(*n, "[V8] '" + StringRef(n->op->name) + "' in '@" + f.name + "' has no location");
}

// ---- V9: notes

/// A product is written in the memory of a result that is as large and lies over nothing that the kernel reads.
static void checkProductIn(const Node &n, Report &r) {
  if (!n.op->feedsKernel || !n.attrs.has("product_in"))
    return;
  int64_t i = n.attrs.i("product_in");
  if (i < 0 || i >= int64_t(n.results.size()) || n.result(unsigned(i))->type.localBytes() != productType(n).localBytes())
    r.at(n, "[V9] the note 'product_in' names a result of as many bytes as the product, " + productType(n).str());
  const std::vector<int64_t> pairs = n.attrs.ints("inplace");
  for (size_t p = 0; p + 1 < pairs.size(); p += 2)
    if (pairs[p] == i)
      r.at(n, "[V9] result " + Twine(i) + " has the product, which is written before operand " + Twine(pairs[p + 1]) +
                  " is read: it is not written over that");
}

static void checkV9(Report &r) {
  for (auto &[name, value] : r.m.attrs)
    if (std::string s = checkNote(NoteDef::Module, name, value); !s.empty())
      r.at(r.m, "[V9] " + s);
  for (auto &g : r.m.globals)
    for (auto &[name, value] : g->attrs)
      if (std::string s = checkNote(NoteDef::Global, name, value); !s.empty())
        r.at(*g, "[V9] " + s);
  for (auto &f : r.m.functions)
    for (auto &n : f->nodes) {
      for (auto &[name, value] : n->attrs)
        if (!attrDef(*n, name))
          if (std::string s = checkNote(NoteDef::Node, name, value); !s.empty())
            r.at(*n, "[V9] " + s);
      checkProductIn(*n, r);
    }
}

// ---- all

std::vector<Violation> zcc::violations(const Module &m) {
  Report r{m, {}};
  llvm::DenseSet<const Value *> globals;
  for (auto &g : m.globals) {
    globals.insert(g.get());
    checkGlobal(*g, r);
  }
  checkBoxes(r);
  for (auto &f : m.functions) {
    for (auto &[node, text] : checkV1(*f, globals, r))
      r.at(*node, text); // V2: whole tensors, shards, addends
    checkPacked(*f, r);
    checkV3(*f, r);
    if (m.has(Property::Scheduled))
      checkV4(*f, r);
    checkV6(*f, r);
    checkV8(*f, r);
  }
  if (m.has(Property::Reduced))
    checkV5(r);
  checkV9(r);
  return std::move(r.all);
}

StringRef zcc::withoutRule(StringRef text) { return text.starts_with("[V") ? text.split("] ").second : text; }

llvm::Error zcc::verify(const Module &m) {
  llvm::Error all = llvm::Error::success();
  for (Violation &v : violations(m)) {
    Loc loc = v.node ? v.node->loc : v.global ? v.global->loc : nullptr;
    all = llvm::joinErrors(std::move(all), loc ? errorAt(loc, v.text) : error(v.text));
  }
  return all;
}
