// Writing trained weights: the ONNX file by pieces, or safetensors.
#pragma once

#include "runtime/Arena.h"
#include "runtime/GraphPart.h"
#include "runtime/OutFile.h"
#include "runtime/Weights.h"
#include "runtime/comm/Comm.h"
#include "runtime/zccrt.h"
#include <string>

namespace zccrt {

/// SafetensorsFirst: of the names of a tied parameter only the first.
enum class ExportForm { Onnx, OnnxTrain, Safetensors, SafetensorsFirst };

/// Bytes the exported file will have. Of the form Onnx a part of the graph can be written.
int64_t exportBytes(const zccrt_program &p, ExportForm form, const GraphPart *part = nullptr);

/// Memory of the host that nothing else uses.
struct Scratch {
  char *base = nullptr;
  int64_t bytes = 0;
};

/// Writes the file on rank 0 and commits it; every rank calls it, to hand over its pieces of
/// partitioned tensors, of which no rank ever has all. What is computed in 16 bits and frozen is copied from its file.
/// `file` is open on rank 0 only. With `scratch` it takes 4 MiB besides at most, and none where that has as much (what is copied
/// from files goes through 8 MiB); without, up to 128 MiB. Throws a Failure if the disk is full, or what is copied is not what
/// the program was compiled with.
void exportWeights(const zccrt_program &p, ExportForm form, const Arenas &arenas, Comm &comm, OutFile &file, ModelFiles &files,
                   const GraphPart *part = nullptr, Scratch scratch = {});

/// The header of a safetensors file, with its length in front: names, types, shapes as in the
/// model, offsets.
std::string safetensorsHeader(const zccrt_program &p, ExportForm form);

} // namespace zccrt
