// The wire format of Protocol Buffers, field by field: what reads a model without copying its weights, and writes one around
// them.
#pragma once

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace google::protobuf {
class Message;
}

namespace zcc {

/// Field numbers of onnx.proto.
constexpr int kModelGraph = 7, kGraphInitializer = 5, kTensorRawData = 9;

/// One field of a message: its whole extent (tag included), and the payload of a length-delimited
/// one.
struct WireField {
  int number = 0;
  bool isBytes = false; ///< length-delimited
  llvm::StringRef whole, payload;
};

/// Calls `f` for each field of `bytes`; false if they are not a valid message or `f` says so.
bool forEachField(llvm::StringRef bytes, llvm::function_ref<bool(const WireField &)> f);

/// Adds what `bytes` hold to a message (messages concatenate); false if they are not valid.
bool mergeMessage(google::protobuf::Message &m, llvm::StringRef bytes);

/// A number, 7 bits a byte, the least first.
std::string varint(uint64_t v);

/// Tag and length in front of a length-delimited field of `bytes` bytes.
std::string fieldHeader(int field, int64_t bytes);

} // namespace zcc
