// Prints the tables as C++ initializers.
#include "codegen/EmitTables.h"
#include "passes/memory/Liveness.h"
#include "passes/memory/SavedStates.h"
#include "passes/train/MetricResults.h"
#include "runtime/Hash.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include <cmath>

using namespace zcc;
using llvm::formatv;
using llvm::StringRef;

// ---- text of single things

std::string zcc::cString(StringRef text) {
  std::string s = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\')
      (s += '\\') += c;
    else if (c == '\n')
      s += "\\n";
    else if (c < 32 || c == 127 || c == '?') // '?': no trigraphs
      s += formatv("\\{0}{1}{2}", c >> 6, c >> 3 & 7, c & 7);
    else
      s += c;
  }
  return s + '"';
}

std::string zcc::inComment(StringRef text) {
  std::string s = text.str();
  for (char &c : s)
    if (static_cast<unsigned char>(c) < 32 || c == 127 || c == '\\')
      c = ' ';
  return s;
}

static std::string numberText(double v) {
  if (v == INFINITY)
    return "__builtin_inf()";
  if (v == -INFINITY)
    return "-__builtin_inf()";
  if (v != v)
    return "__builtin_nan(\"\")";
  char b[40];
  snprintf(b, sizeof b, "%.17g", v);
  return b;
}

template <typename T> static std::string listText(llvm::ArrayRef<T> v) {
  std::string s;
  for (const T &x : v) {
    if (!s.empty())
      s += ", ";
    if constexpr (std::is_same_v<T, double>)
      s += numberText(x);
    else
      s += std::to_string(x);
  }
  return s;
}

/// The enumerator of zccrt_elem.
static std::string elemText(int elem) { return "ZCCRT_" + elemName(Elem(elem)).upper(); }

std::string zcc::tensorText(const zccrt_tensor &t) {
  if (t.offset < 0)
    return "{-1}";
  return formatv("{{{0}, {1}, {2}, {{{3}}, {{{4}}}", t.offset, elemText(t.elem), t.ndim, listText(llvm::ArrayRef(t.dims, t.ndim)),
                 listText(llvm::ArrayRef(t.strides, t.ndim)));
}

// ---- library calls

std::string CallTable::intsText(llvm::ArrayRef<int64_t> v) {
  std::string text = listText(v);
  auto [i, isNew] = knownInts.try_emplace(text, ints);
  if (isNew) {
    intPool += "  " + text + ",\n";
    ints += v.size();
  }
  return "ints + " + std::to_string(i->second);
}

unsigned CallTable::add(const KernelCall &c, StringRef target) {
  std::string list;
  for (const zccrt_attr &a : c.attrs) {
    std::string floatText = "0", intText = "0";
    if (a.ints && a.n)
      intText = intsText(llvm::ArrayRef(a.ints, a.n));
    if (a.floats && a.n) {
      floatText = "floats + " + std::to_string(floats);
      floatPool += "  " + listText(llvm::ArrayRef(a.floats, a.n)) + ",\n";
      floats += a.n;
    }
    list += formatv("  {{{0}, {1}, {2}, {3}, {4}},\n", cString(a.name), a.n, intText, floatText, a.str ? cString(a.str) : "0");
  }
  auto [known, isNew] = knownAttrs.try_emplace(list, attrs);
  if (isNew) {
    attrPool += list;
    attrs += c.attrs.size();
  }
  unsigned kernel = kernels.insert({{target, c.kernel->name}, unsigned(kernels.size())}).first->second;
  unsigned n = calls.size();
  calls.push_back(formatv("  {{{0}, {1}, tensors + {2}, {3}, {4}, attrs + {5}, {6}, {7}, {8}, {9}, "
                          "cache + {10}},\n",
                          cString(c.call.name), cString(c.call.node), tensors, c.call.nin, c.call.nout, known->second,
                          c.call.nattrs, c.call.scratch, c.call.scratch_bytes, c.call.threads, n));
  kernelOf.push_back(kernel);
  firstTensors.push_back(tensors);
  isMoving |= !c.moving.empty();
  for (const zccrt_tensor &t : c.tensors)
    tensorPool += "  " + tensorText(t) + ",\n";
  tensors += c.tensors.size();
  return n;
}

void CallTable::print(llvm::raw_ostream &os) const {
  os << "// ---- library calls: offset, element, axes, dims, strides of operands, then results\n\n";
  auto table = [&](StringRef type, StringRef name, StringRef body) {
    os << "static const " << type << ' ' << name << "[] = {\n" << (body.empty() ? "  {}\n" : body) << "};\n";
  };
  table("int64_t", "ints", intPool);
  table("double", "floats", floatPool);
  table("zccrt_attr", "attrs", attrPool);
  if (isMoving) // those of slices and rows are moved on in each iteration
    os << "static zccrt_tensor tensors[] = {\n" << tensorPool << "};\n";
  else
    table("zccrt_tensor", "tensors", tensorPool);
  os << "static void *cache[" << calls.size() << "];\n";
  table("zccrt_call", "calls", llvm::join(calls, ""));
  os << "static zccrt_kernel kernels[" << kernels.size() << "];\n";
  for (auto &[name, i] : kernels)
    os << "static zccrt_kernel &" << name.first << '_' << name.second << " = kernels[" << i << "];\n";
  os << '\n';
}

void CallTable::printPrepare(llvm::raw_ostream &os) const {
  os << "static void prepare() {\n";
  if (!empty()) {
    os << "  const struct {\n    const zccrt_kernel_def *of;\n    int count;\n    const char *name;\n  } names[] = {";
    for (auto &[name, i] : kernels)
      os << formatv("{{zccrt_{0}_kernels, zccrt_{0}_kernel_count, {1}}, ", name.first, cString(name.second));
    os << "};\n  static const unsigned char kernelOf[] = {" << listText(llvm::ArrayRef(kernelOf))
       << "};\n"
          "  for (unsigned i = 0; i < sizeof names / sizeof *names; ++i)\n"
          "    for (int k = 0; k < names[i].count; ++k)\n"
          "      if (!strcmp(names[i].of[k].name, names[i].name))\n"
          "        kernels[i] = names[i].of[k].run;\n"
          "  for (unsigned i = 0; i < sizeof kernelOf; ++i)\n"
          "    kernels[kernelOf[i]](nullptr, calls + i);\n";
  }
  os << "}\n\n";
}

// ---- globals

namespace {
/// Where the first bytes of a global are.
struct Source {
  int file = -1;
  int64_t offset = 0, bytes = 0;
  uint64_t hash = 0;
};
} // namespace

/// Where a file of the model is, and the name under which the program finds it: relative if it lies below the program's
/// folder or will be copied there.
static WeightsFile weightsFile(const Module &m, const ProgramInfo &info, StringRef file) {
  llvm::SmallString<256> real, folder;
  const std::string here = m.pathOf(file);
  if (info.isBundle)
    return {(llvm::sys::path::is_relative(file) ? file : llvm::sys::path::filename(file)).str(), here};
  if (llvm::sys::fs::real_path(here, real))
    return {here, here}; // not there: the error comes with the hash
  if (llvm::sys::fs::real_path(info.outputFolder.empty() ? "." : info.outputFolder, folder))
    return {real.str().str(), here};
  StringRef r = real;
  if (r.consume_front(folder) && r.consume_front("/"))
    return {r.str(), here};
  return {real.str().str(), here};
}

static llvm::Expected<Source> sourceOf(const Module &m, const ProgramInfo &info, const GlobalValue &g, EmittedProgram &out) {
  std::string &weights = out.weights;
  Source s;
  s.bytes = g.init.bytes;
  if (g.init.file.empty()) {
    weights.resize(llvm::alignTo(weights.size(), kDataAlign));
    s.offset = weights.size();
    StringRef data = StringRef(m.constData).substr(g.init.offset, g.init.bytes);
    if (int64_t(data.size()) != g.init.bytes)
      return errorAt(g.loc, "'%" + g.name + "' lies outside the constant data");
    weights += data;
    s.hash = zccrt::hashBytes(data.data(), data.size());
    return s;
  }
  WeightsFile file = weightsFile(m, info, g.init.file);
  auto known = llvm::find_if(out.files, [&](auto &f) { return f.name == file.name; });
  s.file = int(known - out.files.begin());
  if (known == out.files.end())
    out.files.push_back(file);
  s.offset = g.init.offset;
  auto data = llvm::MemoryBuffer::getFileSlice(file.path, g.init.bytes, g.init.offset);
  if (!data || int64_t((*data)->getBufferSize()) != g.init.bytes)
    return error("cannot read the weights of '" + g.name + "' in '" + file.path +
                 "': " + (data ? "the file is too short" : data.getError().message()));
  s.hash = zccrt::hashBytes((*data)->getBufferStart(), (*data)->getBufferSize());
  return s;
}

static const char *initText(Init::Kind k) {
  switch (k) {
  case Init::Zero:
    return "ZCCRT_INIT_ZERO";
  case Init::Splat:
    return "ZCCRT_INIT_SPLAT";
  case Init::File:
    return "ZCCRT_INIT_FILE";
  case Init::Uniform:
    return "ZCCRT_INIT_UNIFORM";
  case Init::Normal:
    return "ZCCRT_INIT_NORMAL";
  case Init::Copy:
    return "ZCCRT_INIT_COPY";
  case Init::Box:
    return "ZCCRT_INIT_BOX";
  }
  llvm_unreachable("no such way to start");
}

using GlobalNumbers = llvm::DenseMap<const GlobalValue *, int>;

static GlobalNumbers numberGlobals(const Module &m) {
  GlobalNumbers number;
  for (size_t i = 0; i < m.globals.size(); ++i)
    number[m.globals[i].get()] = int(i);
  return number;
}

static int exportElem(const GlobalValue &g) {
  return int(g.attrs.has("exported_as") ? *elemFromName(g.attrs.s("exported_as")) : g.type.elem);
}

llvm::Error zcc::printGlobals(const Module &m, const ProgramInfo &info, llvm::raw_ostream &os, EmittedProgram &out) {
  GlobalNumbers number = numberGlobals(m);
  std::string rows;
  llvm::raw_string_ostream table(rows);
  for (auto &g : m.globals) {
    if (g->type.ndim() > ZCCRT_MAX_DIMS)
      return errorAt(g->loc, "'%" + g->name + "' has more than " + llvm::Twine(int(ZCCRT_MAX_DIMS)) + " axes");
    Source s;
    if (g->init.kind == Init::File) {
      auto source = sourceOf(m, info, *g, out);
      if (!source)
        return source.takeError();
      s = *source;
    }
    SavedAs saved = savedAs(m, *g);
    bool isOfGlobal = g->init.kind == Init::Copy || g->isBox();
    int copyOf = isOfGlobal ? number.lookup(m.global(g->init.from)) : -1;
    table << formatv(
        "  {{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}, "
        "{15}, {16}, {17}, {18:x}u, {19}, {20}, {{{21}}},\n",
        cString(g->name), cString(g->exported ? g->onnxName : ""), tensorText(denseTensor(g->type, g->attrs.i("offset"))),
        g->type.shards, int(g->type.space), initText(g->init.kind), numberText(g->init.a), numberText(g->init.b), s.file,
        s.offset, s.bytes, int(g->init.encoding == "transposed"), elemText(int(g->init.elem.value_or(g->type.elem))),
        elemText(exportElem(*g)), copyOf, g->init.from.empty() || copyOf >= 0 ? "0" : cString(g->init.from), int(g->role),
        int(g->trained), s.hash, saved ? cString(saved.name) : "0", saved.flags, listText(llvm::ArrayRef(g->init.start)));
  }
  os << "// ---- globals: parameters, state, constants\n\nstatic const char *const files[] = {";
  for (const WeightsFile &f : out.files)
    os << cString(f.name) << ", ";
  os << "0};\nenum { nfiles = " << out.files.size() << ", nglobals = " << m.globals.size() << " };\n"
     << "static const zccrt_global globals[] = {\n"
     << (m.globals.empty() ? "  {}\n" : rows) << "};\n\n";
  return llvm::Error::success();
}

// ---- inputs and outputs

/// With the range of integers that the module's attributes allow an input, and how many of them may count.
static std::string ioText(const Module &m, StringRef name, const zccrt_tensor &t, bool byRows = false) {
  std::vector<int64_t> range = m.attrs.ints(("range." + name).str());
  std::string lo = "0", hi = "0", ignore = "INT64_MIN";
  if (range.size() == 3) {
    lo = std::to_string(range[0]);
    hi = std::to_string(range[1] + 1);
    if (range[2] != range[0])
      ignore = std::to_string(range[2]);
  }
  std::vector<int64_t> labelled = m.attrs.ints(("labelled." + name).str());
  if (!labelled.empty())
    ignore = std::to_string(labelled[0]);
  const std::string called = m.attrs.s(("input." + name).str(), name); // where a state has the model's name
  return formatv("  {{{0}, {1}, {2}, {3}, {4}, {5}, ZCCRT_TOKENS_AUTO, {6}, {7}},\n", cString(called), tensorText(t), lo, hi,
                 ignore, cString(m.attrs.s(("range_node." + name).str())), int(byRows), labelled.empty() ? 0 : labelled[1]);
}

llvm::Error zcc::printInputsAndOutputs(const Module &m, llvm::raw_ostream &os) {
  std::string inputs, outputs;
  llvm::StringMap<bool> seen;
  unsigned ninputs = 0, noutputs = 0, tokens = 0;
  for (auto &f : m.functions) {
    if (!f->isEntry())
      continue;
    for (auto &a : f->args) {
      if (!seen.try_emplace(a->name, true).second)
        continue;
      if (a->type.ndim() > ZCCRT_MAX_DIMS)
        return error("input '" + a->name + "' has more than " + llvm::Twine(int(ZCCRT_MAX_DIMS)) + " axes");
      if (a->name == m.attrs.s("tokens"))
        tokens = ninputs;
      llvm::ArrayRef<int64_t> dims = a->type.dims;
      bool isStacked = f->name == "micro" && batchesPerCall(m) > 1; // the table has one micro-batch
      inputs += ioText(m, a->name, denseTensor(a->type.withDims(dims.drop_front(isStacked)), plannedOffset(*f, a.get())));
      ++ninputs;
    }
  }
  if (const Function *eval = m.function("eval"))
    for (unsigned i = 0; i < eval->results.size(); ++i) {
      Value *v = eval->results[i];
      std::string name = i < eval->resultNames.size() ? eval->resultNames[i] : v->name;
      if (llvm::is_contained(m.attrs.ints("unnamed_results"), int64_t(i)) || isMetricResult(m, name)) // the runtime's own
        name.clear();
      if (v->type.ndim() > ZCCRT_MAX_DIMS)
        return error("output '" + name + "' has more than " + llvm::Twine(int(ZCCRT_MAX_DIMS)) + " axes");
      auto s = storageOf(v);
      if (!s || s->strides != denseStrides(s->dims))
        return error("output '" + name + "' is a strided view");
      outputs += ioText(m, name, denseTensor(v->type, plannedOffset(*eval, v)),
                        llvm::is_contained(m.attrs.ints("rows_results"), int64_t(i)));
      ++noutputs;
    }
  os << "// ---- inputs and outputs: tensor, allowed range, allowed besides, the node that asks "
        "for it\n\n"
     << "enum { ninputs = " << ninputs << ", noutputs = " << noutputs << ", tokensInput = " << tokens << " };\n"
     << "static const zccrt_io inputs[] = {\n"
     << (ninputs ? inputs : "  {}\n") << "};\n"
     << "static const zccrt_io outputs[] = {\n"
     << (noutputs ? outputs : "  {}\n") << "};\n\n";
  return llvm::Error::success();
}

void zcc::printMetrics(const Module &m, llvm::raw_ostream &os) {
  const Function *micro = m.function("micro"), *eval = m.function("eval");
  auto offsetOf = [](const Function *f, Value *v) { return f && v ? plannedOffset(*f, v) : -1; };
  auto ofMicro = micro ? metricsOf(m, *micro) : std::vector<MetricResults>();
  auto ofEval = eval ? metricsOf(m, *eval) : std::vector<MetricResults>();
  size_t count = std::max(ofMicro.size(), ofEval.size());
  ofMicro.resize(count);
  ofEval.resize(count);
  os << "enum { nmetrics = " << count << " };\n"
     << (count ? "// ---- metrics: name, whether its exponential is shown, results\n" : "")
     << "static const zccrt_metric metrics[] = {\n";
  for (auto [a, b] : llvm::zip(ofMicro, ofEval))
    os << formatv("  {{{0}, {1}, {2}, {3}, {4}, {5}},\n", cString(b.name.empty() ? a.name : b.name),
                  int(a.isExponential || b.isExponential), offsetOf(micro, a.sum), offsetOf(micro, a.weight),
                  offsetOf(eval, b.sum), offsetOf(eval, b.weight));
  os << (count ? "};\n\n" : "  {}};\n\n");
}

/// An initializer of zccrt_piece.
static std::string pieceText(const ExportPart &p, const GlobalNumbers &number, std::string &literals) {
  std::string text = formatv("{{zcc_literals + {0}, {1}, {2}, {3}}", literals.size(), p.bytes.size(),
                             p.global ? number.lookup(p.global) : -1, int(p.transposed));
  literals += p.bytes;
  return text;
}

void zcc::printPieces(StringRef table, llvm::ArrayRef<ExportPart> pieces, const Module &m, llvm::raw_ostream &os,
                      std::string &literals) {
  GlobalNumbers number = numberGlobals(m);
  os << "static const zccrt_piece " << table << "[] = {\n";
  for (const ExportPart &p : pieces)
    os << "  " << pieceText(p, number, literals) << ",\n";
  os << "  {}};\n";
}

void zcc::printWeights(llvm::ArrayRef<ExportWeight> weights, const Module &m, llvm::raw_ostream &os, std::string &literals) {
  GlobalNumbers number = numberGlobals(m);
  os << "static const zccrt_weight weights[] = {\n";
  for (const ExportWeight &w : weights)
    os << "  {" << cString(w.name) << ", " << int(w.isAnother) << ", " << tensorText(denseTensor(w.type, 0)) << ", "
       << pieceText(w.data, number, literals) << "},\n";
  os << "  {}};\n";
}
