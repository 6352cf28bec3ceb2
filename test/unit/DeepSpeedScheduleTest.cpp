// DeepSpeed's schedules against the rates that its lr_schedules.py (0.19.6) sets before each step of torch.optim.Adam(lr=0.02),
// and the momenta; what the command line makes of them.
#include "RuntimeTest.h"
#include "runtime/Options.h"
#include "runtime/Schedule.h"

namespace deep_speed_schedule_test {

using namespace zccrt;
using namespace runtimetest;

namespace {

using Settings = std::vector<std::pair<const char *, const char *>>;

Schedule make(Schedule::Kind kind, const Settings &settings) {
  Schedule s;
  s.kind = kind;
  s.lr = 0.02;
  s.totalSteps = 100;
  for (auto [name, value] : settings)
    setParam(s, name, value);
  s.resolve();
  return s;
}

void expectRates(const Schedule &s, std::vector<double> want) {
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_DOUBLE_EQ(s.at(int64_t(i)), want[i]) << "step " << i;
}

void expectMomenta(const Schedule &s, std::vector<double> want) {
  ASSERT_TRUE(s.cyclesMomentum());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_DOUBLE_EQ(s.beta1At(int64_t(i)), want[i]) << "step " << i;
}

} // namespace

TEST(DeepSpeedSchedule, WarmupLR) {
  expectRates(make(Schedule::WarmupLR, {{"warmup_num_steps", "5"}}),
              {0.0, 0.0, 0.00861353116146786, 0.013652123889719708, 0.01722706232293572, 0.02, 0.02, 0.02});
  expectRates(make(Schedule::WarmupLR,
                   {{"warmup_num_steps", "4"}, {"warmup_type", "linear"}, {"warmup_min_lr", "0.001"}, {"warmup_max_lr", "0.01"}}),
              {0.001, 0.001, 0.0032500000000000003, 0.0055000000000000005, 0.007750000000000001, 0.010000000000000002,
               0.010000000000000002});
  expectRates(make(Schedule::WarmupLR, {{"warmup_num_steps", "1"}}), {0.0, 0.0, 0.02, 0.02});
}

TEST(DeepSpeedSchedule, WarmupDecayLR) {
  expectRates(make(Schedule::WarmupDecayLR, {{"total_num_steps", "9"}, {"warmup_num_steps", "4"}, {"warmup_min_lr", "1e-4"}}),
              {0.0001, 0.0001, 0.00055, 0.0008132331253245204, 0.001, 0.001, 0.0008200000000000001, 0.00064, 0.00046,
               0.00028000000000000003, 0.0001, 0.0001});
  expectRates(make(Schedule::WarmupDecayLR,
                   {{"total_num_steps", "8"}, {"warmup_num_steps", "3"}, {"warmup_max_lr", "0.5"}, {"warmup_type", "linear"}}),
              {0.0, 0.0, 0.16666666666666666, 0.3333333333333333, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0});
}

TEST(DeepSpeedSchedule, WarmupCosineLR) {
  expectRates(make(Schedule::WarmupCosineLR, {{"total_num_steps", "10"}, {"warmup_num_steps", "4"}}),
              {0.0, 0.0, 0.01, 0.015849625007211564, 0.02, 0.018660388012440604, 0.0150005, 0.010001, 0.0050015000000000025,
               0.0013416119875593975, 2.0000000000000003e-06, 2.0000000000000003e-06});
  expectRates(make(Schedule::WarmupCosineLR, {{"total_num_steps", "8"},
                                              {"warmup_num_steps", "3"},
                                              {"warmup_type", "linear"},
                                              {"warmup_min_ratio", "0.1"},
                                              {"cos_min_ratio", "0.05"}}),
              {0.0, 0.002, 0.008, 0.013999999999999999, 0.018185661446562, 0.013435661446562002, 0.007564338553438,
               0.0028143385534380007, 0.001, 0.001, 0.001});
}

TEST(DeepSpeedSchedule, OneCycle) {
  Schedule s = make(Schedule::OneCycle, {{"cycle_min_lr", "0.001"}, {"cycle_max_lr", "0.01"}, {"cycle_first_step_size", "4"}});
  expectRates(s, {0.001, 0.0032500000000000003, 0.0055000000000000005, 0.007750000000000001, 0.010000000000000002,
                  0.007750000000000001, 0.0055000000000000005, 0.0032500000000000003, 0.001, 0.001, 0.001});
  expectMomenta(
      s, {0.8, 0.875, 0.8500000000000001, 0.8250000000000001, 0.8, 0.8250000000000001, 0.8500000000000001, 0.875, 0.9, 0.9});
  s = make(Schedule::OneCycle, {{"cycle_min_lr", "0.001"},
                                {"cycle_max_lr", "0.01"},
                                {"cycle_first_step_size", "3"},
                                {"cycle_second_step_size", "5"},
                                {"decay_lr_rate", "0.5"},
                                {"decay_step_size", "2"},
                                {"cycle_min_mom", "0.7"},
                                {"cycle_max_mom", "0.95"},
                                {"decay_mom_rate", "0.01"}});
  expectRates(s, {0.001, 0.004, 0.007, 0.010000000000000002, 0.008200000000000002, 0.0064, 0.004600000000000001,
                  0.0028000000000000004, 0.001, 0.0008, 0.0006666666666666666, 0.0005714285714285715, 0.0005,
                  0.00044444444444444447});
  expectMomenta(s, {0.7, 0.8666666666666666, 0.7833333333333333, 0.7, 0.75, 0.7999999999999999, 0.85, 0.8999999999999999, 0.95,
                    0.9547499999999999, 0.9594999999999999, 0.9642499999999998, 0.969, 0.9737499999999999});
}

TEST(DeepSpeedSchedule, OneCycleInStairs) {
  Schedule s = make(Schedule::OneCycle, {{"cycle_min_lr", "0"},
                                         {"cycle_max_lr", "1"},
                                         {"cycle_first_step_size", "6"},
                                         {"cycle_second_step_size", "4"},
                                         {"cycle_first_stair_count", "3"},
                                         {"cycle_second_stair_count", "2"}});
  expectRates(s, {0.0, 0.0, 0.3333333333333333, 0.3333333333333333, 0.6666666666666666, 0.6666666666666666, 1.0, 0.5, 0.5, 0.0,
                  0.0, 0.0});
  expectMomenta(s, {0.8, 0.9, 0.8666666666666667, 0.8666666666666667, 0.8333333333333334, 0.8333333333333334, 0.8,
                    0.8500000000000001, 0.8500000000000001, 0.9, 0.9});
}

TEST(DeepSpeedSchedule, LRRangeTest) {
  Settings settings = {{"lr_range_test_min_lr", "1e-4"}, {"lr_range_test_step_size", "3"}, {"lr_range_test_step_rate", "5"}};
  expectRates(make(Schedule::LRRangeTest, settings), {0.0001, 0.0002666666666666667, 0.0004333333333333333, 0.0006000000000000001,
                                                      0.0007666666666666667, 0.0009333333333333334, 0.0011});
  settings.push_back({"lr_range_test_staircase", "true"});
  expectRates(make(Schedule::LRRangeTest, settings),
              {0.0001, 0.0001, 0.0001, 0.0006000000000000001, 0.0006000000000000001, 0.0006000000000000001, 0.0011});
}

// ---- from the program and the command line

static Schedule scheduleOf(std::vector<std::string> words, zccrt_program p) {
  p.micro_fn = [](char *) {};
  p.base_lr = 0.02;
  words.insert(words.begin(), "program");
  std::vector<char *> argv;
  for (std::string &w : words)
    argv.push_back(w.data());
  argv.push_back(nullptr);
  Options o = parseOptions(p, static_cast<int>(words.size()), argv.data());
  return makeSchedule(p, o, 50);
}

static zccrt_program compiledWith(const char *schedule, const std::vector<zccrt_setting> &params) {
  zccrt_program p = {};
  p.schedule = schedule;
  p.schedule_params = params.data();
  p.nschedule_params = int32_t(params.size());
  p.beta1 = -1;
  return p;
}

TEST(DeepSpeedSchedule, FlagsWin) {
  const std::vector<zccrt_setting> params = {{"warmup_num_steps", "10"}, {"warmup_max_lr", "0.5"}};
  zccrt_program p = compiledWith("WarmupDecayLR", params);
  Schedule s = scheduleOf({}, p);
  EXPECT_EQ(s.param[WarmupNumSteps], 10);
  EXPECT_EQ(s.param[WarmupMaxLr], 0.5);
  EXPECT_EQ(s.param[TotalNumSteps], 50); // the run's length
  s = scheduleOf({"--lr=0.1", "--warmup-steps=4", "--lr-steps=30", "--lr-param=warmup_type=linear"}, p);
  EXPECT_EQ(s.param[WarmupNumSteps], 4);
  EXPECT_EQ(s.param[WarmupMaxLr], 0.1);
  EXPECT_EQ(s.param[TotalNumSteps], 30);
  EXPECT_EQ(s.param[WarmupType], 1);
  s = scheduleOf({"--lr-schedule=WarmupLR"}, p); // another schedule than the compiled one
  EXPECT_EQ(s.param[WarmupNumSteps], 1000);
  EXPECT_EQ(s.param[WarmupMaxLr], 0.02);
  EXPECT_EQ(scheduleOf({"--lr-schedule=constant"}, p).at(0), 0.02);
  p = compiledWith("WarmupLR", params);
  EXPECT_EQ(scheduleOf({"--lr-schedule=WarmupDecayLR"}, p).param[WarmupMaxLr], 0.02); // as compiled
  p = compiledWith("WarmupDecayLR", {});
  EXPECT_EQ(scheduleOf({}, p).param[WarmupMaxLr], 1e-3); // DeepSpeed's default
}

TEST(DeepSpeedSchedule, Refuses) {
  zccrt_program p = compiledWith("WarmupLR", {});
  EXPECT_FAILURE(scheduleOf({"--lr-param=warmup_steps=3"}, p),
                 "no parameter 'warmup_steps'; it has warmup_min_lr, warmup_max_lr");
  EXPECT_FAILURE(scheduleOf({"--lr-param=warmup_num_steps=0"}, p), "expected a whole number above 0");
  EXPECT_FAILURE(scheduleOf({"--lr-param=warmup_min_lr=-1"}, p), "expected a number that is not");
  EXPECT_FAILURE(scheduleOf({"--lr-param=warmup_type=fast"}, p), "expected log or linear");
  EXPECT_FAILURE(scheduleOf({"--lr-param=warmup_type"}, p), "expected NAME=X");
  EXPECT_FAILURE(scheduleOf({"--lr-steps=3"}, p), "this schedule has no length");
  EXPECT_FAILURE(scheduleOf({"--lr-min=3"}, p), "--lr-min needs --lr-schedule=linear or cosine");
  EXPECT_FAILURE(scheduleOf({"--lr-schedule=linear", "--lr-param=warmup_type=log"}, p), "--lr-param needs a DeepSpeed schedule");
  EXPECT_FAILURE(scheduleOf({"--lr-schedule=LRRangeTest", "--lr=1"}, p), "give --lr-param=lr_range_test_min_lr=X");
  EXPECT_FAILURE(scheduleOf({"--lr-schedule=LRRangeTest", "--warmup-steps=1"}, p), "no warm-up");
  EXPECT_FAILURE(scheduleOf({"--lr-schedule=OneCycle"}, p), "OneCycle needs cycle_min_lr");
  EXPECT_FAILURE(scheduleOf({"--lr-schedule=OneCycle", "--lr-param=cycle_min_lr=1e-3", "--lr-param=cycle_max_lr=1e-2"}, p),
                 "compile it with --cycle-momentum");
}

} // namespace deep_speed_schedule_test
