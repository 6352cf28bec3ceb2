// Whole runs of a tiny program, as the compiler would emit it, alone and under mpirun.
//
// The program: pred = x . w, loss = mean over rows of (pred - label)^2, SGD; the gradient is summed over ranks.
#include "RuntimeTest.h"
#include "runtime/Npy.h"
#include "runtime/Session.h"
#include <atomic>
#include <cmath>
#include <cstring>

namespace program_test {

using namespace zccrt;
using namespace runtimetest;

namespace {

enum { X = 0, Label = 64, W = 128, Grad = 192, Loss = 256, Pred = 320, Lr = 384, Step = 448, Seed = 512, Bytes = 576 };
constexpr int kRows = 2, kCols = 3;

template <class T> T *at(char *arena, int64_t offset) { return reinterpret_cast<T *>(arena + offset); }

void forward(char *arena) {
  const float *x = at<float>(arena, X), *w = at<float>(arena, W);
  float loss = 0;
  for (int r = 0; r < kRows; ++r) {
    float pred = 0;
    for (int c = 0; c < kCols; ++c)
      pred += x[r * kCols + c] * w[c];
    at<float>(arena, Pred)[r] = pred;
    float d = pred - at<int64_t>(arena, Label)[r];
    loss += d * d / kRows;
  }
  *at<float>(arena, Loss) = loss;
}

/// Asked to, fails if something was allocated between the first step and the last.
void countAllocations(char *arena) {
  static long before;
  if (!getenv("ZCC_TEST_COUNT"))
    return;
  if (*at<int64_t>(arena, Step) == 1)
    before = allocations;
  if (*at<int64_t>(arena, Step) == 7 && (!before || allocations != before))
    zccrt_fail("", "%ld allocations", allocations - before);
}

/// What the last test asked of step 2: "kernel" fails, "kill" ends rank 1 by a signal, "exit" with
/// status 3.
void misbehave(char *arena) {
  const char *how = getenv("ZCC_TEST_MISBEHAVE");
  if (!how || *at<int64_t>(arena, Step) != 2 || where.rank != where.ranks - 1)
    return;
  if (!strcmp(how, "kernel"))
    zccrt_fail("/layer/node", "it went wrong %d times", 3);
  if (!strcmp(how, "kill"))
    raise(SIGKILL);
  _exit(3);
}

void micro(char *arena) {
  forward(arena);
  misbehave(arena);
  countAllocations(arena);
  float *g = at<float>(arena, Grad);
  for (int c = 0; c < kCols; ++c) {
    g[c] = 0;
    for (int r = 0; r < kRows; ++r)
      g[c] += 2 * (at<float>(arena, Pred)[r] - at<int64_t>(arena, Label)[r]) * at<float>(arena, X)[r * kCols + c] / kRows;
  }
  const zccrt_part part = {Grad, Grad, kCols};
  zccrt_all_reduce_start(arena, 0, &part, 1, ZCCRT_F32, 1);
  zccrt_wait(0);
  for (int c = 0; c < kCols; ++c)
    at<float>(arena, W)[c] -= *at<float>(arena, Lr) * g[c];
}

struct Tiny {
  explicit Tiny(int ranks) {
    inputs[0] = io("x", tensor(X, ZCCRT_F32, {kRows, kCols}));
    inputs[1] = io("label", tensor(Label, ZCCRT_I64, {kRows}));
    inputs[1].lo = 0;
    inputs[1].hi = 10;
    outputs[0] = io("loss", tensor(Loss, ZCCRT_F32, {}));
    outputs[1] = io("pred", tensor(Pred, ZCCRT_F32, {kRows}));
    w = {};
    w.name = w.onnx_name = "w";
    w.t = tensor(W, ZCCRT_F32, {kCols});
    w.shards = 1;
    w.init = ZCCRT_INIT_SPLAT;
    w.a = 0.5;
    w.trained = 1;
    piece = {"w=", 2, 0, 0};
    program = {};
    program.abi = ZCCRT_ABI;
    program.model = "tiny";
    program.compile_line = "zcc tiny.onnx -o tiny";
    program.hash = 1;
    program.isa = "";
    program.ranks = ranks;
    program.threads = 1;
    program.grad_accum = program.batches_per_call = 1;
    program.arena_bytes[0] = Bytes;
    program.globals = &w;
    program.nglobals = 1;
    program.inputs = inputs;
    program.ninputs = 2;
    program.outputs = outputs;
    program.noutputs = 2;
    program.has_loss = 1;
    program.loss = Loss;
    program.step = Step;
    program.late = program.micro = -1;
    program.seed = Seed;
    program.lr = Lr;
    program.grad_norm = program.beta1 = program.loss_scale = program.overflow = program.skipped = program.grad_squares = -1;
    program.base_lr = 0.01;
    program.onnx = &piece;
    program.npieces = 1;
    weight = {"w", 0, w.t, {"", 0, 0, 0}};
    program.weights = &weight;
    program.nweights = 1;
    program.schedule = "constant";
    program.micro_fn = micro;
    program.eval = forward;
    program.slots = 1;
  }
  zccrt_io inputs[2], outputs[2];
  zccrt_global w;
  zccrt_piece piece;
  zccrt_weight weight;
  zccrt_program program;
};

const std::vector<float> kX = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 3, 5, 2, 4, 6, 8, 1, 0, 3, 3, 3, 5, 2, 9};
const std::vector<int64_t> kLabels = {1, 2, 3, 4, 5, 6, 7, 8};

struct Data {
  Data() {
    writeFile(folder / "x.npy", npyHeader(ZCCRT_F32, {8, kCols}) + bytesOf(kX));
    writeFile(folder / "label.npy", npyHeader(ZCCRT_I64, {8}) + bytesOf(kLabels));
  }
  std::string options() const { return " --data=x=" + folder / "x.npy" + " --data=label=" + folder / "label.npy"; }
  Folder folder;
};

/// The losses of `steps` steps over batches of ranks * kRows samples.
std::vector<double> expectedLosses(int ranks, int steps) {
  std::vector<float> w(kCols, 0.5f);
  std::vector<double> losses;
  const int rows = ranks * kRows;
  for (int s = 0; s < steps; ++s) {
    double loss = 0;
    std::vector<double> g(kCols);
    for (int i = 0; i < rows; ++i) {
      int sample = (s * rows + i) % 8;
      double d = -double(kLabels[sample]);
      for (int c = 0; c < kCols; ++c)
        d += kX[sample * kCols + c] * w[c];
      loss += d * d / rows;
      for (int c = 0; c < kCols; ++c)
        g[c] += 2 * d * kX[sample * kCols + c] / rows;
    }
    losses.push_back(loss);
    for (int c = 0; c < kCols; ++c)
      w[c] -= 0.01f * g[c];
  }
  return losses;
}

std::vector<double> numbersOf(const std::string &log, const std::string &key) {
  std::vector<double> v;
  for (size_t p = 0; (p = log.find("\"" + key + "\": ", p)) != std::string::npos; ++p)
    v.push_back(strtod(log.c_str() + p + key.size() + 4, nullptr));
  return v;
}

/// Runs the program in processes of its own: this test's binary, asked for the test Child.
Result runTiny(const std::string &options, int mpirun = 0, const std::string &environment = "", int compiledFor = 0) {
  std::string command = environment + " ZCC_TEST_RANKS=" + std::to_string(compiledFor ? compiledFor : std::max(mpirun, 1)) +
                        " ZCC_TEST_OPTIONS='" + options + "' ";
  if (mpirun)
    command += "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
               "OMPI_MCA_rmaps_base_oversubscribe=1 "
               "timeout 60 mpirun -n " +
               std::to_string(mpirun) + " ";
  return shell(command + alone("Program.DISABLED_Child"));
}

bool haveMpirun() { return shell("mpirun --version").status == 0; }

int countOf(const std::string &text, const std::string &part) {
  int n = 0;
  for (size_t p = 0; (p = text.find(part, p)) != std::string::npos; p += part.size())
    ++n;
  return n;
}

#define EXPECT_CONTAINS(text, part) EXPECT_PRED_FORMAT2(testing::IsSubstring, part, text)

} // namespace

TEST(Program, DISABLED_Child) {
  std::istringstream words(getenv("ZCC_TEST_OPTIONS"));
  std::vector<std::string> arguments = {"tiny"};
  for (std::string w; words >> w;)
    arguments.push_back(w);
  std::vector<char *> argv;
  for (std::string &a : arguments)
    argv.push_back(a.data());
  argv.push_back(nullptr);
  Tiny tiny(atoi(getenv("ZCC_TEST_RANKS")));
  if (getenv("ZCC_TEST_OTHER_HASH") && !strcmp(getenv("OMPI_COMM_WORLD_RANK"), "1"))
    tiny.program.hash = 2;
  int status = runProgram(tiny.program, static_cast<int>(arguments.size()), argv.data());
  fflush(stdout);
  _exit(status);
}

TEST(Program, TrainsAndLogs) {
  Data d;
  Result r = runTiny(d.options() + " --steps=6 --log=" + d.folder / "log");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_CONTAINS(r.out, "tiny: 1 rank of 1 thread, 0.0 MiB each, 6 steps of 2 samples");
  EXPECT_CONTAINS(r.out, "step 5  loss ");
  std::string log = readFile(d.folder / "log");
  std::vector<double> losses = numbersOf(log, "loss"), expected = expectedLosses(1, 6);
  ASSERT_EQ(losses.size(), 6u);
  for (int i = 0; i < 6; ++i)
    EXPECT_NEAR(losses[i], expected[i], 1e-5 * expected[i]);
  EXPECT_EQ(numbersOf(log, "step")[5], 5);
  EXPECT_EQ(numbersOf(log, "device")[0], Bytes);
  EXPECT_EQ(numbersOf(log, "grad_norm").size(), 0u);
}

TEST(Program, StepsAllocateNothing) {
#ifdef ZCC_SANITIZED
  GTEST_SKIP() << "sanitizers have operators new of their own";
#endif
  Data d;
  std::string options = d.options() + " --steps=8 --shuffle --lr-schedule=linear --log=" + d.folder / "log";
  Result r = runTiny(options, 0, "ZCC_TEST_COUNT=1");
  EXPECT_EQ(r.status, 0) << r.err;
  if (!haveMpirun())
    return;
  r = runTiny(options, 2, "ZCC_TEST_COUNT=1");
  EXPECT_EQ(r.status, 0) << r.err;
}

TEST(Program, EpochsScheduleAndQuiet) {
  Data d;
  Result r =
      runTiny(d.options() + " --quiet --epochs=2 --lr=0.1 --lr-schedule=cosine --warmup-steps=2 --log=" + d.folder / "log");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out.find("step"), std::string::npos);
  std::vector<double> lr = numbersOf(readFile(d.folder / "log"), "lr");
  ASSERT_EQ(lr.size(), 8u);
  EXPECT_NEAR(lr[0], 0.05, 1e-9);
  EXPECT_NEAR(lr[1], 0.1, 1e-9);
  EXPECT_NEAR(lr[5], 0.05, 1e-9);
}

TEST(Program, EvaluatesExportsAndWritesOutputs) {
  Data d;
  Result r = runTiny(d.options() + " --eval --outputs=" + d.folder / "o.npz --log=" + d.folder / "log");
  ASSERT_EQ(r.status, 0) << r.err;
  std::vector<std::string> others;
  std::vector<Array> arrays = openNpz(d.folder / "o.npz", {"pred", "loss"}, others);
  ASSERT_EQ(arrays.size(), 2u);
  EXPECT_EQ(arrays[1].dims, std::vector<int64_t>{8});
  float pred[8];
  arrays[1].source->read(arrays[1].offset, sizeof pred, pred);
  EXPECT_EQ(pred[7], 0.5f * (5 + 2 + 9));
  EXPECT_EQ(numbersOf(readFile(d.folder / "log"), "eval_loss").size(), 1u);

  r = runTiny(d.options() + " --steps=0 --export=" + d.folder / "w.onnx");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(readFile(d.folder / "w.onnx"), "w=" + bytesOf(std::vector<float>(3, 0.5f)));

  r = runTiny(d.options() + " --steps=4 --eval-every=2 --eval-data=x=" + d.folder / "x.npy --eval-data=label=" +
              d.folder / "label.npy --export=" + d.folder / "w.safetensors --log=" + d.folder / "log");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(numbersOf(readFile(d.folder / "log"), "eval_loss").size(), 2u);
  expectOpensElsewhere(d.folder / "w.safetensors");
}

TEST(Program, Errors) {
  Data d;
  auto error = [&](const std::string &options) {
    Result r = runTiny(options);
    EXPECT_EQ(r.status, 1) << options;
    EXPECT_EQ(countOf(r.err, "error:"), 1) << r.err;
    return r.err;
  };
  EXPECT_CONTAINS(error(""),
                  "tiny: error: no data for inputs 'x', which is float32 (2, 3) and 'label', which is int64 (2,); give");
  EXPECT_CONTAINS(error(d.options() + " --setps=1"), "did you mean '--steps'?");
  EXPECT_CONTAINS(error(d.options() + " --steps=1 --log=/none/x"), "cannot write the log '/none/x': No such file");
  EXPECT_CONTAINS(error(d.options() + " --steps=1 --export=/none/x.onnx"), "cannot write '/none/x.onnx': No such file");
  EXPECT_CONTAINS(error(d.options() + " --eval --log=/dev/full"), "cannot write the log '/dev/full': No space left");
  writeFile(d.folder / "label.npy", npyHeader(ZCCRT_I64, {8}) + bytesOf(std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 11}));
  std::string text = error(d.options() + " --steps=9 --export=" + d.folder / "w.onnx");
  EXPECT_CONTAINS(text, "step 3: input 'label', sample 7: value 11 is not in [0, 10), which node '/node' needs");
  EXPECT_TRUE(std::filesystem::exists(d.folder / "w.onnx")) << "what the steps before have trained";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(d.folder.path), {}), 3);
  Result r = runTiny("--data=x=none.npy", 0, "", 4);
  EXPECT_EQ(r.status, 1);
  EXPECT_CONTAINS(r.err, "compiled for 4 ranks, started with 1; start it with 'mpirun -n 4', or compile it for 1:\n"
                         "  zcc tiny.onnx -o tiny --ranks=1");
}

TEST(Program, RanksEqualALargerBatch) {
  if (!haveMpirun())
    GTEST_SKIP() << "no mpirun";
  Data d;
  for (int ranks : {2, 4})
    for (const char *path : {"", " --comm=mpi"}) {
      Result r = runTiny(d.options() + path + " --steps=6 --outputs=" + d.folder / "o.npz --log=" + d.folder / "log", ranks);
      ASSERT_EQ(r.status, 0) << r.err;
      std::vector<double> losses = numbersOf(readFile(d.folder / "log"), "loss"), expected = expectedLosses(ranks, 6);
      ASSERT_EQ(losses.size(), 6u);
      for (int i = 0; i < 6; ++i)
        EXPECT_NEAR(losses[i], expected[i], 1e-5 * expected[i]);
      EXPECT_EQ(countOf(r.out, "step 5"), 1);
      std::vector<std::string> others;
      EXPECT_EQ(openNpz(d.folder / "o.npz", {"pred"}, others)[0].dims, std::vector<int64_t>{8});
    }
}

TEST(Program, ErrorsOfRanks) {
  if (!haveMpirun())
    GTEST_SKIP() << "no mpirun";
  Data d;
  auto run = [&](const std::string &options, const std::string &environment = "", int compiledFor = 0) {
    Result r = runTiny(d.options() + options, 3, environment, compiledFor);
    EXPECT_NE(r.status, 0);
    EXPECT_NE(r.status, 124) << "it hangs";
    EXPECT_LE(countOf(r.err, "tiny: error:"), 1) << r.err;
    return r.err;
  };
  EXPECT_CONTAINS(run(" --steps=1", "", 2), "compiled for 2 ranks, started with 3; start it with 'mpirun -n 2', or compile it "
                                            "for 3:\n  zcc tiny.onnx -o tiny --ranks=3");
  EXPECT_CONTAINS(run(" --stps=1"), "tiny: error: unknown option '--stps'");
  EXPECT_CONTAINS(run(" --steps=1 --export=/none/w.onnx"), "tiny: error: rank 0: cannot write '/none/w.onnx'");
  EXPECT_CONTAINS(run(" --steps=1", "ZCC_TEST_OTHER_HASH=1"), "rank 1 runs with another program than rank 0");
  for (const char *path : {"", " --comm=mpi"}) {
    EXPECT_CONTAINS(run(" --steps=5" + std::string(path), "ZCC_TEST_MISBEHAVE=kernel"),
                    "tiny: error: rank 2, step 2: node '/layer/node': it went wrong 3 times");
    run(" --steps=5" + std::string(path), "ZCC_TEST_MISBEHAVE=kill");
    run(" --steps=5" + std::string(path), "ZCC_TEST_MISBEHAVE=exit");
  }
}

} // namespace program_test
