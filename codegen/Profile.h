// What was measured of a machine, as a file: zcc --calibrate writes it, predictions and choices rest on it.
//
//   {
//     "cpu": "AMD EPYC 9654 96-Core Processor",
//     "rates": {"disk_bytes": 2100000000, "host_copy_bytes": 9800000000},
//     "threads": {"1": {"f32_large_flops": 98000000000, ...}, "8": {...}},
//     "version": 1,
//     "ways": {"8": {"conv_grad_input f32 points 256 1024 196": "blocked", ...}}
//   }
//
// Rates are per second; their names are in passes/Rates.def. What a file does not have is the shipped default. Ways are those in
// which the libraries computed a sample fastest (runtime/cpu/Ways.h); "own": none was much faster than the kernel's own rule.
#pragma once

#include "passes/CostModel.h"
#include "runtime/cpu/Ways.h"
#include <map>

namespace zcc {

struct Profile {
  using Rates = std::map<Rate, double>;
  std::string path; ///< where it was read
  std::string cpu;
  Rates whole;                    ///< whatever the number of threads
  std::map<int, Rates> byThreads; ///< of a rank with so many

  /// The way of each sample: its kind and extents, with blanks between them.
  using Ways = std::map<std::string, std::string>;
  static constexpr const char *kOwnWay = "own";
  std::map<int, Ways> waysByThreads;

  /// Of the sample that is most like a case, measured with the most threads that are no more than `threads`; "": the kernel's
  /// own.
  std::string wayOf(const zccrt::cpu::WayCase &c, int threads) const;
  /// Puts in what `m` has for a rank of so many threads: between two numbers of threads that were measured, on the line between
  /// them; beyond, more threads compute more and get no more from memory. Ranks beside it that the same machine has threads for
  /// share its memory.
  void apply(Machine &m, int threads, int ranks = 1) const;
  /// Takes over what another one has.
  void merge(const Profile &newer);
  std::string json() const;
};

/// A sample as profiles have it: "conv f32 points 64 256 196".
std::string textOf(const zccrt::cpu::WayCase &c);

/// An error says what is wrong with the text.
llvm::Expected<Profile> parseProfile(llvm::StringRef text);
/// An error names the file.
llvm::Expected<Profile> readProfile(llvm::StringRef path);

/// "AMD EPYC 9654 96-Core Processor", of the machine that this runs on.
std::string cpuName();
/// Where that machine's own profile is kept: below $XDG_CACHE_HOME or ~/.cache; "" where neither is known.
std::string ownProfilePath();

} // namespace zcc
