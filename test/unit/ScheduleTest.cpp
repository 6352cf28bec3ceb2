// Learning-rate schedules against PyTorch's recurrences, and the command line.
#include "runtime/Schedule.h"
#include "RuntimeTest.h"
#include "runtime/Options.h"
#include <cmath>

namespace schedule_test {

using namespace zccrt;
using namespace runtimetest;

TEST(Schedule, Constant) {
  Schedule s{Schedule::Constant, 0.1, 0, 0, 10};
  EXPECT_EQ(s.at(0), 0.1);
  EXPECT_EQ(s.at(100), 0.1);
}

// torch.optim.lr_scheduler.LinearLR(start_factor=1/4, end_factor=1, total_iters=3)
TEST(Schedule, WarmUp) {
  Schedule s{Schedule::Constant, 0.1, 0, 4, 10};
  const double expected[] = {0.025, 0.05, 0.075, 0.1, 0.1};
  for (int i = 0; i < 5; ++i)
    EXPECT_DOUBLE_EQ(s.at(i), expected[i]);
}

// LinearLR's recurrence: lr *= 1 + (end - start) / (total * start + (t - 1) * (end - start))
TEST(Schedule, LinearFollowsTheRecurrence) {
  const double lr = 0.5, min = 0.05;
  Schedule s{Schedule::Linear, lr, min, 3, 13};
  double expected = lr;
  for (int t = 0; t <= 10; ++t) {
    if (t > 0)
      expected *= 1 + (min / lr - 1) / (10 * 1.0 + (t - 1) * (min / lr - 1));
    EXPECT_NEAR(s.at(3 + t), expected, 1e-12);
  }
  EXPECT_DOUBLE_EQ(s.at(50), min);
}

// CosineAnnealingLR's recurrence.
TEST(Schedule, CosineFollowsTheRecurrence) {
  const double lr = 0.5, min = 0.05;
  const int length = 10;
  Schedule s{Schedule::Cosine, lr, min, 2, 2 + length};
  double expected = lr;
  for (int t = 0; t <= length; ++t) {
    if (t > 0)
      expected = (1 + std::cos(M_PI * t / length)) / (1 + std::cos(M_PI * (t - 1) / length)) * (expected - min) + min;
    EXPECT_NEAR(s.at(2 + t), expected, 1e-12);
  }
  EXPECT_DOUBLE_EQ(s.at(50), min);
}

namespace {

Options parse(std::vector<std::string> words, zccrt_program p = {}) {
  p.micro_fn = [](char *) {};
  words.insert(words.begin(), "program");
  std::vector<char *> argv;
  for (std::string &w : words)
    argv.push_back(w.data());
  argv.push_back(nullptr);
  return parseOptions(p, static_cast<int>(words.size()), argv.data());
}

} // namespace

TEST(Options, Reads) {
  Options o = parse({"--data=a.npz", "--data", "x=b.npy", "--steps=7", "--lr", "1e-3", "--shuffle"});
  ASSERT_EQ(o.data.npz.size(), 1u);
  ASSERT_EQ(o.data.npy.size(), 1u);
  EXPECT_EQ(o.data.npy[0].input, "x");
  EXPECT_EQ(o.data.npy[0].file, "b.npy");
  EXPECT_EQ(o.steps, 7);
  EXPECT_EQ(o.lr, 1e-3);
  EXPECT_TRUE(o.shuffle);
}

TEST(Options, SeveralInputs) {
  Folder f;
  auto files = [](const std::string &text) {
    std::string s;
    for (const DataFiles::Named &n : parse({"--data=" + text}).data.npy)
      s += n.input + ":" + n.file + " ";
    return s;
  };
  EXPECT_EQ(files("x=a.npy,y=b.npy"), "x:a.npy y:b.npy ");
  EXPECT_EQ(files("x=a.npy,b.npy,y=d/c=1.npy"), "x:a.npy x:b.npy y:d/c=1.npy ");
  EXPECT_EQ(files("x=day/a=1.npy,day/a=2.npy"), "x:day/a=1.npy x:day/a=2.npy "); // no name has a folder in it
  writeFile(f / "a,y=b.npy", "");
  EXPECT_EQ(files("x=" + f / "a,y=b.npy"), "x:" + f / "a,y=b.npy" + " "); // a file that there is
}

TEST(Options, Twice) {
  const Options o = parse({"--export=a.safetensors", "--steps=1", "--export", "b.safetensors"});
  EXPECT_EQ(o.exportFile, "b.safetensors");
  EXPECT_EQ(o.warnings,
            std::vector<std::string>{"option '--export' is given twice: 'b.safetensors' counts, not 'a.safetensors'"});
  EXPECT_TRUE(parse({"--lr=2", "--lr=2", "--shuffle", "--shuffle"}).warnings.empty()); // says the same
  EXPECT_EQ(parse({"--lr-param=a=1", "--lr-param=b=2"}).scheduleParams.size(), 2u);
  EXPECT_FAILURE(parse({"--lr-param=a=1", "--lr-param=a=2"}), "--lr-param=a=2: 'a' is 1 already");
}

TEST(Options, Defaults) {
  zccrt_program p = {};
  p.schedule = "cosine";
  EXPECT_EQ(parse({}, p).schedule, Schedule::Cosine);
  EXPECT_EQ(parse({"--lr-schedule=linear"}, p).schedule, Schedule::Linear);
}

TEST(Options, Refuses) {
  EXPECT_FAILURE(parse({"--step=7"}), "unknown option '--step'; did you mean '--steps'?");
  EXPECT_FAILURE(parse({"--dat=x.npz"}), "did you mean '--data'?");
  EXPECT_FAILURE(parse({"--frobnicate"}), "unknown option '--frobnicate'; see --help");
  EXPECT_FAILURE(parse({"-x"}), "unknown option '-x'");
  EXPECT_FAILURE(parse({"file"}), "unexpected argument 'file'");
  EXPECT_FAILURE(parse({"--steps"}), "needs a value");
  EXPECT_FAILURE(parse({"--shuffle=1"}), "takes no value");
  EXPECT_FAILURE(parse({"--steps=ten"}), "--steps=ten: expected a whole number");
  EXPECT_FAILURE(parse({"--steps=99999999999999999999"}), "expected a whole number");
  EXPECT_FAILURE(parse({"--steps=-1"}), "must be at least 0");
  EXPECT_FAILURE(parse({"--lr=nan"}), "--lr=nan: expected a number");
  EXPECT_FAILURE(parse({"--lr-schedule=step"}), "expected constant|linear|cosine");
  EXPECT_FAILURE(parse({"--steps=1", "--epochs=1"}), "exclude each other");
  EXPECT_FAILURE(parse({"--data=x.npy"}), "name the input: --data=NAME=x.npy");
  EXPECT_FAILURE(parse({"--export=x.pt"}), "expected a name ending in .onnx or .safetensors");
  EXPECT_FAILURE(parse({"--eval-every=2"}), "needs --eval-data");
  EXPECT_FAILURE(parse({"--save-every=2"}), "--save-every needs --save=DIR");
  EXPECT_FAILURE(parse({"--keep=2"}), "--keep needs --save=DIR");
  EXPECT_FAILURE(parse({"--eval", "--save=d"}), "--eval does not train, there is nothing to save");
  EXPECT_FAILURE(parse({"--trace-steps=1:2"}), "--trace-steps needs --trace=FILE.json");
  for (const char *range : {"--trace-steps=2", "--trace-steps=3:3", "--trace-steps=1:2x", "--trace-steps=-1:2"})
    EXPECT_FAILURE(parse({"--trace=t.json", range}), "expected FROM:TO");
  EXPECT_FAILURE(parse({"--resume=auto"}), "--resume=auto looks into the folder of --save=DIR");
  EXPECT_FAILURE(parse({"--nvme-path=d,,e"}), "names nothing between two commas");
}

TEST(Options, HelpListsInputs) {
  zccrt_io x = io("tokens", tensor(0, ZCCRT_I64, {4, 8}));
  zccrt_program p = {};
  p.model = "tiny";
  p.ranks = 2;
  p.inputs = &x;
  p.ninputs = 1;
  std::string text = helpText(p);
  EXPECT_NE(text.find("mpirun -n 2"), std::string::npos);
  EXPECT_NE(text.find("int64 (4, 8)"), std::string::npos);
}

} // namespace schedule_test
