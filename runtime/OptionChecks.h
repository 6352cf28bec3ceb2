// When an option of a program must not be given: the column `check` of Options.def. Each throws a Failure. They are asked for the
// options that are given, in the order of the rows.
#pragma once

#include "runtime/Options.h"

namespace zccrt {

inline void always(const zccrt_program &, const Options &) {}
void excludesArchive(const zccrt_program &p, const Options &o);
void trains(const zccrt_program &p, const Options &o);
void doesNotTrain(const zccrt_program &p, const Options &o);
void hasDevice(const zccrt_program &p, const Options &o);
void hasEvalData(const zccrt_program &p, const Options &o);
void hasGenerate(const zccrt_program &p, const Options &o);
void isArchive(const zccrt_program &p, const Options &o);
void isExport(const zccrt_program &p, const Options &o);
void isFormOfOnnx(const zccrt_program &p, const Options &o);
void isOfSafetensors(const zccrt_program &p, const Options &o);
void isPartOfExport(const zccrt_program &p, const Options &o);
void needsTokens(const zccrt_program &p, const Options &o);
void needsTrace(const zccrt_program &p, const Options &o);
void trainsToSave(const zccrt_program &p, const Options &o);
void needsSave(const zccrt_program &p, const Options &o);
void needsWeights(const zccrt_program &p, const Options &o);
void resumesFrom(const zccrt_program &p, const Options &o);

} // namespace zccrt
