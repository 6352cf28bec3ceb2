// Prints modules, functions and nodes as .zir.
#include "ir/Control.h"
#include "ir/Files.h"
#include "ir/Lexer.h"
#include "ir/Op.h"
#include "ir/Phase.h"
#include "ir/Tensor.h"
#include "ir/Text.h"
#include "ir/Verifier.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Path.h"

using namespace zcc;
using llvm::StringRef;

/// Constants up to this size are readable in the text.

llvm::ArrayRef<const char *> zcc::propertyNames() {
  static const char *const names[] = {"differentiated", "optimized", "partitioned", "gathered",
                                      "reduced",        "fused",     "scheduled",   "planned"};
  return names;
}

static bool isConstData(const GlobalValue &g) { return g.init.kind == Init::File && g.init.file.empty(); }

static StringRef constBytes(const Module &m, const GlobalValue &g) {
  bool inside = g.init.offset >= 0 && g.init.bytes >= 0 && uint64_t(g.init.offset) <= m.constData.size();
  return inside ? StringRef(m.constData).substr(g.init.offset, g.init.bytes) : "";
}

namespace {
class Printer {
  const Module &m;
  llvm::raw_ostream &os;
  const PrintOptions &opt;
  llvm::StringSet<> globalNames, localNames;
  llvm::DenseMap<const Value *, std::string> names;

public:
  std::string sidecar;                                  ///< name of the file of constant data; empty: it is in the text
  llvm::DenseMap<const GlobalValue *, int64_t> offsets; ///< in that file

  Printer(const Module &mod, llvm::raw_ostream &out, const PrintOptions &o) : m(mod), os(out), opt(o) {}
  void module();
  /// Lays out the constants above 8 elements and returns their bytes.
  std::string sidecarBytes();

private:
  void name(const Value *v, llvm::StringSet<> &taken);
  void value(const Value *v);
  void head();
  void global(const GlobalValue &g);
  void init(const GlobalValue &g);
  bool list(const GlobalValue &g, StringRef bytes);
  void function(const Function &f);
  void node(const Node &n, bool saysPhase);
  void nodeAttrs(const Node &n, bool saysPhase);
  void attrs(const Attrs &a);
  void loc(const Loc &l);
};
} // namespace

void Printer::name(const Value *v, llvm::StringSet<> &taken) {
  std::string base = v->name.empty() ? "v" : v->name, s = base;
  for (unsigned i = 1; globalNames.contains(s) || taken.contains(s); ++i)
    s = base + "." + std::to_string(i);
  taken.insert(s);
  names[v] = s;
}

void Printer::value(const Value *v) {
  auto i = names.find(v);
  os << '%';
  printName(os, i != names.end() ? i->second : v ? v->name : "<missing>");
}

void Printer::attrs(const Attrs &a) {
  os << '{';
  llvm::ListSeparator sep;
  for (auto &[n, x] : a) {
    os << sep;
    printKey(os, n);
    os << " = ";
    printAttr(os, x);
  }
  os << '}';
}

void Printer::loc(const Loc &l) {
  if (!opt.locs || !l)
    return;
  llvm::ListSeparator sep;
  os << " loc(";
  for (const std::string &n : l->nodes) {
    os << sep;
    printQuoted(os, n);
  }
  auto field = [&](const char *key, const std::string &s) {
    if (s.empty())
      return;
    os << sep << key << " = ";
    printQuoted(os, s);
  };
  field("op", l->opType);
  field("source", l->source);
  field("code", l->code);
  field("scope", l->scope);
  if (l->line)
    os << sep << "line = " << l->line << ", column = " << l->column;
  os << ')';
}

// ---- module and globals

void Printer::module() {
  for (auto &g : m.globals)
    name(g.get(), globalNames);
  os << "module @";
  printName(os, m.name);
  if (m.ranks != 1)
    os << " ranks " << m.ranks;
  if (m.properties) {
    os << " properties [";
    llvm::ListSeparator sep;
    for (unsigned i = 0; i < propertyNames().size(); ++i)
      if (m.properties >> i & 1)
        os << sep << propertyNames()[i];
    os << ']';
  }
  os << " {\n";
  head();
  for (auto &g : m.globals)
    global(*g);
  std::vector<Function *> ordered = calleesFirst(m);
  for (bool kernels : {true, false})
    for (const Function *f : ordered)
      if (f->isKernel == kernels)
        function(*f);
  os << "}\n";
}

void Printer::head() {
  bool files = llvm::any_of(m.globals, [](auto &g) { return g->init.kind == Init::File && !g->init.file.empty(); });
  if (files && m.folder != opt.folder) {
    llvm::SmallString<128> path(m.folder);
    llvm::sys::fs::make_absolute(path);
    llvm::sys::path::remove_dots(path);
    os << "  folder ";
    printQuoted(os, path);
    os << '\n';
  }
  if (!sidecar.empty()) {
    os << "  data ";
    printQuoted(os, sidecar);
    os << '\n';
  }
  if (!m.attrs.empty()) {
    os << "  attrs ";
    attrs(m.attrs);
    os << '\n';
  }
}

void Printer::global(const GlobalValue &g) {
  static const char *const roles[] = {"param", "state", "const", "tensor"};
  os << "  " << roles[g.role] << ' ';
  value(&g);
  os << " : " << g.type << " = ";
  init(g);
  if (g.trained || g.exported || !g.onnxName.empty() || !g.attrs.empty()) {
    llvm::ListSeparator sep;
    os << " {";
    if (g.trained)
      os << sep << "trained";
    if (g.exported)
      os << sep << "exported";
    if (!g.onnxName.empty()) {
      os << sep << "onnx = ";
      printQuoted(os, g.onnxName);
    }
    for (auto &[n, x] : g.attrs) {
      os << sep;
      printKey(os, n);
      os << " = ";
      printAttr(os, x);
    }
    os << '}';
  }
  loc(g.loc);
  os << '\n';
}

void Printer::init(const GlobalValue &g) {
  const Init &i = g.init;
  auto pair = [&](const char *kind) {
    os << kind << '(';
    printFloat(os, i.a);
    os << ", ";
    printFloat(os, i.b);
    os << ')';
    if (!i.from.empty()) {
      os << " as ";
      value(m.global(i.from));
    }
  };
  switch (i.kind) {
  case Init::Zero:
    os << "zero";
    return;
  case Init::Splat:
    os << "splat ";
    printFloat(os, i.a);
    return;
  case Init::Uniform:
    pair("uniform");
    return;
  case Init::Normal:
    pair("normal");
    return;
  case Init::Copy:
    os << "copy ";
    value(m.global(i.from));
    return;
  case Init::Box: {
    value(m.global(i.from));
    llvm::ListSeparator sep;
    os << '[';
    for (auto [begin, size] : llvm::zip(i.start, g.type.dims))
      os << sep << begin << ':' << begin + size;
    os << ']';
    return;
  }
  case Init::File:
    break;
  }
  if (isConstData(g)) {
    StringRef bytes = constBytes(m, g);
    if (i.encoding == "raw" && !i.elem && list(g, bytes))
      return;
    auto at = offsets.find(&g);
    if (at != offsets.end())
      os << "data[" << at->second << ", " << bytes.size() << ']';
    else
      os << "hex \"" << llvm::toHex(bytes, /*LowerCase=*/true) << '"';
  } else {
    printQuoted(os, i.file);
    os << '[' << i.offset << ", " << i.bytes << ']';
  }
  if (i.encoding != "raw")
    os << ' ' << i.encoding;
  if (i.elem)
    os << ' ' << elemName(*i.elem);
}

/// Prints the elements, if they are few and read back as the same bytes.
bool Printer::list(const GlobalValue &g, StringRef bytes) {
  if (g.type.count() > kMostInline || int64_t(bytes.size()) != g.type.count() * elemBytes(g.type.elem))
    return false;
  Tensor t = tensorFromBytes(g.type, bytes);
  if (tensorToBytes(t) != bytes)
    return false;
  if (t.isFloat())
    printAttr(os, t.f);
  else
    printAttr(os, t.i);
  return true;
}

// ---- functions

void Printer::function(const Function &f) {
  localNames.clear();
  for (auto &a : f.args)
    name(a.get(), localNames);
  for (auto &n : f.nodes)
    for (auto &r : n->results)
      name(r.get(), localNames);
  os << (f.isKernel ? "\n  kernel @" : f.isBody ? "\n  body @" : "\n  func @");
  printName(os, f.name);
  os << '(';
  llvm::ListSeparator sep, comma;
  for (auto &a : f.args) {
    os << sep;
    value(a.get());
    os << " : " << a->type;
  }
  os << ") -> (";
  for (unsigned i = 0; i < f.results.size(); ++i) {
    os << comma;
    if (i < f.resultNames.size() && !f.resultNames[i].empty()) {
      printQuoted(os, f.resultNames[i]);
      os << " : ";
    }
    os << f.results[i]->type;
  }
  os << ") {\n";
  auto usual = usualPhases(f);
  for (auto &n : f.nodes)
    node(*n, f.isEntry() && !n->op->leaf && n->phase != usual.lookup(n.get()));
  os << "    return";
  for (unsigned i = 0; i < f.results.size(); ++i) {
    os << (i ? ", " : " ");
    value(f.results[i]);
  }
  os << "\n  }\n";
}

void Printer::node(const Node &n, bool saysPhase) {
  os << "    ";
  llvm::ListSeparator sep, comma, types;
  for (auto &r : n.results) {
    os << sep;
    value(r.get());
  }
  os << (n.results.empty() ? "" : " = ") << n.op->name;
  if (n.op->structural == Structural::Start)
    os << ' ' << n.attrs.s("op");
  if (runsKernel(n)) {
    os << " @";
    printName(os, n.attrs.s("kernel"));
  }
  unsigned last = n.numOperands();
  while (last && !n.operand(last - 1))
    --last;
  for (unsigned i = 0; i < last; ++i) {
    os << (i ? ", " : " ");
    if (n.operand(i))
      value(n.operand(i));
    else
      os << '_';
  }
  nodeAttrs(n, saysPhase);
  for (unsigned i = 0; i < n.results.size(); ++i)
    os << (i ? ", " : " : ") << n.result(i)->type;
  loc(n.loc);
  os << '\n';
}

void Printer::nodeAttrs(const Node &n, bool saysPhase) {
  llvm::ListSeparator sep;
  bool any = saysPhase;
  if (saysPhase)
    os << " {" << sep << "!phase = \"" << phaseName(n.phase) << '"';
  Structural::Kind kind = n.op->structural;
  StringRef beforeOperands = kind == Structural::Start ? "op" : "";
  for (auto &[name, a] : n.attrs) {
    const AttrDef *d = attrDef(n, name);
    if (d && isDefault(*d, a))
      continue;
    if (name == beforeOperands || (name == "kernel" && runsKernel(n)))
      continue;
    os << (any ? "" : " {") << sep << (d ? "" : "!");
    any = true;
    printKey(os, name);
    os << " = ";
    printAttr(os, a);
  }
  if (any)
    os << '}';
}

// ---- entry points

void zcc::print(const Module &m, llvm::raw_ostream &os, PrintOptions o) { Printer(m, os, o).module(); }

std::string zcc::toText(const Module &m, PrintOptions o) {
  std::string s;
  llvm::raw_string_ostream os(s);
  print(m, os, std::move(o));
  return os.str();
}

std::string Printer::sidecarBytes() {
  std::string data;
  llvm::DenseMap<std::pair<int64_t, int64_t>, int64_t> known;
  for (auto &g : m.globals) {
    if (!isConstData(*g) || g->type.count() <= kMostInline)
      continue;
    auto [at, isNew] = known.try_emplace({g->init.offset, g->init.bytes}, 0);
    if (isNew) {
      data.resize(llvm::alignTo(data.size(), kDataAlign));
      at->second = data.size();
      data += constBytes(m, *g);
    }
    offsets[g.get()] = at->second;
  }
  return data;
}

llvm::Error zcc::writeText(const Module &m, StringRef path, PrintOptions o, StringRef header) {
  o.folder = llvm::sys::path::parent_path(path).str();
  std::string text;
  llvm::raw_string_ostream os(text);
  Printer printer(m, os, o);
  std::string data = printer.sidecarBytes();
  if (!data.empty()) {
    std::string dataPath = (path + ".data").str();
    printer.sidecar = llvm::sys::path::filename(dataPath).str();
    if (llvm::Error e = writeWhole(dataPath, data))
      return e;
  }
  os << header;
  printer.module();
  return writeWhole(path, os.str());
}
