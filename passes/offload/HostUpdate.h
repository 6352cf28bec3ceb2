// What of an update is computed in host memory, where its states live (ZeRO-Offload, arXiv 2101.06840, section 4).
//
//   %m1 = add %w.m, %g                 %h = transfer %g {to = "host"}
//   %u = mul %m1, %lr                  %m1 = add %w.m, %h                     in @host
//   %w1 = sub %w, %u           ->      %d = transfer %m1 {to = "device"}
//   assign %w.m, %m1                   %u = mul %d, %lr
//   assign %w, %w1                     %w1 = sub %w, %u
//                                      assign %w.m, %m1
//                                      assign %w, %w1
#pragma once

#include "passes/zero/Zero.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <map>

namespace zcc {

/// The updates of one function.
class HostUpdates {
public:
  /// `at`: positions of the nodes, but of transfers that were added since. `late`: what reads values that are brought for it
  /// alone.
  HostUpdates(Function &f, const Positions &at, const llvm::DenseSet<const Node *> &late) : f_(f), at_(at), late_(late) {}
  /// What follows element by element from these values, of @host or @nvme, computes there, as far as that moves fewer bytes; what
  /// goes between there and the device is transferred. Assignments to @nvme are left. What has been placed before stays.
  void place(llvm::ArrayRef<Value *> states);

private:
  bool isMember(const Node &n) const;
  bool isLike(const Value &v) const;
  void placeAlike(llvm::ArrayRef<Value *> states);
  void collect(llvm::ArrayRef<Value *> states);
  int madeAt(const Value &v) const;
  void choose();
  Space readIn(const Value::Use &u) const;
  void bring(llvm::ArrayRef<Value *> values, Space to);
  void bring(llvm::ArrayRef<Value *> values, Space to, bool isLate);
  void bringScalar(Value &v, Node &reader);

  Function &f_;
  const Positions &at_;
  const llvm::DenseSet<const Node *> &late_;
  Type like_;                             ///< of the states
  llvm::MapVector<Node *, bool> members_; ///< and whether they are computed on the host
  llvm::SmallPtrSet<const Node *, 32> placed_;
  std::map<std::pair<Value *, Node *>, Value *> scalars_; ///< on the host, of those behind a write
};

} // namespace zcc
