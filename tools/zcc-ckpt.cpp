// zcc-ckpt: lists, verifies, compares and exports the checkpoints of compiled programs, and makes them of others.
#include "runtime/Elem.h"
#include "runtime/Export.h"
#include "runtime/Fail.h"
#include "runtime/Hash.h"
#include "runtime/Interrupt.h"
#include "runtime/Options.h"
#include "runtime/Overwrites.h"
#include "runtime/checkpoint/Recipe.h"
#include "runtime/checkpoint/TensorReader.h"
#include "tools/Convert.h"
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <set>

using namespace zccrt;

constexpr const char *kUsage = R"(zcc-ckpt: looks at the checkpoints of training programs

usage: zcc-ckpt ls DIR             the checkpoints of a folder, or the tensors of one
       zcc-ckpt verify DIR         whether every byte is the one that was written
       zcc-ckpt diff DIR DIR       which tensors differ, and by how much
       zcc-ckpt export DIR FILE.safetensors|FILE.onnx
                                   the weights, as the program's --export writes them
       zcc-ckpt convert FROM PROGRAM DIR [--weights-map=REGEX=REPLACEMENT]...
                                   a checkpoint in DIR from which PROGRAM goes on (--resume=DIR). FROM: a state_dict that
                                   torch.save wrote, safetensors, or what DeepSpeed's ds_to_universal makes of a ZeRO
                                   checkpoint, with its optimizer's state. PROGRAM is run to say what it trains
       zcc-ckpt convert DIR FILE.safetensors|FILE.onnx
                                   as export

DIR is a checkpoint's folder, or the folder of several (for diff and export the newest counts).
verify and diff end with status 1 where something is damaged, or differs.
)";

using Words = std::vector<std::string>;
/// Elements that are read at a time.
constexpr int64_t kElements = 1 << 18;

static long long number(int64_t n) { return static_cast<long long>(n); }

/// The newest checkpoint that a folder means.
static std::string newestIn(const std::string &dir) {
  std::vector<std::string> folders = checkpointsFrom(dir);
  if (folders.empty())
    fail("there is no checkpoint in '%s'", dir.c_str());
  return folders[0];
}

/// A checkpoint, or all of a folder, the oldest first.
static std::vector<std::string> checkpointsOf(const std::string &dir) {
  std::vector<std::string> folders;
  for (int64_t step : stepsIn(dir))
    folders.push_back(stepFolder(dir, step));
  return folders.empty() ? std::vector<std::string>{newestIn(dir)} : folders;
}

// ---- ls

static int64_t bytesOf(const Checkpoint &c) {
  int64_t bytes = 0;
  for (const SavedFile &f : c.manifest.files)
    bytes += f.bytes;
  return bytes;
}

static void printCheckpoint(const Checkpoint &c) {
  const Manifest &m = c.manifest;
  printf("%s: '%s', step %lld, %lld samples", c.folder.c_str(), m.model.c_str(), number(m.step), number(m.samples));
  if (m.tokens)
    printf(", %lld tokens", number(m.tokens));
  printf(", saved by %d rank%s at stage %d, %.1f MiB\n", m.ranks, m.ranks == 1 ? "" : "s", m.zero, bytesOf(c) / 1048576.0);
}

static int list(const Words &args) {
  std::vector<std::string> folders = checkpointsOf(args[0]);
  for (const std::string &folder : folders)
    printCheckpoint(openCheckpoint(folder));
  if (!stepsIn(args[0]).empty())
    return 0;
  const Checkpoint c = openCheckpoint(folders[0]);
  TensorReader reader(c);
  for (const std::string &name : reader.names()) {
    std::vector<TensorReader::Place> places = reader.placesOf({name});
    const SavedRun &r = *places[0].run;
    printf("  %-40s %-8s %-16s %s\n", name.c_str(), elemName(r.elem), shapeText(r.dims.data(), int(r.dims.size())).c_str(),
           r.rank >= 0 ? "each rank's own" : format("%zu part%s", places.size(), places.size() == 1 ? "" : "s").c_str());
  }
  return 0;
}

// ---- verify

static int verify(const Words &args) {
  int status = 0;
  for (const std::string &folder : checkpointsOf(args[0]))
    try {
      const Checkpoint c = openCheckpoint(folder);
      verifyData(c, /*share=*/0, /*shares=*/1);
      readExports(c);
      printf("%s: sound, %.1f MiB\n", folder.c_str(), bytesOf(c) / 1048576.0);
    } catch (const Failure &e) {
      fprintf(stderr, "zcc-ckpt: error: %s\n", e.what());
      status = 1;
    }
  return status;
}

// ---- diff

namespace {
/// How two tensors differ.
struct Difference {
  int64_t elements = 0; ///< that differ
  double most = 0;      ///< the largest distance
  double largest = 0;   ///< the largest magnitude in the first
};
} // namespace

static double valueAt(const char *data, int elem, int64_t i) {
  double v = 0;
  withType(elem, [&](auto type) {
    using T = decltype(type);
    T x;
    std::memcpy(&x, data + i * sizeof x, sizeof x);
    if constexpr (std::is_same_v<T, Bf16> || std::is_same_v<T, F16>)
      v = static_cast<float>(x);
    else
      v = static_cast<double>(x);
  });
  return v;
}

static Difference compare(TensorReader &a, TensorReader &b, SavedRun run) {
  Difference d;
  const int64_t count = run.run.box.elements(), size = elemBytes(run.elem);
  std::vector<char> left, right;
  for (int64_t at = 0; at < count; at += kElements) {
    run.run.begin = at;
    run.run.count = std::min(kElements, count - at);
    left.resize(run.run.count * size);
    right.resize(run.run.count * size);
    a.read(run, left.data());
    b.read(run, right.data());
    for (int64_t i = 0; i < run.run.count; ++i) {
      const double x = valueAt(left.data(), run.elem, i), y = valueAt(right.data(), run.elem, i);
      d.largest = std::max(d.largest, std::abs(x));
      if (std::memcmp(&left[i * size], &right[i * size], size) == 0)
        continue;
      ++d.elements;
      d.most = std::isnan(x - y) ? NAN : std::max(d.most, std::abs(x - y));
    }
  }
  return d;
}

/// Compares two tensors, of one rank where it is its own; whether they differ.
static bool diffTensor(TensorReader &a, TensorReader &b, const std::string &name, int rank) {
  const SavedRun wanted{name, rank};
  auto inA = a.placesOf(wanted), inB = b.placesOf(wanted);
  const std::string of = rank > 0 ? format(" of rank %d", rank) : "";
  if (inA.empty() || inB.empty()) {
    printf("%s%s: only in the %s\n", name.c_str(), of.c_str(), inA.empty() ? "second" : "first");
    return true;
  }
  SavedRun run = *inA[0].run;
  const SavedRun &other = *inB[0].run;
  run.rank = rank;
  if (run.dims != other.dims || isFloat(run.elem) != isFloat(other.elem)) {
    auto text = [](const SavedRun &r) { return elemName(r.elem) + (" " + shapeText(r.dims.data(), int(r.dims.size()))); };
    printf("%s%s: %s in the first, %s in the second\n", name.c_str(), of.c_str(), text(run).c_str(), text(other).c_str());
    return true;
  }
  if (run.elem != other.elem) // neither is rounded to the other
    run.elem = std::max(elemBytes(run.elem), elemBytes(other.elem)) > elemBytes(ZCCRT_F32) ? ZCCRT_F64 : ZCCRT_F32;
  run.run.box = Box::whole(run.dims);
  const Difference d = compare(a, b, run);
  if (d.elements)
    printf("%s%s: %lld of %lld elements differ, by %.3g at most; the largest is %.3g\n", name.c_str(), of.c_str(),
           number(d.elements), number(run.run.box.elements()), d.most, d.largest);
  return d.elements > 0;
}

static int diff(const Words &args) {
  const Checkpoint first = openCheckpoint(newestIn(args[0])), second = openCheckpoint(newestIn(args[1]));
  TensorReader a(first), b(second);
  std::set<std::string> names;
  for (TensorReader *r : {&a, &b})
    for (const std::string &name : r->names())
      names.insert(name);
  int64_t different = 0;
  for (const std::string &name : names) {
    auto isOwn = [&](TensorReader &r) {
      auto places = r.placesOf({name});
      return !places.empty() && places[0].run->rank >= 0;
    };
    const int ranks = isOwn(a) || isOwn(b) ? std::max(first.manifest.ranks, second.manifest.ranks) : 1;
    bool differs = false;
    for (int rank = 0; rank < ranks; ++rank)
      differs |= diffTensor(a, b, name, rank);
    different += differs;
  }
  printf("%lld of %zu tensors differ\n", number(different), names.size());
  return different > 0;
}

// ---- export

namespace {
/// The saved tensors of a recipe's program, read as they are asked for.
class CheckpointArena : public Arena {
public:
  CheckpointArena(const zccrt_program &p, TensorReader &reader) : reader(reader) {
    for (int i = 0; i < p.nglobals; ++i)
      if (p.globals[i].t.offset >= 0)
        globals.push_back(&p.globals[i]);
  }

  char *base() const override { return nullptr; }
  char *onHost(int64_t) const override { return nullptr; }
  void copyTo(int64_t, const void *, int64_t) override { fail("internal: a checkpoint is not written to"); }

  void copyFrom(void *to, int64_t offset, int64_t bytes) const override {
    auto behind = std::upper_bound(globals.begin(), globals.end(), offset,
                                   [](int64_t at, const zccrt_global *g) { return at < g->t.offset; });
    const zccrt_global &g = **std::prev(behind);
    const int64_t size = elemBytes(g.t.elem);
    SavedRun run{g.saved, -1, g.t.elem, {g.t.dims, g.t.dims + g.t.ndim}};
    run.run = {Box::whole(run.dims), (offset - g.t.offset) / size, bytes / size};
    reader.read(run, static_cast<char *>(to));
  }

private:
  std::vector<const zccrt_global *> globals; ///< by offset
  TensorReader &reader;
};
} // namespace

static ExportForm formOf(const std::string &file) {
  if (endsWith(file, ".safetensors"))
    return ExportForm::Safetensors;
  if (!endsWith(file, ".onnx"))
    fail("export %s: expected a name ending in .safetensors or .onnx", file.c_str());
  return ExportForm::Onnx;
}

/// What is read for an export stays.
static void expectOther(const std::string &out, const Checkpoint &c, const zccrt_program &p) {
  auto expect = [&](const std::string &file, const char *what) {
    if (areSameFile(out, file))
      fail("export %s: would overwrite %s", out.c_str(), what);
  };
  for (int i = 0; i < p.nfiles; ++i)
    expect(p.files[i], "a file that holds the model's weights");
  for (const auto &e : std::filesystem::directory_iterator(c.folder))
    expect(e.path().string(), "a file of the checkpoint");
}

static int exportFile(const Words &args) {
  const ExportForm form = formOf(args[1]);
  const Checkpoint c = openCheckpoint(newestIn(args[0]));
  verifyData(c, /*share=*/0, /*shares=*/1);
  const Recipe recipe(readExports(c));
  if (form == ExportForm::Onnx && !recipe.program.npieces)
    fail("export %s: the program that saved '%s' carries no ONNX graph", args[1].c_str(), c.folder.c_str());
  TensorReader reader(c);
  CheckpointArena arena(recipe.program, reader);
  auto comm = singleRank();
  expectOther(args[1], c, recipe.program);
  ModelFiles files(recipe.program);
  OutFile out(args[1]);
  out.expectRoom(exportBytes(recipe.program, form));
  exportWeights(recipe.program, form, {{&arena, nullptr, nullptr}}, *comm, out, files);
  printf("wrote '%s' from '%s'\n", args[1].c_str(), c.folder.c_str());
  return 0;
}

// ---- convert

static int convert(const Words &args) {
  Words plain, maps;
  const std::string option = "--weights-map=";
  for (const std::string &a : args)
    if (a.rfind(option, 0) == 0)
      maps.push_back(a.substr(option.size()));
    else
      plain.push_back(a);
  if (plain.size() == 2 && maps.empty())
    return exportFile(plain);
  if (plain.size() != 3)
    fail("'convert' takes FROM PROGRAM DIR, or DIR FILE; see --help");
  convertCheckpoint(plain[0], plain[1], plain[2], maps);
  return 0;
}

// ---- main

namespace {
struct Command {
  const char *name;
  size_t args; ///< kAnyArgs: it looks itself
  int (*run)(const Words &args);
};
} // namespace

constexpr size_t kAnyArgs = SIZE_MAX;
static constexpr Command kCommands[] = {
    {"ls", 1, list}, {"verify", 1, verify}, {"diff", 2, diff}, {"export", 2, exportFile}, {"convert", kAnyArgs, convert}};

static int run(Words words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    fputs(kUsage, words.empty() ? stderr : stdout);
    return words.empty();
  }
  const std::string name = words[0];
  words.erase(words.begin());
  std::vector<std::string> names;
  for (const Command &c : kCommands) {
    names.push_back(c.name);
    if (name != c.name)
      continue;
    if (c.args != kAnyArgs && words.size() != c.args)
      fail("'%s' takes %zu argument%s; see --help", c.name, c.args, c.args == 1 ? "" : "s");
    return c.run(words);
  }
  const std::string near = nearest(name, names);
  fail("there is no command '%s'%s", name.c_str(), near.empty() ? "; see --help" : ("; did you mean '" + near + "'?").c_str());
}

int main(int argc, char **argv) {
  where.program = "zcc-ckpt";
  signal(SIGPIPE, SIG_DFL);
  onSignals(OnSignal::EndAtOnce);
  try {
    int status = run(Words(argv + 1, argv + argc));
    return fflush(stdout) == 0 ? status : 1;
  } catch (const std::bad_alloc &) {
    fputs("zcc-ckpt: error: out of memory\n", stderr);
  } catch (const std::exception &e) {
    fprintf(stderr, "zcc-ckpt: error: %s\n", e.what());
  }
  return 1;
}
