// The stack machine of pickle's protocol 2, as far as torch.save writes it. Values are numbered, so that what is reached twice is
// one, and there is no way to make more of them than the file has bytes.
#include "runtime/weights/Pickle.h"
#include "runtime/Fail.h"
#include <algorithm>
#include <cstring>
#include <map>

namespace zccrt {

constexpr size_t kMostValues = 1 << 20; // of a file; a state_dict has about thirty a tensor

class PickleReader {
public:
  PickleReader(Pickle &p, const std::string &bytes) : p(p), bytes(bytes) {}

  void read() {
    while (step()) {
    }
  }

private:
  using Value = PickleValue;

  [[noreturn]] void bad() const { fail("%s: its pickle is damaged, at byte %zu", p.what.c_str(), at); }

  // ---- bytes

  std::string take(size_t n) {
    if (n > bytes.size() - at)
      bad();
    at += n;
    return bytes.substr(at - n, n);
  }
  template <class T> T little() {
    T n;
    const std::string s = take(sizeof n);
    std::memcpy(&n, s.data(), sizeof n);
    return n;
  }
  std::string line() {
    const size_t end = bytes.find('\n', at);
    if (end == std::string::npos)
      bad();
    std::string s = take(end - at);
    ++at;
    return s;
  }

  // ---- the stack

  int make(Value::Kind kind, int64_t number = 0) {
    if (p.values.size() == kMostValues)
      fail("%s: its pickle has more than %zu values", p.what.c_str(), kMostValues);
    p.values.push_back({kind, number, 0, {}, {}});
    return int(p.values.size() - 1);
  }
  void push(int value) {
    if (stack.size() == kMostValues)
      bad();
    stack.push_back(value);
  }
  int pop() {
    if (stack.size() <= (marks.empty() ? 0 : marks.back()))
      bad();
    const int v = stack.back();
    stack.pop_back();
    return v;
  }
  int top() const {
    if (stack.size() <= (marks.empty() ? 0 : marks.back()))
      bad();
    return stack.back();
  }
  /// What lies above the last mark.
  std::vector<int> popToMark() {
    if (marks.empty())
      bad();
    std::vector<int> items(stack.begin() + marks.back(), stack.end());
    stack.resize(marks.back());
    marks.pop_back();
    return items;
  }
  void pushText(std::string s) {
    const int v = make(Value::String);
    p.values[v].text = std::move(s);
    push(v);
  }
  void pushList(std::vector<int> items) {
    const int v = make(Value::List);
    p.values[v].items = std::move(items);
    push(v);
  }
  Value &expect(int v, Value::Kind kind) {
    if (p.values[v].kind != kind)
      bad();
    return p.values[v];
  }
  void addTo(int to, Value::Kind kind, const std::vector<int> &items) {
    if (kind == Value::Dict && items.size() % 2)
      bad();
    added += items.size();
    if (added > kMostValues) // what the memo gives costs no bytes of the file
      bad();
    auto &all = expect(to, kind).items;
    all.insert(all.end(), items.begin(), items.end());
  }

  // ---- numbers, memo

  void pushLong() {
    const size_t n = little<uint8_t>();
    const std::string s = take(n);
    if (n > 8)
      bad();
    int64_t number = n && (s.back() & 0x80) ? -1 : 0;
    std::memcpy(&number, s.data(), n);
    push(make(Value::Int, number));
  }
  void pushReal() { // big-endian
    std::string s = take(8);
    std::reverse(s.begin(), s.end());
    const int v = make(Value::Float);
    std::memcpy(&p.values[v].real, s.data(), 8);
    push(v);
  }
  void put(uint32_t i) {
    const int v = top();
    memo[i] = v;
    if (memo.size() > kMostValues)
      bad();
  }
  void get(uint32_t i) {
    auto v = memo.find(i);
    if (v == memo.end())
      bad();
    push(v->second);
  }

  // ---- what would be calls

  void pushName(const std::string &module, const std::string &name) {
    const int v = make(Value::Name);
    p.values[v].text = module + " " + name;
    push(v);
  }

  [[noreturn]] void refuse(const std::string &name) const {
    std::string dotted = name;
    std::replace(dotted.begin(), dotted.end(), ' ', '.');
    fail("%s: its pickle has a '%s', which zcc does not make; save a state_dict of tensors: torch.save(model.state_dict(), file)",
         p.what.c_str(), dotted.c_str());
  }

  void reduce() {
    const std::vector<int> &args = expect(pop(), Value::List).items;
    const std::string name = expect(pop(), Value::Name).text;
    auto needs = [&](size_t n) { return args.size() >= n ? void() : bad(); };
    if (name == "collections OrderedDict") {
      const int dict = make(Value::Dict);
      if (!args.empty())
        for (int pair : expect(args[0], Value::List).items)
          addTo(dict, Value::Dict, expect(pair, Value::List).items);
      push(dict);
    } else if (name == "torch._utils _rebuild_tensor_v2") {
      needs(4);
      expect(args[0], Value::Storage);
      expect(args[1], Value::Int);
      expect(args[2], Value::List);
      expect(args[3], Value::List);
      const int v = make(Value::Tensor);
      p.values[v].items.assign(args.begin(), args.begin() + 4);
      push(v);
    } else if (name == "torch._utils _rebuild_parameter") {
      needs(1);
      expect(args[0], Value::Tensor);
      push(args[0]);
    } else if (name == "torch Size") {
      needs(1);
      expect(args[0], Value::List);
      push(args[0]);
    } else {
      refuse(name);
    }
  }

  /// ('storage', torch.FloatStorage, '0', 'cpu', 2048)
  void persistent() {
    const std::vector<int> &id = expect(pop(), Value::List).items;
    if (id.size() < 5 || expect(id[0], Value::String).text != "storage")
      bad();
    expect(id[1], Value::Name);
    const std::string key = expect(id[2], Value::String).text;
    const int v = make(Value::Storage);
    p.values[v].text = key;
    p.values[v].items = {id[1]};
    push(v);
  }

  /// State of an object: of a dict, whose attributes do not matter here.
  void build() {
    pop();
    expect(top(), Value::Dict);
  }

  void tuple(size_t n) {
    std::vector<int> items(n);
    for (size_t i = n; i-- > 0;)
      items[i] = pop();
    pushList(std::move(items));
  }

  /// One opcode; false: it was the last.
  bool step() {
    const char op = take(1)[0];
    switch (op) {
    case '\x80': // PROTO
      take(1);
      return true;
    case '\x95': // FRAME
      take(8);
      return true;
    case '.': // STOP
      p.rootNumber = pop();
      return false;
    case '(': // MARK
      if (marks.size() == kMostValues)
        bad();
      marks.push_back(stack.size());
      return true;
    case '0': // POP
      pop();
      return true;
    case 'N':
      return push(make(Value::None)), true;
    case '\x88': // NEWTRUE
    case '\x89': // NEWFALSE
      return push(make(Value::Bool, op == '\x88')), true;
    case 'J': // BININT
      return push(make(Value::Int, little<int32_t>())), true;
    case 'K': // BININT1
      return push(make(Value::Int, little<uint8_t>())), true;
    case 'M': // BININT2
      return push(make(Value::Int, little<uint16_t>())), true;
    case '\x8a': // LONG1
      return pushLong(), true;
    case 'G': // BINFLOAT
      return pushReal(), true;
    case 'X': // BINUNICODE
      return pushText(take(little<uint32_t>())), true;
    case '\x8c': // SHORT_BINUNICODE
      return pushText(take(little<uint8_t>())), true;
    default:
      return stepContainer(op);
    }
  }

  bool stepContainer(char op) {
    switch (op) {
    case '}': // EMPTY_DICT
      return push(make(Value::Dict)), true;
    case ']': // EMPTY_LIST
    case ')': // EMPTY_TUPLE
      return pushList({}), true;
    case '\x85': // TUPLE1
    case '\x86':
    case '\x87':
      return tuple(size_t(op - '\x85') + 1), true;
    case 't': // TUPLE
      return pushList(popToMark()), true;
    case 'a': { // APPEND
      const int item = pop();
      return addTo(top(), Value::List, {item}), true;
    }
    case 'e': { // APPENDS
      const std::vector<int> items = popToMark();
      return addTo(top(), Value::List, items), true;
    }
    case 's': { // SETITEM
      const int value = pop(), key = pop();
      return addTo(top(), Value::Dict, {key, value}), true;
    }
    case 'u': { // SETITEMS
      const std::vector<int> items = popToMark();
      return addTo(top(), Value::Dict, items), true;
    }
    default:
      return stepObject(op);
    }
  }

  bool stepObject(char op) {
    switch (op) {
    case 'q': // BINPUT
      return put(little<uint8_t>()), true;
    case 'r': // LONG_BINPUT
      return put(little<uint32_t>()), true;
    case '\x94': // MEMOIZE
      return put(uint32_t(memo.size())), true;
    case 'h': // BINGET
      return get(little<uint8_t>()), true;
    case 'j': // LONG_BINGET
      return get(little<uint32_t>()), true;
    case 'c': { // GLOBAL
      const std::string module = line();
      return pushName(module, line()), true;
    }
    case '\x93': { // STACK_GLOBAL
      const std::string name = expect(pop(), Value::String).text;
      return pushName(expect(pop(), Value::String).text, name), true;
    }
    case 'R': // REDUCE
      return reduce(), true;
    case 'Q': // BINPERSID
      return persistent(), true;
    case 'b': // BUILD
      return build(), true;
    case '\x81': // NEWOBJ
      pop();
      refuse(expect(pop(), Value::Name).text);
    default:
      fail("%s: its pickle has an opcode 0x%02x at byte %zu, which torch.save does not write", p.what.c_str(),
           static_cast<unsigned char>(op), at - 1);
    }
  }

  Pickle &p;
  const std::string &bytes;
  size_t at = 0;
  std::vector<int> stack;
  std::vector<size_t> marks;
  std::map<uint32_t, int> memo;
  size_t added = 0; ///< items of all containers
};

Pickle::Pickle(const std::string &bytes, const std::string &what) : what(what) { PickleReader(*this, bytes).read(); }

const PickleValue *Pickle::find(const PickleValue &dict, const std::string &key) const {
  if (dict.kind != PickleValue::Dict)
    return nullptr;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2)
    if (const PickleValue &k = values[dict.items[i]]; k.kind == PickleValue::String && k.text == key)
      return &values[dict.items[i + 1]];
  return nullptr;
}

std::vector<int64_t> Pickle::numbers(const PickleValue &list) const {
  std::vector<int64_t> all;
  for (int i : list.items) {
    if (list.kind != PickleValue::List || values[i].kind != PickleValue::Int)
      fail("%s: its pickle has a shape that is no list of numbers", what.c_str());
    all.push_back(values[i].number);
  }
  return all;
}

} // namespace zccrt
