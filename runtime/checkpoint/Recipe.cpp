// Writes and reads the tables, by number and name.
#include "runtime/checkpoint/Recipe.h"
#include "runtime/Elem.h"
#include "runtime/Json.h"
#include "runtime/Weights.h"
#include "runtime/checkpoint/SavedTensors.h"
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>

namespace zccrt {

// ---- writing

namespace {

class RecipeWriter {
public:
  RecipeWriter(const zccrt_program &p, const std::string &weightsDir) : program(p), weightsDir(weightsDir) {}

  std::string write() {
    std::string tables = ",\"onnx\":" + pieces(program.onnx, program.npieces); // in the order of their literal bytes
    tables += ",\"onnx_train\":" + pieces(program.onnx_train, program.npieces_train);
    tables += ",\"weights\":" + weights();
    for (int i = 0; i < program.nglobals; ++i) // also what is saved and not exported
      if (const zccrt_global &g = program.globals[i]; g.saved && !(g.saved_flags & ZCCRT_SAVED_CAST))
        global(static_cast<int>(&wholeOf(program, g) - program.globals));
    std::string s = "{\"model\":" + jsonString(program.model) +
                    format(",\"model_hash\":\"%016llx\"", static_cast<unsigned long long>(modelHash(program))) +
                    ",\"globals\":[" + globals + "]" + tables + "}";
    s.resize((s.size() + 7) / 8 * 8, ' ');
    uint64_t length = s.size();
    return std::string(reinterpret_cast<const char *>(&length), sizeof length) + s + literals;
  }

private:
  static std::string number(const char *name, int64_t n) { return format(",\"%s\":%lld", name, static_cast<long long>(n)); }

  static std::string dims(const zccrt_tensor &t) {
    return format(",\"type\":%d,\"dims\":", t.elem) + jsonNumbers({t.dims, t.dims + t.ndim});
  }

  /// The number of a global among those that are exported.
  int64_t global(int index) {
    if (index < 0)
      return -1;
    for (const zccrt_global *g = &program.globals[index]; isAlias(program, *g); g = &program.globals[index])
      index = g->copy_of;
    auto [known, isNew] = numbers.try_emplace(index, numbers.size());
    if (!isNew)
      return known->second;
    const zccrt_global &g = program.globals[index];
    globals += (numbers.size() > 1 ? ",\n{\"name\":" : "\n{\"name\":") + jsonString(g.name) + dims(g.t) +
               number("export_type", g.export_elem);
    if (g.saved)
      globals += ",\"saved\":" + jsonString(g.saved) + number("flags", g.saved_flags);
    else
      globals += ",\"file\":" + jsonString(absolute(weightsPath(program, g.file, weightsDir))) +
                 number("file_offset", g.file_offset) + number("file_bytes", g.file_bytes) + number("file_type", g.file_elem) +
                 number("transposed", g.transposed) +
                 format(",\"file_hash\":\"%016llx\"", static_cast<unsigned long long>(g.hash));
    globals += "}";
    return known->second;
  }

  static std::string absolute(const std::string &path) {
    char *real = realpath(path.c_str(), nullptr);
    std::string s = real ? real : path;
    free(real);
    return s;
  }

  std::string piece(const zccrt_piece &p) {
    literals.append(p.bytes, p.nbytes);
    std::string s = format("{\"bytes\":%lld", static_cast<long long>(p.nbytes));
    if (p.global >= 0)
      s += number("global", global(p.global)) + number("transposed", p.transposed);
    return s + "}";
  }

  std::string pieces(const zccrt_piece *list, int count) {
    std::string s;
    for (int i = 0; i < count; ++i)
      s += (i ? ",\n" : "\n") + piece(list[i]);
    return "[" + s + "]";
  }

  std::string weights() {
    std::string s;
    for (int i = 0; i < program.nweights; ++i) {
      const zccrt_weight &w = program.weights[i];
      s += (i ? ",\n{\"name\":" : "\n{\"name\":") + jsonString(w.name) + number("another", w.another) + dims(w.t) +
           ",\"data\":" + piece(w.data) + "}";
    }
    return "[" + s + "]";
  }

  const zccrt_program &program;
  const std::string &weightsDir;
  std::map<int, int64_t> numbers;
  std::string globals, literals;
};

} // namespace

std::string recipeOf(const zccrt_program &p, const std::string &weightsDir) { return RecipeWriter(p, weightsDir).write(); }

// ---- reading

class RecipeReader {
public:
  RecipeReader(Recipe &recipe, const std::string &header, const char *literals, const char *end)
      : recipe(recipe), json(header, "it is no recipe of an export"), literals(literals), end(end) {}

  void read() {
    json.members([&](const std::string &key) {
      if (key == "model")
        recipe.program.model = recipe.keep(json.string());
      else if (key == "model_hash")
        recipe.modelHash = std::strtoull(json.string().c_str(), nullptr, 16);
      else if (key == "globals")
        json.items([&] { readGlobal(); });
      else if (key == "onnx")
        json.items([&] { recipe.onnx.push_back(readPiece()); });
      else if (key == "onnx_train")
        json.items([&] { recipe.onnxTrain.push_back(readPiece()); });
      else if (key == "weights")
        json.items([&] { readWeight(); });
      else
        json.invalid();
    });
    json.end();
  }

private:
  int32_t readElem() {
    const auto elem = static_cast<int32_t>(json.number());
    if (elem < 0 || elem > ZCCRT_BOOL)
      json.invalid();
    return elem;
  }

  bool readTensor(const std::string &key, zccrt_tensor &t) {
    if (key == "type") {
      t.elem = readElem();
      return true;
    }
    if (key != "dims")
      return false;
    std::vector<int64_t> dims = json.numbers();
    if (dims.size() > ZCCRT_MAX_DIMS || std::any_of(dims.begin(), dims.end(), [](int64_t d) { return d < 0; }))
      json.invalid();
    t.ndim = static_cast<int32_t>(dims.size());
    std::copy(dims.begin(), dims.end(), t.dims);
    return true;
  }

  void readGlobal() {
    zccrt_global g = {};
    g.shards = 1;
    g.file = g.export_elem = -1;
    json.members([&](const std::string &key) {
      if (readTensor(key, g.t))
        return;
      if (key == "name")
        g.name = recipe.keep(json.string());
      else if (key == "saved")
        g.saved = recipe.keep(json.string());
      else if (key == "flags")
        g.saved_flags = static_cast<int32_t>(json.number());
      else if (key == "file") {
        g.file = static_cast<int32_t>(recipe.files.size());
        recipe.files.push_back(recipe.keep(json.string()));
        g.init = ZCCRT_INIT_FILE;
      } else if (key == "file_offset")
        g.file_offset = json.number();
      else if (key == "file_bytes")
        g.file_bytes = json.number();
      else if (key == "file_type")
        g.file_elem = readElem();
      else if (key == "file_hash")
        g.hash = std::strtoull(json.string().c_str(), nullptr, 16);
      else if (key == "transposed")
        g.transposed = static_cast<int32_t>(json.number());
      else if (key == "export_type")
        g.export_elem = readElem();
      else
        json.invalid();
    });
    g.t.offset = g.saved ? at : -1;
    if (g.saved)
      at += elementCount(g.t) * elemBytes(g.t.elem);
    else
      g.t.elem = g.file_elem;
    if (g.export_elem < 0) // written before there was one
      g.export_elem = g.t.elem;
    recipe.globals.push_back(g);
  }

  zccrt_piece readPiece() {
    zccrt_piece p = {literals, 0, -1, 0};
    json.members([&](const std::string &key) {
      if (key == "bytes")
        p.nbytes = json.number();
      else if (key == "global")
        p.global = static_cast<int32_t>(json.number());
      else if (key == "transposed")
        p.transposed = static_cast<int32_t>(json.number());
      else
        json.invalid();
    });
    if (p.nbytes < 0 || p.nbytes > end - literals || p.global >= int64_t(recipe.globals.size()))
      json.invalid();
    literals += p.nbytes;
    return p;
  }

  void readWeight() {
    zccrt_weight w = {};
    json.members([&](const std::string &key) {
      if (readTensor(key, w.t))
        return;
      if (key == "name")
        w.name = recipe.keep(json.string());
      else if (key == "another")
        w.another = static_cast<int32_t>(json.number());
      else if (key == "data")
        w.data = readPiece();
      else
        json.invalid();
    });
    recipe.weights.push_back(w);
  }

  Recipe &recipe;
  JsonReader json;
  const char *literals, *const end;
  int64_t at = 0;
};

Recipe::Recipe(std::string bytes) : text(std::move(bytes)) {
  uint64_t length = UINT64_MAX;
  if (text.size() >= sizeof length)
    std::memcpy(&length, text.data(), sizeof length);
  if (length > text.size() - std::min(text.size(), sizeof length))
    fail("it is no recipe of an export");
  const std::string header = text.substr(sizeof length, length);
  RecipeReader(*this, header, text.data() + sizeof length + length, text.data() + text.size()).read();
  program.globals = globals.data();
  program.nglobals = static_cast<int32_t>(globals.size());
  program.files = files.data();
  program.nfiles = static_cast<int32_t>(files.size());
  program.onnx = onnx.data();
  program.npieces = static_cast<int32_t>(onnx.size());
  program.onnx_train = onnxTrain.data();
  program.npieces_train = static_cast<int32_t>(onnxTrain.size());
  program.weights = weights.data();
  program.nweights = static_cast<int32_t>(weights.size());
}

} // namespace zccrt
