// Layouts as text and back, and their sizes.
#include "ir/Layout.h"
#include "llvm/ADT/StringExtras.h"

using namespace zcc;
using llvm::StringRef;

std::optional<Layout> Layout::parse(StringRef &text) {
  Layout l;
  uint32_t seen = 0, capital = 0, blocked = 0;
  for (; !text.empty() && llvm::isAlpha(text[0]); text = text.drop_front()) {
    const unsigned axis = unsigned(llvm::toLower(text[0]) - 'a');
    if (axis >= kMostAxes || seen >> axis & 1)
      return std::nullopt;
    seen |= 1u << axis;
    capital |= uint32_t(llvm::isUpper(text[0])) << axis;
    l.order_[l.axes_++] = uint8_t(axis);
  }
  while (!text.empty() && llvm::isDigit(text[0])) {
    Block b;
    if (l.blocks_ == kMostBlocks || text.consumeInteger(10, b.size) || b.size < 2 || text.empty() || !llvm::isLower(text[0]))
      return std::nullopt;
    b.axis = uint8_t(text[0] - 'a');
    if (b.axis >= l.axes_)
      return std::nullopt;
    text = text.drop_front();
    blocked |= 1u << b.axis;
    l.block_[l.blocks_++] = b;
  }
  const bool isAllAxes = l.axes_ && seen == (1u << l.axes_) - 1;
  return isAllAxes && capital == blocked ? std::optional(l) : std::nullopt;
}

std::string Layout::str() const {
  std::string s;
  auto isBlocked = [&](uint8_t axis) {
    return llvm::any_of(llvm::ArrayRef(block_).take_front(blocks_), [&](const Block &b) { return b.axis == axis; });
  };
  for (unsigned i = 0; i < axes_; ++i)
    s += char((isBlocked(order_[i]) ? 'A' : 'a') + order_[i]);
  for (unsigned i = 0; i < blocks_; ++i)
    s += std::to_string(block_[i].size) + char('a' + block_[i].axis);
  return s;
}

int64_t Layout::count(llvm::ArrayRef<int64_t> dims) const {
  int64_t n = 1;
  for (unsigned axis = 0; axis < dims.size(); ++axis) {
    int64_t size = 1;
    for (unsigned i = 0; i < blocks_; ++i)
      size *= block_[i].axis == axis ? block_[i].size : 1;
    n *= (dims[axis] + size - 1) / size * size;
  }
  return n;
}
