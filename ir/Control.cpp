// Types of scan and cond by their bodies, copies of bodies, and who names whom.
#include "ir/Control.h"
#include "ir/Op.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace zcc;
using llvm::StringRef;
using llvm::Twine;
using Types = llvm::SmallVector<Type, 2>;
using Operands = llvm::ArrayRef<const Type *>;

static bool namesBody(const AttrDef &d) { return d.name && d.kind == AttrKind::Body; }

bool zcc::callsBodies(const OpDef &op) { return llvm::any_of(op.attrs, namesBody); }

llvm::SmallVector<Function *, 2> zcc::bodiesOf(const Node &n) {
  llvm::SmallVector<Function *, 2> out;
  for (const AttrDef &d : n.op->attrs)
    if (namesBody(d)) {
      Function *f = n.parent() ? n.parent()->module->function(n.attrs.s(d.name)) : nullptr;
      out.push_back(f && f->isBody ? f : nullptr);
    }
  return out;
}

void zcc::copyNodes(llvm::ArrayRef<Node *> nodes, Function &to, llvm::DenseMap<const Value *, Value *> &map) {
  for (const Node *n : nodes) {
    Node *c = to.insert(std::make_unique<Node>(n->op, n->loc));
    c->attrs = n->attrs;
    c->phase = n->phase;
    for (Value *v : n->operands()) {
      auto known = map.find(v);
      c->addOperand(known == map.end() ? v : known->second);
    }
    for (auto &r : n->results) {
      c->results.push_back(std::make_unique<Value>(Value::Result, to.unique(r->name), r->type));
      c->results.back()->def = c;
      c->results.back()->index = r->index;
      map[r.get()] = c->results.back().get();
    }
  }
}

bool zcc::eraseDeadNodes(Function &f, const Node *last) {
  llvm::SmallPtrSet<const Value *, 8> results(f.results.begin(), f.results.end());
  llvm::SetVector<Node *> work;
  for (Node *n = last ? last->next() : f.first(); n; n = n->next())
    work.insert(n);
  llvm::DenseSet<const Node *> mayGo(work.begin(), work.end());
  bool changed = false;
  while (!work.empty()) {
    Node *n = work.pop_back_val();
    bool isResult = llvm::any_of(n->results, [&](auto &r) { return results.contains(r.get()); });
    if (!n->op->isPure() || n->hasUses() || isResult)
      continue;
    for (Value *v : n->operands())
      if (v && v->def && mayGo.contains(v->def))
        work.insert(v->def);
    mayGo.erase(n);
    n->erase();
    changed = true;
  }
  return changed;
}

// ---- types

ScanForm::ScanForm(const Node &n)
    : carried(unsigned(n.attrs.i("carried"))), scanned(unsigned(n.attrs.i("scanned"))), trips(n.attrs.i("trips")),
      reverse(n.attrs.i("reverse") != 0) {
  if (scanned)
    trips = n.operand(carried)->type.dims[0];
}

unsigned zcc::carriedBy(const Node &n) { return n.op->isScan() ? ScanForm(n).carried : 0; }

static llvm::Expected<const Function *> bodyNamed(const Module &m, const std::string &name) {
  const Function *f = m.function(name);
  if (!f || !f->isBody)
    return error("there is no body '@" + name + "'");
  return f;
}

static llvm::Error checkArgs(const Function &body, llvm::ArrayRef<Type> given) {
  if (body.args.size() != given.size())
    return error("body '@" + body.name + "' takes " + Twine(body.args.size()) + " arguments, not " + Twine(given.size()));
  for (unsigned i = 0; i < given.size(); ++i)
    if (body.args[i]->type != given[i])
      return error("argument '%" + body.args[i]->name + "' of body '@" + body.name + "' is " + body.args[i]->type.str() +
                   ", but it gets " + given[i].str());
  return llvm::Error::success();
}

static Type stacked(int64_t trips, const Type &row) {
  Type t = row;
  t.dims.insert(t.dims.begin(), trips);
  return t;
}

static llvm::Expected<Types> scanTypes(Operands t, const Attrs &a, const Module &m) {
  auto body = bodyNamed(m, a.s("body"));
  if (!body)
    return body.takeError();
  int64_t carried = a.i("carried"), scanned = a.i("scanned"), trips = a.i("trips");
  if (carried < 0 || scanned < 0 || carried + scanned > int64_t(t.size()))
    return error(Twine(carried) + " carried and " + Twine(scanned) + " scanned of " + Twine(t.size()) + " operands");
  if (scanned && trips)
    return error("'trips' is given by what is scanned");
  std::vector<Type> given;
  for (int64_t i = 0; i < int64_t(t.size()); ++i) {
    given.push_back(*t[i]);
    if (i < carried || i >= carried + scanned)
      continue;
    if (t[i]->isScalar())
      return error("a scalar cannot be scanned");
    if (i > carried && t[i]->dims[0] != trips)
      return error("scanned tensors have " + Twine(trips) + " and " + Twine(t[i]->dims[0]) + " slices");
    trips = t[i]->dims[0];
    given.back().dims.erase(given.back().dims.begin());
  }
  if (trips < 1)
    return error("there is no iteration");
  if (auto e = checkArgs(**body, given))
    return e;
  Types out;
  for (int64_t i = 0; i < int64_t((*body)->results.size()); ++i) {
    const Type &r = (*body)->results[i]->type;
    if (i < carried && r != given[i])
      return error("body '@" + (*body)->name + "' makes carried value " + Twine(i) + " " + r.str() + ", it was " +
                   given[i].str());
    out.push_back(i < carried ? r : stacked(trips, r));
  }
  if (int64_t(out.size()) < carried)
    return error("body '@" + (*body)->name + "' returns " + Twine(out.size()) + " of " + Twine(carried) + " carried values");
  return out;
}

static llvm::Expected<Types> condTypes(Operands t, const Attrs &a, const Module &m) {
  if (t[0]->elem != Elem::Bool || !t[0]->isScalar())
    return error("the condition is " + t[0]->str() + ", not bool[]");
  std::vector<Type> given;
  for (const Type *x : t.drop_front())
    given.push_back(*x);
  Types out;
  for (const char *which : {"then", "else"}) {
    auto body = bodyNamed(m, a.s(which));
    if (!body)
      return body.takeError();
    if (auto e = checkArgs(**body, given))
      return e;
    Types types;
    for (const Value *r : (*body)->results)
      types.push_back(r->type);
    if (which == StringRef("else") && types != out)
      return error("the two bodies return different types");
    out = std::move(types);
  }
  return out;
}

llvm::Expected<Types> zcc::typesByBodies(const OpDef &op, Operands operands, const Attrs &attrs, const Module &m) {
  for (const Type *t : operands)
    if (!t)
      return error("no operand may be left out");
  if (op.isScan())
    return scanTypes(operands, attrs, m);
  if (operands.empty())
    return error("the condition is missing");
  return condTypes(operands, attrs, m);
}

// ---- who names whom

static void visit(Function *f, llvm::SmallPtrSetImpl<const Function *> &seen, std::vector<Function *> &out) {
  if (!seen.insert(f).second)
    return;
  for (auto &n : f->nodes)
    if (callsBodies(*n->op))
      for (Function *body : bodiesOf(*n))
        if (body)
          visit(body, seen, out);
  out.push_back(f);
}

std::vector<Function *> zcc::calleesFirst(const Module &m) {
  llvm::SmallPtrSet<const Function *, 8> seen;
  std::vector<Function *> out;
  for (auto &f : m.functions)
    if (f->isBody)
      visit(f.get(), seen, out);
  for (auto &f : m.functions)
    visit(f.get(), seen, out);
  return out;
}

std::vector<Node *> zcc::callersOf(const Function &body) {
  std::vector<Node *> out;
  for (auto &f : body.module->functions)
    for (auto &n : f->nodes)
      if (callsBodies(*n->op) && llvm::is_contained(bodiesOf(*n), &body))
        out.push_back(n.get());
  return out;
}

void zcc::unshareBodies(Module &m) {
  llvm::SmallPtrSet<const Function *, 8> taken;
  std::vector<Function *> order = calleesFirst(m);
  for (size_t i = order.size(); i-- > 0;) { // callers first
    Function *f = order[i];
    for (auto &n : f->nodes)
      for (const AttrDef &d : n->op->attrs) {
        Function *body = namesBody(d) ? m.function(n->attrs.s(d.name)) : nullptr;
        if (!body || !body->isBody || taken.insert(body).second)
          continue;
        Function *copy = m.addBody(body->name);
        llvm::DenseMap<const Value *, Value *> map;
        for (auto &a : body->args)
          map[a.get()] = copy->addArg(a->name, a->type);
        std::vector<Node *> nodes;
        for (auto &x : body->nodes)
          nodes.push_back(x.get());
        copyNodes(nodes, *copy, map);
        for (Value *r : body->results)
          copy->results.push_back(map.count(r) ? map[r] : r);
        n->attrs.set(d.name, copy->name);
        taken.insert(copy);
        order.insert(order.begin() + i, copy); // what it names is looked at next
        ++i;
      }
  }
}

static bool reaches(const Function &from, const Function &to, llvm::SmallPtrSetImpl<const Function *> &seen) {
  for (auto &n : from.nodes)
    if (callsBodies(*n->op))
      for (const Function *body : bodiesOf(*n))
        if (body && (body == &to || (seen.insert(body).second && reaches(*body, to, seen))))
          return true;
  return false;
}

bool zcc::isRecursive(const Function &body) {
  llvm::SmallPtrSet<const Function *, 8> seen;
  return reaches(body, body, seen);
}
