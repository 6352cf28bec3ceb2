// What options ask of the program and of each other.
#include "runtime/OptionChecks.h"
#include "runtime/Fail.h"
#include "runtime/GraphPart.h"

namespace zccrt {

void excludesArchive(const zccrt_program &, const Options &o) {
  if (!o.data.npz.empty())
    fail("--tokens and --data=FILE.npz exclude each other");
}

void trains(const zccrt_program &p, const Options &o) {
  if (o.steps >= 0 && o.epochs >= 0)
    fail("--steps and --epochs exclude each other");
  if (!p.micro_fn && !o.eval && (o.steps > 0 || o.epochs > 0))
    fail("this program was compiled with --loss=none and cannot train; use --eval");
}

void doesNotTrain(const zccrt_program &, const Options &o) {
  if (o.epochs >= 0 || o.evalEvery)
    fail("--eval does not train: leave out --epochs and --eval-every");
}

void hasDevice(const zccrt_program &p, const Options &) {
  if (!p.device)
    fail("--cuda-graph is for programs on GPUs, and this one computes on the CPU");
}

void hasEvalData(const zccrt_program &p, const Options &o) {
  if (o.evalData.empty())
    fail("--eval-every needs --eval-data=FILE");
  if (!p.has_loss)
    fail("--eval-every: this program computes no loss");
}

void hasGenerate(const zccrt_program &, const Options &o) {
  if (!o.generate)
    fail("%s needs --generate=N", o.prompt.empty() ? "--temperature" : "--prompt");
}

void isArchive(const zccrt_program &, const Options &o) {
  if (!o.outputs.empty() && !endsWith(o.outputs, ".npz"))
    fail("--outputs=%s: expected a name ending in .npz", o.outputs.c_str());
}

void isExport(const zccrt_program &p, const Options &o) {
  if (o.exportFormat == ExportFormat::Onnx && !(o.exportTrainForm ? p.npieces_train : p.npieces))
    fail("--export=%s: this program carries no ONNX graph in that form", o.exportFile.c_str());
}

void isFormOfOnnx(const zccrt_program &, const Options &o) {
  if (o.exportTrainForm && o.exportFormat != ExportFormat::Onnx)
    fail("--export-form=train is for --export=FILE.onnx");
}

void needsTokens(const zccrt_program &, const Options &o) {
  if (o.data.tokens.empty() && o.evalData.tokens.empty())
    fail("--%s is of --tokens=FILE, which is not given", o.tokenType != TokenType::Auto ? "tokens-dtype" : "tokens-labels");
}

void isOfSafetensors(const zccrt_program &, const Options &o) {
  if (!o.exportTies && o.exportFormat != ExportFormat::Safetensors)
    fail("--export-ties=first is for --export=FILE.safetensors");
}

void isPartOfExport(const zccrt_program &p, const Options &o) {
  if (o.exportFormat != ExportFormat::Onnx)
    fail("--outputs-of=%s is for --export=FILE.onnx", o.outputsOf.c_str());
  if (o.exportTrainForm)
    fail("--outputs-of=%s is of the inference form; leave out --export-form=train", o.outputsOf.c_str());
  if (!p.onnx_index)
    fail("--outputs-of=%s: this program does not know the values of its graph", o.outputsOf.c_str());
  graphPart(p, o.outputsOf); // whether there is such a value
}

void needsTrace(const zccrt_program &, const Options &o) {
  if (o.trace.empty())
    fail("--trace-steps needs --trace=FILE.json");
}

void trainsToSave(const zccrt_program &p, const Options &o) {
  if (!p.micro_fn)
    fail("--save: this program was compiled with --loss=none and does not train");
  if (o.eval)
    fail("--save: %s does not train, there is nothing to save",
         o.outputs.empty() ? "--eval" : "--eval, or --outputs without --steps,");
  if (o.steps == 0 && o.resume.empty())
    fail("--save: --steps=0 does not train, there is nothing to save");
}

void needsSave(const zccrt_program &, const Options &o) {
  if (o.save.empty())
    fail("%s needs --save=DIR", o.saveEvery ? "--save-every" : "--keep");
}

void needsWeights(const zccrt_program &, const Options &o) {
  if (o.weights.empty())
    fail("--weights-map needs --weights=FILE");
}

void resumesFrom(const zccrt_program &p, const Options &o) {
  if (o.resume == "auto" && o.save.empty())
    fail("--resume=auto looks into the folder of --save=DIR, which is not given");
  if (!p.micro_fn)
    fail("--resume: this program was compiled with --loss=none, and has no state to go on with");
}

} // namespace zccrt
