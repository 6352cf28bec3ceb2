// Reads the compiler's index of the graph (its form is in zccrt.h) and follows from a value what it needs.
#include "runtime/GraphPart.h"
#include "runtime/Fail.h"
#include "runtime/Options.h"
#include <algorithm>
#include <string_view>

namespace zccrt {

namespace {

struct Field {
  int64_t begin = 0, end = 0; // in the whole file
  int64_t kind = ZCCRT_FIELD_ALWAYS;
  std::vector<int64_t> needs;
  std::string_view name; // of an input
};

struct Value {
  int64_t field, info; // info: its value_info's field; -1: none
  std::string_view name, type;
};

class Index {
public:
  explicit Index(const zccrt_program &p) : file(p.onnx[0].bytes), at(p.onnx_index) {
    modelBytes = number();
    readFields();
    std::vector<std::string_view> types(number());
    for (std::string_view &t : types)
      t = bytes();
    values.resize(number());
    for (Value &v : values) {
      v.field = number();
      v.info = number() - 1;
      v.type = types[number()];
      v.name = text(fields[v.field]);
    }
    aliases.resize(number());
    for (auto &[name, value] : aliases) {
      value = number();
      name = text(fields[values[value].field]);
    }
    automatic = number() - 1;
    why = bytes();
  }

  /// The number of a value. Throws a Failure.
  int64_t find(const std::string &name) const {
    if (name == "auto" && automatic < 0)
      fail("--outputs-of=auto: %s", std::string(why).c_str());
    if (name == "auto")
      return automatic;
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i].name == name)
        return i;
    for (auto &[alias, value] : aliases)
      if (alias == name)
        return value;
    std::string near = nearest(name, names());
    std::string hint = !near.empty()    ? "; did you mean '" + near + "'?"
                       : automatic >= 0 ? "; --outputs-of=auto is '" + std::string(values[automatic].name) + "'"
                                        : "";
    fail("--outputs-of=%s: the model has no value, node or module of that name%s", name.c_str(), hint.c_str());
  }

  int64_t modelBytes;
  std::vector<Field> fields;
  std::vector<Value> values;

private:
  int64_t number() {
    uint64_t n = 0;
    for (int shift = 0;; shift += 7) {
      unsigned char byte = *at++;
      n |= uint64_t(byte & 0x7f) << shift;
      if (byte < 0x80)
        return n;
    }
  }
  std::string_view bytes() {
    int64_t n = number();
    at += n;
    return {at - n, size_t(n)};
  }
  std::string_view text(const Field &f) {
    int64_t place = number();
    if (!place)
      return bytes();
    int64_t n = number();
    return {file + f.begin + place - 1, size_t(n)};
  }
  void readFields() {
    int64_t end = modelBytes + number();
    fields.resize(number());
    for (Field &f : fields) {
      f.begin = end;
      end = f.end = f.begin + number();
      f.kind = number();
      f.needs.resize(number());
      for (int64_t &n : f.needs)
        n = number();
      if (f.kind == ZCCRT_FIELD_INPUT)
        f.name = text(f);
    }
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const Value &v : values)
      all.emplace_back(v.name);
    for (auto &[alias, value] : aliases)
      all.emplace_back(alias);
    return all;
  }

  const char *file, *at;
  std::vector<std::pair<std::string_view, int64_t>> aliases;
  int64_t automatic;
  std::string_view why;
};

std::string varint(uint64_t v) {
  std::string s;
  for (; v >= 0x80; v >>= 7)
    s += char(v | 0x80);
  return s + char(v);
}

constexpr int kModelGraph = 7, kGraphOutput = 12, kInfoName = 1, kInfoType = 2; // ONNX's field numbers

std::string fieldHeader(int field, int64_t bytes) { return varint(uint64_t(field) << 3 | 2) + varint(bytes); }
std::string field(int number, std::string_view bytes) { return fieldHeader(number, bytes.size()).append(bytes); }

/// Which fields of the graph a value needs.
std::vector<bool> fieldsFor(const Index &index, const Value &value) {
  std::vector<bool> kept(index.fields.size());
  std::vector<int64_t> open = {value.field};
  while (!open.empty()) {
    int64_t i = open.back();
    open.pop_back();
    if (kept[i])
      continue;
    kept[i] = true;
    open.insert(open.end(), index.fields[i].needs.begin(), index.fields[i].needs.end());
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    const Field &f = index.fields[i];
    if (f.kind == ZCCRT_FIELD_ALWAYS)
      kept[i] = true;
    if (f.kind == ZCCRT_FIELD_ABOUT)
      kept[i] = int64_t(i) != value.info && kept[f.needs[0]];
  }
  return kept;
}

} // namespace

int64_t GraphPart::bytes() const {
  int64_t n = modelBytes + header.size() + output.size();
  for (auto [begin, end] : ranges)
    n += end - begin;
  return n;
}

bool GraphPart::keeps(int64_t at) const {
  auto after = std::upper_bound(ranges.begin(), ranges.end(), at, [](int64_t a, auto &r) { return a < r.second; });
  return after != ranges.end() && after->first <= at;
}

GraphPart graphPart(const zccrt_program &p, const std::string &name) {
  const Index index(p);
  const Value &value = index.values[index.find(name)];
  GraphPart part;
  part.value = value.name;
  part.modelBytes = index.modelBytes;
  part.output = field(kGraphOutput, field(kInfoName, value.name) + field(kInfoType, value.type));
  const std::vector<bool> kept = fieldsFor(index, value);
  int64_t graphBytes = part.output.size();
  for (size_t i = 0; i < kept.size(); ++i) {
    const Field &f = index.fields[i];
    if (!kept[i])
      continue;
    graphBytes += f.end - f.begin;
    if (f.kind == ZCCRT_FIELD_INPUT)
      part.inputs.emplace_back(f.name);
    if (!part.ranges.empty() && part.ranges.back().second == f.begin)
      part.ranges.back().second = f.end;
    else
      part.ranges.push_back({f.begin, f.end});
  }
  part.header = fieldHeader(kModelGraph, graphBytes);
  return part;
}

} // namespace zccrt
