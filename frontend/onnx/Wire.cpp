// Walks messages with Protocol Buffers' own reader.
#include "frontend/onnx/Wire.h"
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message.h>

using namespace zcc;
using google::protobuf::io::CodedInputStream;
using llvm::StringRef;

static bool skipPayload(CodedInputStream &in, StringRef bytes, WireField &field, int wire) {
  constexpr int kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5; // wire types
  uint32_t length;
  uint64_t ignored;
  switch (wire) {
  case kVarint:
    return in.ReadVarint64(&ignored);
  case kFixed64:
    return in.Skip(8);
  case kFixed32:
    return in.Skip(4);
  case kBytes: {
    if (!in.ReadVarint32(&length))
      return false;
    int at = in.CurrentPosition();
    if (length > bytes.size() - at || !in.Skip(int(length)))
      return false;
    field.isBytes = true;
    field.payload = bytes.substr(at, length);
    return true;
  }
  default:
    return false; // groups are not in ONNX
  }
}

static CodedInputStream streamOf(StringRef bytes) {
  return CodedInputStream(reinterpret_cast<const uint8_t *>(bytes.data()), int(bytes.size()));
}

bool zcc::forEachField(StringRef bytes, llvm::function_ref<bool(const WireField &)> f) {
  CodedInputStream in = streamOf(bytes);
  while (true) {
    int start = in.CurrentPosition();
    uint32_t tag = in.ReadTag();
    if (tag == 0)
      return start == int(bytes.size());
    WireField field;
    field.number = int(tag >> 3);
    if (!skipPayload(in, bytes, field, int(tag & 7)))
      return false;
    field.whole = bytes.slice(start, in.CurrentPosition());
    if (!f(field))
      return false;
  }
}

bool zcc::mergeMessage(google::protobuf::Message &m, StringRef bytes) {
  CodedInputStream in = streamOf(bytes);
  return m.MergeFromCodedStream(&in) && in.ConsumedEntireMessage();
}

std::string zcc::varint(uint64_t v) {
  std::string s;
  for (; v >= 0x80; v >>= 7)
    s += char(v | 0x80);
  return s + char(v);
}

std::string zcc::fieldHeader(int field, int64_t bytes) {
  constexpr int kBytes = 2;
  return varint(uint64_t(field) << 3 | kBytes) + varint(uint64_t(bytes));
}
