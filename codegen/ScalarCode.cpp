// Prints scalar expressions, literals and reductions as C++.
#include "codegen/ScalarCode.h"
#include "ir/Interpreter.h"
#include "ir/Op.h"
#include "ir/Scalar.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>

using namespace zcc;

namespace {
struct ElemCode {
  const char *compute, *storage, *load, *store, *round; ///< functions; empty: as it is
};
} // namespace

static ElemCode codeOf(Elem e) {
  switch (e) {
  case Elem::F32:
    return {"float", "float", "", "", ""};
  case Elem::F64:
    return {"double", "double", "", "", ""};
  case Elem::F16:
    return {"float", "uint16_t", "z_f16", "z_bits_f16", "z_round_f16"};
  case Elem::BF16:
    return {"float", "uint16_t", "z_bf16", "z_bits_bf16", "z_round_bf16"};
  case Elem::I64:
    return {"int64_t", "int64_t", "", "", ""};
  case Elem::I32:
    return {"int32_t", "int32_t", "", "", ""};
  case Elem::I16:
    return {"int16_t", "int16_t", "", "", ""};
  case Elem::I8:
    return {"int8_t", "int8_t", "", "", ""};
  case Elem::U64:
    return {"uint64_t", "uint64_t", "", "", ""};
  case Elem::U32:
    return {"uint32_t", "uint32_t", "", "", ""};
  case Elem::U16:
    return {"uint16_t", "uint16_t", "", "", ""};
  case Elem::U8:
    return {"uint8_t", "uint8_t", "", "", ""};
  case Elem::Bool:
    return {"bool", "uint8_t", "z_bool", "z_byte", ""}; // compilers vectorise few loops that read or write bool
  }
  llvm_unreachable("an element of no kind");
}

static std::string wrap(const char *function, const std::string &v) {
  return *function ? std::string(function) + "(" + v + ")" : v;
}

std::string zcc::computeType(Elem e) { return codeOf(e).compute; }
std::string zcc::storageType(Elem e) { return codeOf(e).storage; }
std::string zcc::wideType(Elem e) { return e == Elem::Bool ? "int32_t" : e == Elem::F16 || e == Elem::BF16 ? "uint32_t" : ""; }
std::string zcc::loadCode(Elem e, const std::string &p) { return wrap(codeOf(e).load, p); }
std::string zcc::storeCode(Elem e, const std::string &v) { return wrap(codeOf(e).store, v); }
std::string zcc::roundCode(Elem e, const std::string &v) { return wrap(codeOf(e).round, v); }

static std::string number(double v, const std::string &type) {
  if (std::isnan(v))
    return type + "(__builtin_nan(\"\"))";
  if (std::isinf(v))
    return type + (v < 0 ? "(-__builtin_inf())" : "(__builtin_inf())");
  if (v == 0 && std::signbit(v))
    return type + "(-0.0)";
  std::string s;
  llvm::raw_string_ostream os(s);
  os << llvm::format("%.17g", v);
  return type + "(" + s + ")";
}

double zcc::literalValue(const Value &c) {
  const Attr *a = c.def->attrs.find("value");
  double x;
  if (auto *i = std::get_if<std::vector<int64_t>>(a))
    x = double((*i)[0]);
  else if (auto *i = std::get_if<int64_t>(a))
    x = double(*i);
  else
    x = std::holds_alternative<double>(*a) ? std::get<double>(*a) : std::get<std::vector<double>>(*a)[0];
  return isFloat16(c.type.elem) ? roundTo(c.type.elem, x) : x;
}

std::string zcc::literal(const Value &c) {
  const Attr *a = c.def->attrs.find("value");
  std::string type = computeType(c.type.elem);
  if (isFloat(c.type.elem))
    return number(literalValue(c), type);
  if (auto *i = std::get_if<std::vector<int64_t>>(a))
    return type + "(" + std::to_string((*i)[0]) + "LL)";
  if (auto *i = std::get_if<int64_t>(a))
    return type + "(" + std::to_string(*i) + "LL)";
  return number(literalValue(c), type);
}

/// Of integers, which wrap: what overflows is undefined for C++'s signed ones, and narrow ones are promoted to those.
static std::string wrapping(llvm::StringRef type, const std::string &a, const std::string &op, const std::string &b) {
  const std::string wide = type == "int64_t" || type == "uint64_t" ? "uint64_t" : "uint32_t";
  return "(" + type.str() + ")((" + wide + ")(" + a + ") " + op + " (" + wide + ")(" + b + "))";
}

using Names = llvm::ArrayRef<std::pair<llvm::StringRef, std::string>>;

namespace {
/// An expression over named operands.
struct Printer {
  Names names;
  std::string type; ///< of its numbers and calls
  bool isInt;
  bool isKey = false;            ///< what is summed and multiplied stands in one order
  const Printer *keys = nullptr; ///< for `share`
  ShareCall share = nullptr;

  std::string print(const Scalar &s) const;
  std::string call(const Scalar &s) const;
  std::string binary(const Scalar &s) const;
};
} // namespace

std::string Printer::call(const Scalar &s) const {
  std::string out = "z_" + s.text + "(";
  for (auto &arg : s.args)
    out += (arg == s.args[0] ? "" : ", ") + print(*arg);
  return out + ")";
}

std::string Printer::binary(const Scalar &s) const {
  std::string a = print(*s.args[0]), b = print(*s.args[1]);
  if (isInt && s.text == "/")
    return "z_div(" + a + ", " + b + ")";
  if (s.text == "<<" || s.text == ">>")
    return (s.text == "<<" ? "z_shl(" : "z_shr(") + a + ", " + b + ")";
  // Bitwise forms of the logical operators: both sides are pure, and loops of them vectorise.
  if (s.text == "&&" || s.text == "||")
    return "(" + a + (s.text == "&&" ? " & " : " | ") + b + ")";
  if (isKey && (s.text == "+" || s.text == "*") && b < a)
    std::swap(a, b);
  if (isInt && (s.text == "+" || s.text == "-" || s.text == "*"))
    return wrapping(type, a, s.text, b);
  return "(" + a + " " + s.text + " " + b + ")";
}

std::string Printer::print(const Scalar &s) const {
  switch (s.kind) {
  case Scalar::Name:
    for (auto &[n, v] : names)
      if (s.text == n)
        return v;
    llvm_unreachable("a scalar expression names something that is no operand");
  case Scalar::Number:
    return number(s.number, type);
  case Scalar::Unary:
    return isInt && s.text == "-" ? wrapping(type, "0", "-", print(*s.args[0])) : s.text + "(" + print(*s.args[0]) + ")";
  case Scalar::Binary:
    return binary(s);
  case Scalar::Ternary:
    return "(" + print(*s.args[0]) + " ? " + print(*s.args[1]) + " : " + print(*s.args[2]) + ")";
  case Scalar::Call:
    return share ? share(keys->print(s), call(s), type) : call(s);
  }
  llvm_unreachable("a scalar of no kind");
}

/// The element that an expression's numbers have, its operands': a comparison's result is a bool.
static Elem elemOf(const Node &n) {
  for (Value *v : n.operands())
    if (v && v->type.elem != Elem::Bool)
      return v->type.elem;
  return n.operand(0)->type.elem;
}

using NameList = llvm::SmallVector<std::pair<llvm::StringRef, std::string>, 4>;

static NameList namesOf(const Node &n, llvm::ArrayRef<std::string> operands) {
  NameList names;
  for (unsigned i = 0; i < operands.size(); ++i)
    names.push_back({n.op->operands[i].name, operands[i]});
  return names;
}

std::string zcc::scalarKey(const Node &n, llvm::ArrayRef<std::string> operands) {
  NameList names = namesOf(n, operands);
  return Printer{names, computeType(elemOf(n)), isInteger(elemOf(n)), /*isKey=*/true}.print(compiledScalarOf(*n.op, elemOf(n)));
}

bool zcc::takesAngle(const Node &n) {
  if (!n.op->isElementwise() || computeType(n.result()->type.elem) != "float")
    return false;
  llvm::StringRef s = n.op->scalar;
  return s == "sin(x)" || s == "cos(x)" || s == "tan(x)";
}

std::string zcc::scalarCode(const Node &n, llvm::ArrayRef<std::string> operands, bool isNear, llvm::ArrayRef<std::string> keys,
                            ShareCall share) {
  Elem to = n.result()->type.elem, from = n.operand(0)->type.elem;
  std::string type = computeType(to);
  if (n.op->converts()) {
    if (to == Elem::Bool)
      return "(" + operands[0] + " != 0)";
    // What C++ leaves open of numbers outside a type wraps, as in PyTorch.
    if (isFloat(from) && isInteger(to) && (elemBytes(to) < 4 || to == Elem::U32))
      type += to == Elem::U32 ? ")(int64_t" : ")(int32_t";
    return roundCode(to, "(" + type + ")(" + operands[0] + ")");
  }
  if (n.op->resultElem == ResultElem::ToOfEqualSize)
    return "__builtin_bit_cast(" + type + ", " + computeType(from) + "(" + operands[0] + "))";
  if (isNear && takesAngle(n))
    return roundCode(to, "z_" + llvm::StringRef(n.op->scalar).take_until([](char c) { return c == '('; }).str() + "_near(" +
                             operands[0] + ")");
  const NameList names = namesOf(n, operands), known = namesOf(n, keys);
  const Elem in = elemOf(n);
  const Scalar &s = compiledScalarOf(*n.op, in);
  const Printer keyPrinter{known, computeType(in), isInteger(in), /*isKey=*/true};
  Printer printer{names, computeType(in), isInteger(in)};
  if (share && s.kind != Scalar::Call) { // a call of its own has the node's variable
    printer.keys = &keyPrinter;
    printer.share = share;
  }
  std::string v = printer.print(s);
  // Narrow integers are promoted by C++ and wrap when they come back.
  if (isInteger(to))
    return "(" + type + ")" + v;
  return n.op->exact ? v : roundCode(to, v);
}

std::vector<std::string> zcc::callArguments(const Node &n, llvm::ArrayRef<std::string> operands) {
  const Scalar &s = scalarOf(*n.op);
  assert(s.kind == Scalar::Call);
  const NameList names = namesOf(n, operands);
  const Printer printer{names, computeType(elemOf(n)), isInteger(elemOf(n))};
  std::vector<std::string> arguments;
  for (auto &a : s.args)
    arguments.push_back(printer.print(*a));
  return arguments;
}

std::string zcc::identityCode(const Node &n) {
  Elem e = n.result()->type.elem;
  std::string type = computeType(e);
  if (n.op->reduction == Reduction::Sum)
    return type + "(0)";
  if (n.op->reduction == Reduction::Product)
    return type + "(1)";
  bool isMax = n.op->reduction == Reduction::Max;
  if (isFloat(e))
    return type + (isMax ? "(-__builtin_inf())" : "(__builtin_inf())");
  if (e == Elem::Bool)
    return isMax ? "false" : "true";
  bool isSigned = e == Elem::I64 || e == Elem::I32 || e == Elem::I16 || e == Elem::I8;
  int bits = int(elemBytes(e)) * 8 - isSigned;
  std::string most = "(" + type + ")(~0ULL >> " + std::to_string(64 - bits) + ")";
  if (!isMax)
    return most;
  return isSigned ? "(" + type + ")(-" + most + " - 1)" : type + "(0)";
}

std::string zcc::combineCode(const Node &n, const std::string &a, const std::string &b) {
  switch (n.op->reduction) {
  case Reduction::Sum:
    return a + " + " + b;
  case Reduction::Product:
    return a + " * " + b;
  case Reduction::Max:
    return "z_max(" + a + ", " + b + ")";
  case Reduction::Min:
    return "z_min(" + a + ", " + b + ")";
  case Reduction::None:
    break;
  }
  llvm_unreachable("no reduction");
}
