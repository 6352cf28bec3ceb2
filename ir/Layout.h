// How a library wants a tensor that it reads often: opaque to the program, but for how much it takes. Text, after oneDNN's names
// of formats: `ABcd16b16a2b`: axes a to d from the slowest on, of which the capital ones count blocks; within, from the outside,
// 16 of b, 16 of a, 2 of b. Axes are padded up to whole blocks.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace zcc {

class Layout {
public:
  static constexpr unsigned kMostAxes = 6, kMostBlocks = 5;

  /// Rows: whoever computes may read it.
  Layout() = default;
  /// Reads one from the front of `text` and drops it from there; nullopt, and `text` is where the error is.
  static std::optional<Layout> parse(llvm::StringRef &text);
  std::string str() const;

  /// Whether it is another one than rows.
  explicit operator bool() const { return axes_ != 0; }
  bool operator==(const Layout &o) const = default;
  unsigned axes() const { return axes_; }
  /// Elements of a tensor, with what it is padded by.
  int64_t count(llvm::ArrayRef<int64_t> dims) const;

private:
  struct Block {
    uint8_t axis = 0, size = 0;
    bool operator==(const Block &o) const = default;
  };
  uint8_t axes_ = 0, blocks_ = 0;
  std::array<uint8_t, kMostAxes> order_{}; ///< from the slowest
  std::array<Block, kMostBlocks> block_{}; ///< from the outermost
};

} // namespace zcc
