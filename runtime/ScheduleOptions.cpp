// The schedule of a run: what the program was compiled with, under what its command line says.
#include "runtime/Fail.h"
#include "runtime/Options.h"
#include <algorithm>

namespace zccrt {

/// --lr, --warmup-steps and --lr-steps mean the parameter of a DeepSpeed schedule that is the same.
static void applyFlags(Schedule &s, const Options &o) {
  bool warms = s.kind == Schedule::WarmupLR || s.kind == Schedule::WarmupDecayLR;
  bool hasWarmup = warms || s.kind == Schedule::WarmupCosineLR;
  if (o.lr >= 0 && warms)
    s.param[WarmupMaxLr] = o.lr;
  else if (o.lr >= 0 && !hasWarmup)
    fail("--lr is not used by this schedule; give --lr-param=%s=X",
         s.kind == Schedule::OneCycle ? "cycle_max_lr" : "lr_range_test_min_lr");
  if (o.lrMin >= 0)
    fail("--lr-min needs --lr-schedule=linear or cosine");
  if (o.warmupSteps >= 0 && !hasWarmup)
    fail("--warmup-steps: this schedule has no warm-up");
  if (o.warmupSteps >= 0)
    s.param[WarmupNumSteps] = double(o.warmupSteps);
  if (o.lrSteps >= 0 && !(s.kind == Schedule::WarmupDecayLR || s.kind == Schedule::WarmupCosineLR))
    fail("--lr-steps: this schedule has no length; see --lr-param");
  if (o.lrSteps >= 0)
    s.param[TotalNumSteps] = double(o.lrSteps);
  for (auto &[name, value] : o.scheduleParams)
    setParam(s, name, value);
}

Schedule makeSchedule(const zccrt_program &p, const Options &o, int64_t steps) {
  Schedule s;
  s.kind = o.schedule;
  s.lr = o.lr >= 0 ? o.lr : p.base_lr;
  s.totalSteps = o.lrSteps > 0 ? o.lrSteps : steps;
  if (!s.isDeepSpeed()) {
    if (!o.scheduleParams.empty())
      fail("--lr-param needs a DeepSpeed schedule");
    if (s.kind == Schedule::Constant && o.lrMin >= 0)
      fail("--lr-min needs --lr-schedule=linear or cosine");
    if (s.kind == Schedule::Constant && o.lrSteps >= 0)
      fail("--lr-steps needs --lr-schedule=linear or cosine");
    s.min = std::max(0.0, o.lrMin);
    s.warmupSteps = std::max<int64_t>(0, o.warmupSteps);
    if (s.kind != Schedule::Constant && s.min > s.lr)
      fail("--lr-min=%g is above the learning rate, %g", s.min, s.lr);
    return s;
  }
  Schedule::Kind compiled;
  if (p.schedule && scheduleFromName(p.schedule, compiled) && compiled == s.kind)
    for (int i = 0; i < p.nschedule_params; ++i)
      setParam(s, p.schedule_params[i].name, p.schedule_params[i].value);
  else if (s.kind == Schedule::WarmupDecayLR)
    s.param[WarmupMaxLr] = s.lr; // as compiled: no configuration asks for DeepSpeed's default
  applyFlags(s, o);
  s.resolve();
  if (s.cyclesMomentum() && p.beta1 < 0)
    fail("this program's momentum is fixed: compile it with --cycle-momentum, or give "
         "--lr-param=cycle_momentum=false");
  return s;
}

} // namespace zccrt
