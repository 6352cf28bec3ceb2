// Names and sizes of elements, types as text and back, and broadcasting.
#include "ir/Type.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace zcc;
using llvm::StringRef;

namespace {
struct ElemInfo {
  Elem elem;
  const char *name;
  int bytes;
};
constexpr ElemInfo kElems[] = {
    {Elem::F32, "f32", 4}, {Elem::F64, "f64", 8}, {Elem::F16, "f16", 2},   {Elem::BF16, "bf16", 2}, {Elem::I64, "i64", 8},
    {Elem::I32, "i32", 4}, {Elem::I16, "i16", 2}, {Elem::I8, "i8", 1},     {Elem::U64, "u64", 8},   {Elem::U32, "u32", 4},
    {Elem::U16, "u16", 2}, {Elem::U8, "u8", 1},   {Elem::Bool, "bool", 1},
};
constexpr const char *kSpaceNames[kSpaces] = {"device", "host", "nvme"};
} // namespace

int64_t zcc::elemBytes(Elem e) { return kElems[int(e)].bytes; }
StringRef zcc::elemName(Elem e) { return kElems[int(e)].name; }
StringRef zcc::spaceName(Space s) { return kSpaceNames[int(s)]; }

std::optional<Space> zcc::spaceFromName(StringRef name) {
  for (int i = 0; i < kSpaces; ++i)
    if (name == kSpaceNames[i])
      return Space(i);
  return std::nullopt;
}

std::optional<Elem> zcc::elemFromName(StringRef name) {
  for (const ElemInfo &i : kElems)
    if (name == i.name)
      return i.elem;
  return std::nullopt;
}

bool zcc::isFloat(Elem e) { return e <= Elem::BF16; }
bool zcc::isFloat16(Elem e) { return e == Elem::F16 || e == Elem::BF16; }
bool zcc::isInteger(Elem e) { return e >= Elem::I64 && e <= Elem::U8; }

int64_t zcc::elementCount(llvm::ArrayRef<int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims)
    n *= d;
  return n;
}

Dims zcc::denseStrides(llvm::ArrayRef<int64_t> dims) {
  Dims s(dims.size(), 1);
  for (int i = int(dims.size()) - 2; i >= 0; --i)
    s[i] = s[i + 1] * dims[i + 1];
  return s;
}

bool Type::operator==(const Type &o) const {
  return elem == o.elem && dims == o.dims && shards == o.shards && addends == o.addends && layout == o.layout &&
         space == o.space && isFuture == o.isFuture;
}

std::string Type::str() const {
  std::string s;
  llvm::raw_string_ostream os(s);
  os << *this;
  return os.str();
}

llvm::raw_ostream &zcc::operator<<(llvm::raw_ostream &os, const Type &t) {
  if (t.isFuture)
    os << "future<";
  os << elemName(t.elem) << '[';
  for (size_t i = 0; i < t.dims.size(); ++i)
    os << (i ? "x" : "") << t.dims[i];
  os << ']';
  if (t.isPacked())
    os << '~' << t.layout.str();
  if (t.shards > 1)
    os << '/' << t.shards;
  if (t.addends > 1)
    os << '+' << t.addends;
  if (t.space != Space::Device)
    os << '@' << spaceName(t.space);
  if (t.isFuture)
    os << '>';
  return os;
}

std::optional<Type> zcc::parseType(StringRef &text) {
  Type t;
  StringRef s = text;
  auto fail = [&]() -> std::optional<Type> {
    text = s;
    return std::nullopt;
  };
  t.isFuture = s.consume_front("future<");
  StringRef name = s.take_while([](char c) { return llvm::isAlnum(c); });
  auto elem = elemFromName(name);
  if (!elem)
    return fail();
  t.elem = *elem;
  s = s.drop_front(name.size());
  if (!s.consume_front("["))
    return fail();
  while (!s.consume_front("]")) {
    int64_t d;
    if (!t.dims.empty() && !s.consume_front("x"))
      return fail();
    if (s.empty() || !llvm::isDigit(s[0]) || s.consumeInteger(10, d))
      return fail();
    t.dims.push_back(d);
  }
  if (s.consume_front("~")) {
    auto layout = Layout::parse(s);
    if (!layout || layout->axes() != t.ndim())
      return fail();
    t.layout = *layout;
  }
  if (s.consume_front("/") && (s.consumeInteger(10, t.shards) || t.shards < 2))
    return fail();
  if (s.consume_front("+") && (s.consumeInteger(10, t.addends) || t.addends < 2))
    return fail();
  if (s.consume_front("@")) {
    if (s.consume_front("device"))
      t.space = Space::Device;
    else if (s.consume_front("host"))
      t.space = Space::Host;
    else if (s.consume_front("nvme"))
      t.space = Space::Nvme;
    else
      return fail();
  }
  if (t.isFuture && !s.consume_front(">"))
    return fail();
  if (t.isPacked() && (t.isPartitioned() || t.isAddend()))
    return fail();
  text = s;
  return t;
}

std::optional<Dims> zcc::broadcastDims(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) {
  if (a.size() < b.size())
    std::swap(a, b);
  Dims out(a.begin(), a.end());
  size_t shift = a.size() - b.size();
  for (size_t i = 0; i < b.size(); ++i) {
    int64_t &d = out[shift + i];
    if (d == b[i] || b[i] == 1)
      continue;
    if (d != 1)
      return std::nullopt;
    d = b[i];
  }
  return out;
}
