#include "test/fuzz/MutateModel.h"
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

using namespace zcc;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);

namespace {
/// A field of a message in the tree.
struct Slot {
  Message *of;
  const FieldDescriptor *field;
};

class Mutation {
public:
  Mutation(Message &root, std::minstd_rand &random) : random_(random) { collect(root, /*depth=*/0); }
  void run();

private:
  void collect(Message &m, int depth);
  void changeMessage(const Slot &s);
  void changeString(const Slot &s);
  void changeNumber(const Slot &s);
  size_t upTo(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  std::minstd_rand &random_;
  std::vector<Slot> slots_;
  std::vector<Message *> messages_;
  std::vector<std::string> strings_;
};
} // namespace

/// The fields of a message and of those in it. Far deeper than readers go, the rest stays as it is.
void Mutation::collect(Message &m, int depth) {
  constexpr int kDeepest = 400;
  messages_.push_back(&m);
  auto *r = m.GetReflection();
  for (int i = 0; i < m.GetDescriptor()->field_count(); ++i) {
    auto *f = m.GetDescriptor()->field(i);
    slots_.push_back({&m, f});
    bool isMessage = f->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    int count = f->is_repeated() ? r->FieldSize(m, f) : r->HasField(m, f);
    for (int k = 0; k < count; ++k)
      if (isMessage && depth < kDeepest)
        collect(f->is_repeated() ? *r->MutableRepeatedMessage(&m, f, k) : *r->MutableMessage(&m, f), depth + 1);
      else if (f->cpp_type() == FieldDescriptor::CPPTYPE_STRING)
        strings_.push_back(f->is_repeated() ? r->GetRepeatedString(m, f, k) : r->GetString(m, f));
  }
}

void Mutation::changeMessage(const Slot &s) {
  auto *r = s.of->GetReflection();
  std::vector<Message *> like;
  for (Message *m : messages_)
    if (m->GetDescriptor() == s.field->message_type())
      like.push_back(m);
  std::unique_ptr<Message> copy(like.empty() ? nullptr : like[upTo(like.size())]->New());
  if (copy)
    copy->CopyFrom(*like[upTo(like.size())]); // before it is changed: it may hold the slot
  if (!s.field->is_repeated()) {
    if (copy && upTo(4))
      r->MutableMessage(s.of, s.field)->CopyFrom(*copy);
    else
      r->ClearField(s.of, s.field);
    return;
  }
  int n = r->FieldSize(*s.of, s.field);
  if (n && !upTo(3))
    return r->RemoveLast(s.of, s.field);
  if (copy && upTo(3))
    r->AddMessage(s.of, s.field)->CopyFrom(*copy);
  n = r->FieldSize(*s.of, s.field);
  if (n > 1)
    r->SwapElements(s.of, s.field, int(upTo(size_t(n))), int(upTo(size_t(n))));
}

void Mutation::changeString(const Slot &s) {
  auto *r = s.of->GetReflection();
  bool isList = s.field->is_repeated();
  int n = isList ? r->FieldSize(*s.of, s.field) : 1;
  if (isList && n && !upTo(4))
    return r->RemoveLast(s.of, s.field);
  std::string text = strings_.empty() ? "" : strings_[upTo(strings_.size())];
  if (!upTo(4)) {
    text.resize(text.size() + 16);
    text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t *>(text.data()), text.size() - 16, text.size()));
  }
  if (!isList)
    r->SetString(s.of, s.field, text);
  else if (n && upTo(4))
    r->SetRepeatedString(s.of, s.field, int(upTo(size_t(n))), text);
  else
    r->AddString(s.of, s.field, text);
}

void Mutation::changeNumber(const Slot &s) {
  static const int64_t kOdd[] = {0,  1,  -1, 2,  -2, 3,  4,   5,       6,         7,         8,         9,
                                 10, 11, 14, 16, 63, 64, 255, 1 << 20, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
  int64_t v = kOdd[upTo(std::size(kOdd))];
  auto *r = s.of->GetReflection();
  bool isList = s.field->is_repeated();
  int n = isList ? r->FieldSize(*s.of, s.field) : 0, at = n ? int(upTo(size_t(n))) : 0;
  if (!isList && !upTo(6))
    return r->ClearField(s.of, s.field);
  if (n && !upTo(4))
    return r->RemoveLast(s.of, s.field);
  bool adds = isList && (!n || !upTo(4));
#define ZCC_SET(TYPE, VALUE)                                                                                                     \
  (adds     ? r->Add##TYPE(s.of, s.field, VALUE)                                                                                 \
   : isList ? r->SetRepeated##TYPE(s.of, s.field, at, VALUE)                                                                     \
            : r->Set##TYPE(s.of, s.field, VALUE))
  switch (s.field->cpp_type()) {
  case FieldDescriptor::CPPTYPE_INT32:
    return ZCC_SET(Int32, int32_t(v));
  case FieldDescriptor::CPPTYPE_INT64:
    return ZCC_SET(Int64, v);
  case FieldDescriptor::CPPTYPE_UINT64:
    return ZCC_SET(UInt64, uint64_t(v));
  case FieldDescriptor::CPPTYPE_FLOAT:
    return ZCC_SET(Float, float(v) / 3);
  case FieldDescriptor::CPPTYPE_DOUBLE:
    return ZCC_SET(Double, double(v) / 3);
  case FieldDescriptor::CPPTYPE_ENUM: {
    auto *e = s.field->enum_type();
    int value = e->value(int(upTo(size_t(e->value_count()))))->number();
    return isList ? void() : r->SetEnumValue(s.of, s.field, value);
  }
  default:
    return;
  }
#undef ZCC_SET
}

void Mutation::run() {
  const Slot &s = slots_[upTo(slots_.size())];
  if (s.field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
    changeMessage(s);
  else if (s.field->cpp_type() == FieldDescriptor::CPPTYPE_STRING)
    changeString(s);
  else
    changeNumber(s);
}

void zcc::mutateMessage(Message &m, std::minstd_rand &random) { Mutation(m, random).run(); }
