// A parameter as boxes of the tensor that it was, and what reads it as so many nodes.
#pragma once

#include "ir/Builder.h"

namespace zcc {

class ParameterTiles {
public:
  /// Finds what reads a parameter.
  ParameterTiles(Module &m, GlobalValue &param);

  /// Why it cannot become boxes, or "".
  const std::string &whyNot() const { return why; }
  /// Boxes along each axis of which as many as asked for are each as much as can be one range of the parameter's file.
  std::vector<int64_t> grid(int64_t count) const;
  /// Cuts it, and its f32 master with it; the parameter becomes the tensor.
  void split(llvm::ArrayRef<int64_t> boxesByAxis);

private:
  /// A product, of the parameter or of its transpose, or a lookup of rows.
  struct Reader {
    Node *node;
    bool isTransposed;
  };
  void collect(Value &v, bool isTransposed);
  std::vector<GlobalValue *> cut(GlobalValue &g, llvm::ArrayRef<GlobalValue *> of);
  GlobalValue *boxAt(unsigned axis, int64_t i, int64_t other) const;
  int64_t begin(unsigned axis, int64_t i) const { return std::min(i * size[axis], param.type.dims[axis]); }
  int64_t count(unsigned axis) const { return (param.type.dims[axis] + size[axis] - 1) / size[axis]; }
  Value *product(const Reader &r);
  Value *lookup(Node &n);
  Value *rowsOf(Builder &b, Value *index, int64_t column);

  Module &m;
  GlobalValue &param;
  std::string why;
  std::vector<Reader> readers;
  std::vector<Node *> views;
  std::vector<int64_t> size; ///< of a box along each axis
  std::vector<GlobalValue *> boxes;
};

} // namespace zcc
