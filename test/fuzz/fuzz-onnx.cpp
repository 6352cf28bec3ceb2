// Any bytes are a model: it is imported and goes through the passes, or is refused with an error.
#include "frontend/Import.h"
#include "onnx.pb.h"
#include "passes/PassManager.h"
#include "passes/Pipeline.h"
#include "test/fuzz/MutateModel.h"
#include "llvm/Support/Error.h"
#include <google/protobuf/stubs/logging.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace zcc;

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  google::protobuf::SetLogHandler(nullptr); // it complains of every name that is no UTF-8
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const int file = memfd_create("model.onnx", 0);
  if (ftruncate(file, 0) || pwrite(file, data, size, 0) != ssize_t(size))
    return 0;
  ImportOptions importing;
  importing.init = "pytorch";
  for (bool inference : {false, true}) {
    importing.inference = inference;
    ImportReport report;
    auto m = importOnnx("/proc/self/fd/" + std::to_string(file), importing, report);
    if (!m) {
      llvm::consumeError(m.takeError());
      continue;
    }
    Options options;
    options.threads = 1;
    options.inference = inference;
    DumpOptions dump;
    PassManager passes(options, dump);
    buildPipeline(passes, options);
    if (auto e = passes.run(**m))
      llvm::consumeError(std::move(e));
  }
  return 0;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);

/// Mostly the model is changed; now and then its bytes are, for what reads them.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  std::minstd_rand random(seed);
  onnx_pb::ModelProto model;
  if (random() % 16 == 0 || !model.ParsePartialFromArray(data, int(size)))
    return LLVMFuzzerMutate(data, size, maxSize);
  for (unsigned i = 1 + random() % 4; i > 0; --i)
    mutateMessage(model, random);
  size_t bytes = model.ByteSizeLong();
  if (bytes > maxSize)
    return LLVMFuzzerMutate(data, size, maxSize);
  model.SerializePartialToArray(data, int(bytes));
  return bytes;
}
