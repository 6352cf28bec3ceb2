// Parses node metadata; whatever does not look as expected counts as absent.
#include "frontend/onnx/SourceLoc.h"
#include "onnx.pb.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace zcc;
using llvm::StringRef;

template <typename T> static StringRef metadata(const T &holder, StringRef key) {
  for (auto &p : holder.metadata_props())
    if (p.key() == key)
      return p.value();
  return {};
}

/// The elements of "['', 'm', 'm.fc']".
static llvm::SmallVector<StringRef, 8> quotedList(StringRef text) {
  llvm::SmallVector<StringRef, 8> r;
  while (true) {
    size_t open = text.find_first_of("'\"");
    if (open == StringRef::npos)
      return r;
    size_t close = text.find(text[open], open + 1);
    if (close == StringRef::npos)
      return r;
    r.push_back(text.slice(open + 1, close));
    text = text.drop_front(close + 1);
  }
}

std::optional<std::string> zcc::scopeOf(const onnx_pb::NodeProto &n) {
  auto scopes = quotedList(metadata(n, "pkg.torch.onnx.name_scopes"));
  if (scopes.size() < 2)
    return std::nullopt;
  return scopes[scopes.size() - 2].str(); // the last one is the FX node
}

// ---- stack traces

namespace {
struct Frame {
  std::string source, code;
};
} // namespace

/// The innermost frame outside PyTorch itself of "File "train.py", line 57, in forward\n    y =
/// f(x)\n  File ...".
static Frame frameOf(StringRef trace) {
  Frame best;
  llvm::SmallVector<StringRef, 32> lines;
  trace.split(lines, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    StringRef l = lines[i].trim(), file, number;
    if (!l.consume_front("File \""))
      continue;
    std::tie(file, l) = l.split('"');
    if (!l.consume_front(", line "))
      continue;
    number = l.take_while(llvm::isDigit);
    if (file.contains("/torch/nn/") || file.contains("/torch/_") || number.empty())
      continue;
    best.source = (file + ":" + number).str();
    best.code = i + 1 < lines.size() ? lines[i + 1].trim().str() : "";
  }
  return best;
}

Loc zcc::locOf(const onnx_pb::NodeProto &n, int64_t index) {
  Frame f = frameOf(metadata(n, "pkg.torch.onnx.stack_trace"));
  std::string name = n.name().empty() ? "#" + std::to_string(index) : n.name();
  return makeLoc(name, n.op_type(), f.source, f.code, scopeOf(n).value_or(""));
}

// ---- FX nodes

/// Splits at top-level commas.
static std::vector<std::string> splitArgs(StringRef text) {
  std::vector<std::string> r;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    char c = i < text.size() ? text[i] : ',';
    depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
    if (c != ',' || (depth != 0 && i < text.size()))
      continue;
    StringRef arg = text.slice(start, i).trim();
    if (!arg.empty())
      r.push_back(arg.str());
    start = i + 1;
  }
  return r;
}

std::optional<FxNode> zcc::fxNodeOf(const onnx_pb::NodeProto &n) {
  StringRef text = metadata(n, "pkg.torch.onnx.fx_node");
  size_t target = text.find("target=");
  size_t args = text.find("(args = (");
  if (target == StringRef::npos || args == StringRef::npos || args < target)
    return std::nullopt;
  FxNode f;
  StringRef name = text.slice(target + 7, args);
  name.consume_front("torch.ops.");
  name.consume_back("]");
  f.target = name.str();
  StringRef rest = text.drop_front(args + 9);
  size_t end = rest.find("), kwargs = ");
  f.args = splitArgs(rest.take_front(std::min(end, rest.size())));
  if (end != StringRef::npos)
    f.keywords = splitArgs(rest.drop_front(end).split('{').second.rsplit("})").first);
  while (true) {
    size_t percent = rest.find('%');
    if (percent == StringRef::npos)
      break;
    rest = rest.drop_front(percent + 1);
    f.names.push_back(rest.take_while([](char c) { return llvm::isAlnum(c) || c == '_'; }).str());
  }
  return f;
}

std::optional<std::string> zcc::fxArgument(const onnx_pb::NodeProto &n, StringRef target, size_t i) {
  auto fx = fxNodeOf(n);
  if (!fx || !StringRef(fx->target).starts_with(target) || i >= fx->args.size())
    return std::nullopt;
  return std::move(fx->args[i]);
}

llvm::StringMap<Placeholder> zcc::placeholdersOf(const onnx_pb::GraphProto &g) {
  llvm::StringMap<Placeholder> r;
  llvm::SmallVector<StringRef, 64> lines;
  metadata(g, "pkg.torch.export.ExportedProgram.graph_signature").split(lines, '\n');
  for (StringRef l : lines) {
    auto [name, rest] = l.split(": ");
    Placeholder p;
    if (rest.consume_front("PARAMETER target="))
      p.kind = Placeholder::Parameter;
    else if (rest.consume_front("BUFFER target="))
      p.kind = Placeholder::Buffer;
    else if (rest.consume_front("CONSTANT_TENSOR target="))
      p.kind = Placeholder::Tensor;
    else
      continue;
    auto targets = quotedList(rest);
    if (targets.empty())
      continue;
    p.target = targets[0].str();
    p.isPersistent = p.kind != Placeholder::Tensor && !rest.contains("persistent=False");
    r[name.trim()] = p;
  }
  return r;
}
