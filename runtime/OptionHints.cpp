// The names that other trainers use, and the search through them and both tools' options.
#include "runtime/OptionHints.h"
#include "runtime/Options.h"
#include <algorithm>
#include <cstring>

namespace zccrt {

namespace {
/// A name of PyTorch scripts, Transformers, Lightning or DeepSpeed, and what says the same to zcc and to its programs; NULL:
/// nothing does.
struct Foreign {
  const char *name, *compiler, *program;
};
} // namespace

constexpr const char *kBatch = "--dim=NAME=N', which fixes the model's batch dimension, or '--config";

constexpr Foreign kForeign[] = {
    {"learning-rate", "--lr", "--lr"},
    {"batch-size", kBatch, nullptr},
    {"train-batch-size", kBatch, nullptr},
    {"micro-batch-size", kBatch, nullptr},
    {"per-device-train-batch-size", kBatch, nullptr},
    {"gradient-accumulation-steps", "--grad-accum", nullptr},
    {"accumulate-grad-batches", "--grad-accum", nullptr},
    {"num-epochs", nullptr, "--epochs"},
    {"num-train-epochs", nullptr, "--epochs"},
    {"max-epochs", nullptr, "--epochs"},
    {"num-steps", nullptr, "--steps"},
    {"max-steps", nullptr, "--steps"},
    {"max-train-steps", nullptr, "--steps"},
    {"fp16", "--dtype=fp16", nullptr},
    {"half", "--dtype=fp16", nullptr},
    {"bf16", "--dtype=bf16", nullptr},
    {"amp", "--dtype=bf16' or '--dtype=fp16", nullptr},
    {"mixed-precision", "--dtype=bf16' or '--dtype=fp16", nullptr},
    {"precision", "--dtype", nullptr},
    {"max-grad-norm", "--clip-grad-norm", nullptr},
    {"gradient-clip-val", "--clip-grad-norm", nullptr},
    {"gradient-clipping", "--clip-grad-norm", nullptr},
    {"lr-scheduler", nullptr, "--lr-schedule"},
    {"lr-scheduler-type", nullptr, "--lr-schedule"},
    {"num-warmup-steps", nullptr, "--warmup-steps"},
    {"warmup-iters", nullptr, "--warmup-steps"},
    {"wd", "--weight-decay", nullptr},
    {"beta1", "--betas", nullptr},
    {"beta2", "--betas", nullptr},
    {"adam-beta1", "--betas", nullptr},
    {"adam-beta2", "--betas", nullptr},
    {"adam-epsilon", "--eps", nullptr},
    {"output", "-o", "--export"},
    {"output-dir", "-o", "--export"},
    {"deepspeed", "--config", nullptr},
    {"deepspeed-config", "--config", nullptr},
    {"zero-stage", "--zero", nullptr},
    {"num-gpus", "--ranks", nullptr},
    {"nproc-per-node", "--ranks", nullptr},
    {"world-size", "--ranks", nullptr},
    {"num-threads", "--threads", nullptr},
    {"device", "--target", nullptr},
    {"train-data", nullptr, "--data"},
    {"train-file", nullptr, "--data"},
    {"dataset", nullptr, "--data"},
    {"eval-steps", nullptr, "--eval-every"},
    {"eval-interval", nullptr, "--eval-every"},
    {"random-seed", nullptr, "--seed"},
};

/// The options that there are, and that a program will have; zcc's "-o" is no word.
static std::vector<std::string> optionsOf(Tool tool) {
  std::vector<std::string> names = {
#define ZCC_OPTION(NAME, ...) NAME,
#include "passes/options/Options.def"
  };
  if (tool == Tool::Program)
    names = {
#define ZCCRT_OPTION(NAME, ...) NAME,
#define ZCCRT_PART_OPTION(NAME, ...) NAME,
#define ZCCRT_LATER_OPTION(NAME) NAME,
#include "runtime/Options.def"
    };
  std::erase_if(names, [](const std::string &s) { return s.size() < 2; });
  return names;
}

static std::string here(const std::string &option) { return "; here it is '" + option + "'"; }

/// An option of the tool that was not asked.
static std::string there(Tool asked, const std::string &option) {
  return asked == Tool::Compiler ? "; it is an option of the compiled program: './PROGRAM " + option + "'"
                                 : "; that is decided when the program is compiled: 'zcc " + option + "'";
}

/// The hint for a name as it is written somewhere; "" if it is written nowhere.
static std::string exactHint(Tool asked, const std::string &name, const std::vector<std::string> &own,
                             const std::vector<std::string> &others) {
  if (std::count(own.begin(), own.end(), name))
    return "; did you mean '--" + name + "'?";
  if (std::count(others.begin(), others.end(), name))
    return there(asked, "--" + name);
  for (const Foreign &f : kForeign) {
    if (name != f.name)
      continue;
    const char *mine = asked == Tool::Compiler ? f.compiler : f.program;
    return mine ? here(mine) : there(asked, asked == Tool::Compiler ? f.program : f.compiler);
  }
  return "";
}

std::string optionHint(Tool asked, const std::string &name, const std::vector<std::string> &own) {
  std::string plain;
  for (char c : name)
    plain += c == '_' ? '-' : char(tolower(c));
  std::vector<std::string> others = optionsOf(asked == Tool::Compiler ? Tool::Program : Tool::Compiler);
  std::string hint = exactHint(asked, plain, own, others);
  if (!hint.empty())
    return hint;
  std::vector<std::string> known = own; // first: where two are as near, it is this tool's that is meant
  known.insert(known.end(), others.begin(), others.end());
  for (const Foreign &f : kForeign)
    known.push_back(f.name);
  std::erase_if(known, [](const std::string &s) { return s.size() < 2; });
  std::string near = nearest(plain, known);
  return near.empty() ? "" : exactHint(asked, near, own, others);
}

} // namespace zccrt
