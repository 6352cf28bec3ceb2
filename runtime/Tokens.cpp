// --tokens: a flat file of uint16, uint32 or (a text itself) uint8 token ids. Sample i is tokens
// [i*T, (i+1)*T); labels are those of one token later.
#include "runtime/Data.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include <algorithm>
#include <cstring>

namespace zccrt {

static zccrt_tokens roleOf(const zccrt_io &input, TokenLabels labels) {
  if (!isInteger(input.t.elem) || input.t.ndim < 1 || input.t.ndim > 2)
    return ZCCRT_TOKENS_NONE;
  zccrt_tokens role = input.tokens;
  if (role == ZCCRT_TOKENS_AUTO) {
    bool named = strstr(input.name, "label") || strstr(input.name, "target");
    role = named || input.ignore != INT64_MIN ? ZCCRT_TOKENS_NEXT : ZCCRT_TOKENS_IDS;
  }
  bool isLabel = role == ZCCRT_TOKENS_NEXT || role == ZCCRT_TOKENS_SAME;
  if (isLabel && labels != TokenLabels::Auto)
    return labels == TokenLabels::Next ? ZCCRT_TOKENS_NEXT : ZCCRT_TOKENS_SAME;
  return role;
}

/// Whether the file holds uint32: asked for, or needed by the vocabulary, or seen: the upper half
/// of every number is zero, which in a file of uint16 would make every other token 0.
static zccrt_elem tokenElem(const File &file, TokenType type, int64_t vocabulary) {
  if (type != TokenType::Auto)
    return type == TokenType::U32 ? ZCCRT_U32 : type == TokenType::U16 ? ZCCRT_U16 : ZCCRT_U8;
  if (vocabulary > 65536)
    return ZCCRT_U32;
  if (file.bytes() % 4)
    return ZCCRT_U16;
  std::vector<uint16_t> front(std::min<int64_t>(file.bytes() / 2, 1 << 16));
  file.read(0, front.size() * 2, front.data());
  bool lowZero = true, highZero = true;
  for (size_t i = 0; i + 1 < front.size(); i += 2) {
    lowZero &= front[i] == 0;
    highZero &= front[i + 1] == 0;
  }
  return highZero && !lowZero ? ZCCRT_U32 : ZCCRT_U16;
}

void DataSet::bindTokens(const std::string &path, const Options &o, const zccrt_program &p) {
  auto file = std::make_shared<File>(path);
  std::vector<std::pair<const zccrt_io *, zccrt_tokens>> cut;
  int64_t vocabulary = 0, length = -1;
  for (int i = 0; i < p.ninputs; ++i) {
    const zccrt_io &in = p.inputs[i];
    zccrt_tokens role = roleOf(in, o.tokenLabels);
    bool given =
        std::any_of(bindings.begin(), bindings.end(), [&](auto &b) { return b.input == &in; });
    if (given || role == ZCCRT_TOKENS_NONE)
      continue;
    // Masks and positions are integers of the same shape; what they hold is not in a token file.
    if (strstr(in.name, "mask") || strstr(in.name, "position") || strstr(in.name, "type"))
      fail("input '%s' is not cut from --tokens; give it with --data=%s=FILE.npy", in.name,
           in.name);
    int64_t inputLength = in.t.dims[in.t.ndim - 1];
    if (length >= 0 && length != inputLength)
      fail("--tokens: input '%s' is %lld tokens long, input '%s' %lld", cut[0].first->name,
           static_cast<long long>(length), in.name, static_cast<long long>(inputLength));
    length = inputLength;
    vocabulary = std::max(vocabulary, in.hi);
    cut.push_back({&in, role});
  }
  if (cut.empty())
    fail("--tokens: the model has no integer input of shape (batch, length) left to fill");
  zccrt_elem elem = tokenElem(*file, o.tokenType, vocabulary);
  if (file->bytes() % elemBytes(elem))
    fail("--tokens: '%s' has %lld bytes, which is no whole number of %s tokens", path.c_str(),
         static_cast<long long>(file->bytes()), elemName(elem));
  int64_t tokens = file->bytes() / elemBytes(elem);
  bool shifts =
      std::any_of(cut.begin(), cut.end(), [](auto &c) { return c.second == ZCCRT_TOKENS_NEXT; });
  int64_t samples = length > 0 ? (tokens - shifts) / length : 0;
  note(format("'%s': %lld %s tokens, %lld samples of %lld", path.c_str(),
              static_cast<long long>(tokens), elemName(elem), static_cast<long long>(samples),
              static_cast<long long>(length)));
  for (auto [input, role] : cut) {
    if (elemBytes(input->t.elem) < elemBytes(elem) || input->t.elem == ZCCRT_I16)
      fail("%s tokens do not fit input '%s', which is %s", elemName(elem), input->name,
           elemName(input->t.elem));
    Binding b{input, {}, input->t.ndim == 2 ? input->t.dims[0] : 1, 0, length, length};
    b.array.name = path;
    b.array.elem = elem;
    b.array.dims = {samples, length};
    b.array.source = file;
    b.array.offset = role == ZCCRT_TOKENS_NEXT ? elemBytes(elem) : 0;
    b.batches = b.rows > 0 ? samples / b.rows : 0;
    if (!b.batches)
      fail("--tokens: '%s' has %lld tokens, too few for one batch of %lld samples of %lld",
           path.c_str(), static_cast<long long>(tokens), static_cast<long long>(b.rows),
           static_cast<long long>(length));
    bindings.push_back(std::move(b));
  }
}

} // namespace zccrt
