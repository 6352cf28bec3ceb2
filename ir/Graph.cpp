// Attributes, values with their uses, nodes, functions, and modules with their clones.
#include "ir/Graph.h"
#include "ir/Op.h"
#include "ir/StateNames.h"
#include "ir/Steps.h"
#include "ir/Tensor.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/xxhash.h"
#include <algorithm>
#include <cstring>

using namespace zcc;
using llvm::StringRef;

thread_local uint64_t zcc::steps = 0;

// ---- Attrs

void Attrs::set(StringRef n, Attr a) {
  auto at = llvm::partition_point(all_, [&](const Named &other) { return other.first < n; });
  if (at != all_.end() && at->first == n)
    at->second = std::move(a);
  else
    all_.insert(at, {n.str(), std::move(a)});
}

int64_t Attrs::i(StringRef n, int64_t otherwise) const {
  const Attr *a = find(n);
  return a && std::holds_alternative<int64_t>(*a) ? std::get<int64_t>(*a) : otherwise;
}

double Attrs::f(StringRef n, double otherwise) const {
  const Attr *a = find(n);
  if (!a)
    return otherwise;
  if (auto *d = std::get_if<double>(a))
    return *d;
  if (auto *i = std::get_if<int64_t>(a))
    return double(*i);
  return otherwise;
}

std::string Attrs::s(StringRef n, StringRef otherwise) const {
  const Attr *a = find(n);
  return a && std::holds_alternative<std::string>(*a) ? std::get<std::string>(*a) : otherwise.str();
}

std::vector<int64_t> Attrs::ints(StringRef n) const {
  const Attr *a = find(n);
  return a && std::holds_alternative<std::vector<int64_t>>(*a) ? std::get<std::vector<int64_t>>(*a) : std::vector<int64_t>();
}

std::vector<double> Attrs::floats(StringRef n) const {
  const Attr *a = find(n);
  if (a && std::holds_alternative<std::vector<double>>(*a))
    return std::get<std::vector<double>>(*a);
  std::vector<double> out; // "[1, 2]" reads as integers
  for (int64_t v : ints(n))
    out.push_back(double(v));
  return out;
}

// ---- values and nodes

void Value::replaceAllUsesWith(Value *v) {
  if (v == this)
    return;
  while (!uses.empty()) {
    Use u = uses.front();
    u.node->setOperand(u.index, v);
  }
  auto replaceIn = [&](Function &f) { std::replace(f.results.begin(), f.results.end(), this, v); };
  if (def && def->parent()) {
    replaceIn(*def->parent());
    return;
  }
  Module *m = v->def && v->def->parent() ? v->def->parent()->module : nullptr;
  if (m)
    for (auto &f : m->functions)
      replaceIn(*f);
}

Node::~Node() { dropOperands(); }

void Node::dropUse(unsigned i) {
  if (operands_[i])
    operands_[i]->uses.erase(places_[i]);
}

void Node::setOperand(unsigned i, Value *v) {
  while (operands_.size() <= i) {
    operands_.push_back(nullptr);
    places_.emplace_back();
  }
  dropUse(i);
  operands_[i] = v;
  if (v)
    places_[i] = v->uses.insert(v->uses.end(), {this, i});
}

void Node::addOperand(Value *v) { setOperand(operands_.size(), v); }

void Node::dropOperands() {
  for (unsigned i = 0; i < operands_.size(); ++i)
    dropUse(i);
  operands_.clear();
  places_.clear();
}

bool Value::isReturned() const { return llvm::is_contained(def->parent()->results, this); }

bool Node::hasUses() const {
  return llvm::any_of(results, [](auto &r) { return r->hasUses(); });
}

Node *Node::next() const {
  auto i = std::next(self_);
  return i == parent_->nodes.end() ? nullptr : i->get();
}

Node *Node::prev() const { return self_ == parent_->nodes.begin() ? nullptr : std::prev(self_)->get(); }

void Node::moveBefore(Node *other) {
  if (other == this)
    return;
  parent_->nodes.splice(other ? other->self_ : parent_->nodes.end(), parent_->nodes, self_);
}

void Node::erase() {
  assert(!hasUses() && "erasing a node that is used");
  dropOperands();
  parent_->nodes.erase(self_);
}

void Node::eraseOperand(unsigned i) {
  auto kept = operands_;
  kept.erase(kept.begin() + i);
  dropOperands();
  for (Value *v : kept)
    addOperand(v);
}

void Node::eraseResult(unsigned i) {
  assert(!results[i]->hasUses() && "erasing a result that is used");
  results.erase(results.begin() + i);
  for (unsigned k = i; k < results.size(); ++k)
    results[k]->index = k;
}

// ---- functions

Function::~Function() {
  for (auto &n : nodes) // while all values are there
    n->dropOperands();
}

Value *Function::addArg(StringRef n, Type t) {
  args.push_back(std::make_unique<Value>(Value::Argument, unique(n), std::move(t)));
  args.back()->index = args.size() - 1;
  return args.back().get();
}

void Function::eraseArg(unsigned i) {
  assert(!args[i]->hasUses() && "erasing an argument that is used");
  args.erase(args.begin() + i);
  for (unsigned k = i; k < args.size(); ++k)
    args[k]->index = k;
}

void Function::eraseResult(unsigned i) {
  results.erase(results.begin() + i);
  if (i < resultNames.size())
    resultNames.erase(resultNames.begin() + i);
}

Node *Function::insert(std::unique_ptr<Node> n, Node *before) {
  auto at = before ? before->self_ : nodes.end();
  n->parent_ = this;
  auto i = nodes.insert(at, std::move(n));
  (*i)->self_ = i;
  return i->get();
}

/// Registers a name that neither a value nor a global has.
bool Function::take(StringRef n) {
  uint32_t hash = llvm::StringMapImpl::hash(n);
  bool isGlobals = module && module->byName_.find(n, hash) != module->byName_.end();
  return !n.empty() && !isGlobals && names_.try_emplace_with_hash(n, hash, 1).second;
}

std::string Function::unique(StringRef base) {
  hasNewNames_ = true;
  if (names_.empty()) { // of a copy
    auto note = [&](const Value &v) { names_.try_emplace(v.name, 1); };
    for (auto &a : args)
      note(*a);
    for (auto &n : nodes)
      for (auto &r : n->results)
        note(*r);
  }
  if (take(base))
    return base.str();
  std::string n = base.empty() ? "v" : base.str();
  bool numbered = base.empty();
  unsigned &count = names_[n];
  while (true) {
    std::string s = count == 0 && !numbered ? n : n + (numbered ? "" : ".") + std::to_string(count);
    ++count;
    if (s != n && names_.count(s))
      continue;
    if (module && module->global(s))
      continue;
    if (s != n)
      names_[s] = 1;
    return s;
  }
}

void Function::renameAll() {
  names_ = Names(args.size() + nodes.size());
  names_.try_emplace("", 1); // known from here on
  auto rename = [&](Value &v) {
    if (!take(v.name))
      v.name = unique(v.name);
  };
  for (auto &a : args)
    rename(*a);
  for (auto &n : nodes)
    for (auto &r : n->results)
      rename(*r);
  hasNewNames_ = false;
}

Value *Function::arg(StringRef n) const {
  for (auto &a : args)
    if (a->name == n)
      return a.get();
  return nullptr;
}

// ---- modules

Module::~Module() {
  functions.clear(); // while all globals are there
}

GlobalValue *Module::addGlobal(GlobalValue::Role role, StringRef n, Type t, Init init) {
  std::string unique = n.str();
  auto isTaken = [&] { // inputs keep the names that data have, but for those that the runtime knows
    return byName_.count(unique) ||
           (!isStateName(unique) && llvm::any_of(functions, [&](auto &f) { return f->isEntry() && f->arg(unique); }));
  };
  if (isTaken())
    for (unsigned &i = numbers_[n]; isTaken(); ++steps)
      unique = (n + "." + llvm::Twine(++i)).str();
  globals.push_back(std::make_unique<GlobalValue>(role, unique, std::move(t), std::move(init)));
  byName_[unique] = globals.back().get();
  return globals.back().get();
}

GlobalValue *Module::global(StringRef n) const { return byName_.lookup(n); }

Function *Module::function(StringRef n) const {
  Function *f = functions_.lookup(n);
  assert((!f || f->name == n) && "renamed behind the module's back");
  return f;
}

const GlobalValue &Module::wholeOf(const GlobalValue &g) const {
  const GlobalValue *tensor = g.isBox() ? global(g.init.from) : nullptr;
  return tensor ? *tensor : g;
}

std::vector<GlobalValue *> Module::boxesOf(const GlobalValue &tensor) const {
  std::vector<GlobalValue *> boxes;
  for (auto &g : globals)
    if (g->isBox() && g->init.from == tensor.name)
      boxes.push_back(g.get());
  return boxes;
}

void Module::rename(Function &f, StringRef name) {
  functions_.erase(f.name);
  f.name = name.str();
  functions_.try_emplace(name, &f);
}

Function *Module::addFunction(StringRef n) {
  functions.push_back(std::make_unique<Function>());
  functions.back()->name = n.str();
  functions.back()->module = this;
  functions_.try_emplace(n, functions.back().get());
  return functions.back().get();
}

Function *Module::addKernel(std::unique_ptr<Function> k) {
  k->isKernel = true;
  k->module = this;
  functions_.try_emplace(k->name, k.get());
  return functions.insert(llvm::find_if(functions, [](auto &f) { return !f->isKernel; }), std::move(k))->get();
}

Function *Module::addBody(StringRef base) {
  std::string name = base.str();
  for (unsigned i = 1; function(name); ++i)
    name = (base + "." + llvm::Twine(i)).str();
  Function *f = addFunction(name);
  f->isBody = true;
  return f;
}

void Module::eraseGlobals(llvm::ArrayRef<GlobalValue *> gone) {
  if (gone.empty())
    return;
  llvm::DenseSet<const GlobalValue *> set(gone.begin(), gone.end());
  for (GlobalValue *g : gone) {
    assert(!g->hasUses() && "erasing a global that is used");
    byName_.erase(g->name);
  }
  numbers_.clear(); // smaller ones may be free now
  constants_.clear();
  indexed_ = 0;
  steps += globals.size();
  llvm::erase_if(globals, [&](auto &g) { return set.contains(g.get()); });
}

void Module::eraseFunction(Function *f) {
  if (function(f->name) == f)
    functions_.erase(f->name);
  llvm::erase_if(functions, [&](auto &x) { return x.get() == f; });
}

static bool isInConstData(const GlobalValue &g) {
  return g.role == GlobalValue::Const && g.init.kind == Init::File && g.init.file.empty();
}

void Module::indexConstants() {
  for (; indexed_ < globals.size(); ++indexed_) {
    ++steps;
    GlobalValue *g = globals[indexed_].get();
    if (isInConstData(*g))
      constants_[llvm::xxh3_64bits(StringRef(constData).substr(g->init.offset, g->init.bytes))].push_back(g);
  }
}

GlobalValue *Module::addConst(StringRef n, Type t, StringRef bytes) {
  indexConstants();
  for (GlobalValue *g : constants_[llvm::xxh3_64bits(bytes)]) {
    ++steps;
    if (isInConstData(*g) && g->type == t && StringRef(constData).substr(g->init.offset, g->init.bytes) == bytes)
      return g;
  }
  Init i;
  i.kind = Init::File;
  std::string &data = constData.own();
  data.resize(llvm::alignTo(data.size(), kDataAlign));
  i.offset = data.size();
  i.bytes = bytes.size();
  data += bytes;
  return addGlobal(GlobalValue::Const, n, std::move(t), i);
}

static std::string splatBytes(const Type &t, double v) {
  // Only what passes make: floats and integers by value.
  std::string s;
  auto fill = [&](auto x) {
    s.resize(t.count() * sizeof x);
    for (int64_t i = 0; i < t.count(); ++i)
      memcpy(s.data() + i * sizeof x, &x, sizeof x);
  };
  switch (t.elem) {
  case Elem::F32:
    fill(float(v));
    break;
  case Elem::F64:
    fill(v);
    break;
  case Elem::I64:
  case Elem::U64:
    fill(int64_t(v));
    break;
  case Elem::I32:
  case Elem::U32:
    fill(int32_t(v));
    break;
  case Elem::I16:
  case Elem::U16:
    fill(int16_t(v));
    break;
  case Elem::I8:
  case Elem::U8:
  case Elem::Bool:
    fill(int8_t(v));
    break;
  case Elem::BF16: { // round to nearest even
    float f = float(v);
    uint32_t b;
    memcpy(&b, &f, 4);
    fill(uint16_t((b + 0x7fff + (b >> 16 & 1)) >> 16));
    break;
  }
  case Elem::F16:
    fill(_Float16(v));
    break;
  }
  return s;
}

void zcc::forRows(const GlobalValue &box, const Type &whole, llvm::function_ref<void(int64_t at, int64_t count)> f) {
  const int64_t axes = whole.ndim(), row = axes ? box.type.dims.back() : 1;
  for (int64_t i = 0, rows = row ? box.type.count() / row : 0; i < rows; ++i) {
    int64_t left = i, at = 0, stride = 1;
    for (int64_t axis = axes; axis-- > 0; stride *= whole.dims[axis]) {
      bool isRow = axis == axes - 1;
      at += (box.init.start[axis] + (isRow ? 0 : left % box.type.dims[axis])) * stride;
      left = isRow ? left : left / box.type.dims[axis];
    }
    f(at, row);
  }
}

std::string Module::pathOf(StringRef file) const {
  llvm::SmallString<128> path(file);
  if (llvm::sys::path::is_relative(path) && !folder.empty()) {
    path = folder;
    llvm::sys::path::append(path, file);
  }
  return path.str().str();
}

llvm::Error Module::expectNotRead(StringRef made) const {
  llvm::StringSet<> files;
  for (auto &g : globals)
    if (g->init.kind == Init::File && !g->init.file.empty())
      files.insert(g->init.file);
  for (auto &f : files)
    if (llvm::sys::fs::equivalent(pathOf(f.first()), made))
      return error("'" + made + "' would overwrite the weights of the model; name another file");
  return llvm::Error::success();
}

llvm::Expected<std::string> Module::bytesOf(const GlobalValue &g, int64_t limit) const {
  if (g.init.kind == Init::Zero || g.init.kind == Init::Splat)
    return splatBytes(g.type, g.init.kind == Init::Zero ? 0 : g.init.a);
  if (g.isBox()) {
    auto whole = bytesOf(wholeOf(g), limit);
    if (!whole)
      return whole;
    std::string own;
    const int64_t size = elemBytes(g.type.elem);
    forRows(g, wholeOf(g).type, [&](int64_t at, int64_t n) { own += StringRef(*whole).substr(at * size, n * size); });
    return own;
  }
  if (g.init.kind != Init::File)
    return errorAt(g.loc, "'" + g.name + "' has no data");
  if (g.init.bytes > limit)
    return errorAt(g.loc, "'" + g.name + "' is too large to read here");
  std::string raw;
  if (g.init.file.empty()) {
    if (g.init.offset + g.init.bytes > int64_t(constData.size()))
      return errorAt(g.loc, "'" + g.name + "' lies outside the constant data");
    raw = StringRef(constData).substr(g.init.offset, g.init.bytes).str();
  } else {
    const std::string path = pathOf(g.init.file);
    auto buf = llvm::MemoryBuffer::getFileSlice(path, g.init.bytes, g.init.offset);
    if (!buf)
      return error("cannot read '" + path + "': " + buf.getError().message());
    raw = (*buf)->getBuffer().str();
    if (int64_t(raw.size()) != g.init.bytes)
      return error("'" + path + "' is too short for '" + g.name + "'");
  }
  auto converted = [&](std::string bytes) {
    return g.init.elem ? convertedBytes(bytes, g.type.withElem(*g.init.elem), g.type.elem) : bytes;
  };
  if (g.init.encoding != "transposed" || g.type.count() == 0)
    return converted(std::move(raw));
  int64_t e = elemBytes(g.init.elem.value_or(g.type.elem)), rows = g.type.dims[g.type.ndim() - 2], cols = g.type.dims.back(),
          mats = g.type.count() / (rows * cols);
  std::string out(raw.size(), 0);
  for (int64_t m = 0; m < mats; ++m)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        memcpy(&out[((m * rows + r) * cols + c) * e], &raw[((m * cols + c) * rows + r) * e], e);
  return converted(std::move(out));
}

static std::unique_ptr<Value> copyOf(const Value &v) {
  auto c = std::make_unique<Value>(v.kind, v.name, v.type);
  c->index = v.index;
  return c;
}

/// Appends a copy of a node of another module, with the same names.
static void copyNode(const Node &n, Function &to, llvm::DenseMap<const Value *, Value *> &map) {
  Node *c = to.insert(std::make_unique<Node>(n.op, n.loc));
  c->attrs = n.attrs;
  c->phase = n.phase;
  for (const Value *v : n.operands())
    c->addOperand(map.lookup(v));
  c->results.reserve(n.results.size());
  for (auto &r : n.results) {
    c->results.push_back(copyOf(*r));
    c->results.back()->def = c;
    map[r.get()] = c->results.back().get();
  }
}

std::unique_ptr<Module> Module::clone() const {
  auto m = std::make_unique<Module>();
  m->name = name;
  m->ranks = ranks;
  m->properties = properties;
  m->constData = constData;
  m->constPath = constPath;
  m->attrs = attrs;
  m->folder = folder;
  llvm::DenseMap<const Value *, Value *> map;
  size_t values = globals.size();
  for (auto &f : functions)
    values += f->args.size() + f->nodes.size();
  map.reserve(values);
  for (auto &g : globals) {
    GlobalValue *c = m->addGlobal(g->role, g->name, g->type, g->init);
    c->trained = g->trained;
    c->exported = g->exported;
    c->attrs = g->attrs;
    c->onnxName = g->onnxName;
    c->loc = g->loc;
    map[g.get()] = c;
  }
  for (auto &f : functions) {
    Function *c = m->addFunction(f->name);
    c->isKernel = f->isKernel;
    c->isBody = f->isBody;
    c->resultNames = f->resultNames;
    for (auto &a : f->args) {
      c->args.push_back(copyOf(*a));
      map[a.get()] = c->args.back().get();
    }
    for (auto &n : f->nodes)
      copyNode(*n, *c, map);
    for (Value *r : f->results)
      c->results.push_back(map.lookup(r));
  }
  return m;
}

bool zcc::comesBefore(const Node *a, const Node *b) {
  for (const Node *n = a->next(); n; n = n->next())
    if (n == b)
      return true;
  return false;
}
