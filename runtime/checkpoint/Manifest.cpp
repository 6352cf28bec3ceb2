// Writes and reads manifests and indexes.
#include "runtime/checkpoint/Manifest.h"
#include "runtime/Elem.h"
#include "runtime/Hash.h"
#include "runtime/Json.h"
#include <cstring>

namespace zccrt {

constexpr const char *kFormat = "zcc checkpoint 1";
constexpr const char *kSum = ",\"hash\":\"";

static std::string hexText(uint64_t n) { return format("\"%016llx\"", static_cast<unsigned long long>(n)); }

static uint64_t hexNumber(JsonReader &json) {
  std::string s = json.string();
  if (s.size() != 16 || s.find_first_not_of("0123456789abcdef") != std::string::npos)
    json.invalid();
  return std::stoull(s, nullptr, 16);
}

static std::string numberMember(const char *name, int64_t n) { return format(",\"%s\":%lld", name, static_cast<long long>(n)); }

std::string toJson(const Manifest &m) {
  std::string s = "{\"format\":" + jsonString(kFormat) + ",\"model\":" + jsonString(m.model) +
                  ",\"model_hash\":" + hexText(m.modelHash) + ",\"graph_hash\":" + hexText(m.graphHash) +
                  numberMember("step", m.step) + numberMember("skipped", m.skipped) + numberMember("samples", m.samples) +
                  numberMember("tokens", m.tokens) + numberMember("data_samples", m.dataSamples) + numberMember("seed", m.seed) +
                  numberMember("shuffle", m.shuffle) + numberMember("ranks", m.ranks) + numberMember("zero", m.zero) +
                  ",\"files\":[";
  for (const SavedFile &f : m.files)
    s += std::string(&f == &m.files[0] ? "\n" : ",\n") + "{\"data\":" + jsonString(f.data) + numberMember("bytes", f.bytes) +
         ",\"index\":" + jsonString(f.index) + ",\"index_hash\":" + hexText(f.indexHash) + "}";
  s += "]";
  if (!m.optimizer.empty())
    s += ",\"optimizer\":" + jsonString(m.optimizer);
  if (!m.exports.empty())
    s += ",\"exports\":" + jsonString(m.exports) + ",\"exports_hash\":" + hexText(m.exportsHash);
  uint64_t sum = hashBytes(s.data(), s.size());
  return s + kSum + hexText(sum).substr(1) + "}\n";
}

static SavedFile readFile(JsonReader &json) {
  SavedFile f;
  json.members([&](const std::string &key) {
    if (key == "data")
      f.data = json.string();
    else if (key == "bytes")
      f.bytes = json.number();
    else if (key == "index")
      f.index = json.string();
    else if (key == "index_hash")
      f.indexHash = hexNumber(json);
    else
      json.invalid();
  });
  return f;
}

Manifest readManifest(const std::string &text) {
  size_t sum = text.rfind(kSum);
  JsonReader json(text, "it is no manifest of a checkpoint");
  if (sum == std::string::npos)
    json.invalid();
  Manifest m;
  uint64_t expected = 0;
  int64_t shuffle = 0, ranks = 1, zero = 0;
  const std::pair<const char *, int64_t *> numbers[] = {{"step", &m.step},
                                                        {"skipped", &m.skipped},
                                                        {"samples", &m.samples},
                                                        {"tokens", &m.tokens},
                                                        {"data_samples", &m.dataSamples},
                                                        {"seed", &m.seed},
                                                        {"shuffle", &shuffle},
                                                        {"ranks", &ranks},
                                                        {"zero", &zero}};
  json.members([&](const std::string &key) {
    for (auto &[name, number] : numbers)
      if (key == name)
        return void(*number = json.number());
    if (key == "format") {
      if (std::string f = json.string(); f != kFormat)
        fail("its format is '%s', this program's is '%s'", f.c_str(), kFormat);
    } else if (key == "model")
      m.model = json.string();
    else if (key == "model_hash")
      m.modelHash = hexNumber(json);
    else if (key == "graph_hash")
      m.graphHash = hexNumber(json);
    else if (key == "optimizer")
      m.optimizer = json.string();
    else if (key == "files")
      json.items([&] { m.files.push_back(readFile(json)); });
    else if (key == "exports")
      m.exports = json.string();
    else if (key == "exports_hash")
      m.exportsHash = hexNumber(json);
    else if (key == "hash")
      expected = hexNumber(json);
    else
      json.invalid();
  });
  json.end();
  if (hashBytes(text.data(), sum) != expected)
    fail("its bytes are not those that were written");
  m.shuffle = shuffle;
  m.ranks = static_cast<int>(ranks);
  m.zero = static_cast<int>(zero);
  return m;
}

// ---- a rank's file

std::string toJson(const std::vector<SavedRun> &runs) {
  std::string s = "{\"runs\":[";
  for (const SavedRun &r : runs) {
    s += std::string(&r == &runs[0] ? "\n" : ",\n") + "{\"tensor\":" + jsonString(r.tensor);
    if (r.rank >= 0)
      s += numberMember("rank", r.rank);
    s += format(",\"type\":\"%s\",\"dims\":", kElems[r.elem].safetensors) + jsonNumbers(r.dims);
    if (r.run.box != Box::whole(r.dims))
      s += ",\"start\":" + jsonNumbers(r.run.box.start) + ",\"shape\":" + jsonNumbers(r.run.box.shape);
    s += numberMember("begin", r.run.begin) + numberMember("count", r.run.count) + numberMember("offset", r.offset) +
         ",\"hash\":" + hexText(r.hash) + "}";
  }
  return s + "]}\n";
}

static int elemNumber(JsonReader &json) {
  std::string s = json.string();
  for (int i = 0; i < int(std::size(kElems)); ++i)
    if (s == kElems[i].safetensors)
      return i;
  json.invalid();
}

static SavedRun readRun(JsonReader &json) {
  SavedRun r;
  json.members([&](const std::string &key) {
    if (key == "tensor")
      r.tensor = json.string();
    else if (key == "rank")
      r.rank = static_cast<int>(json.number());
    else if (key == "type")
      r.elem = elemNumber(json);
    else if (key == "dims")
      r.dims = json.numbers();
    else if (key == "start")
      r.run.box.start = json.numbers();
    else if (key == "shape")
      r.run.box.shape = json.numbers();
    else if (key == "begin")
      r.run.begin = json.number();
    else if (key == "count")
      r.run.count = json.number();
    else if (key == "offset")
      r.offset = json.number();
    else if (key == "hash")
      r.hash = hexNumber(json);
    else
      json.invalid();
  });
  if (r.run.box.start.empty())
    r.run.box = Box::whole(r.dims);
  return r;
}

/// Of an index whose checksum is right this is not needed; without it a wrong number would read elsewhere.
static void checkRun(JsonReader &json, const SavedRun &r) {
  const Box &b = r.run.box;
  bool isRight = b.start.size() == r.dims.size() && b.shape.size() == r.dims.size() && r.offset >= 0 && r.run.begin >= 0;
  int64_t bytes = elemBytes(r.elem);
  for (size_t i = 0; isRight && i < r.dims.size(); ++i)
    isRight = b.start[i] >= 0 && b.shape[i] >= 0 && b.shape[i] <= r.dims[i] && b.start[i] <= r.dims[i] - b.shape[i] &&
              !__builtin_mul_overflow(bytes, r.dims[i], &bytes);
  if (!isRight || r.run.count < 0 || r.run.count > b.elements() || r.run.begin > b.elements() - r.run.count)
    json.invalid();
}

std::vector<SavedRun> readIndex(const std::string &text) {
  JsonReader json(text, "it is no index of a checkpoint");
  std::vector<SavedRun> runs;
  json.members([&](const std::string &key) {
    if (key != "runs")
      json.invalid();
    json.items([&] {
      runs.push_back(readRun(json));
      checkRun(json, runs.back());
    });
  });
  json.end();
  return runs;
}

} // namespace zccrt
