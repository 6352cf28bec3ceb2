// --tokens: a flat file of uint16, uint32 or (a text itself) uint8 token ids. Sample i is tokens [i*T, (i+1)*T); labels are those
// of one token later.
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

namespace {
constexpr zccrt_elem kTokenElems[] = {ZCCRT_U16, ZCCRT_U32, ZCCRT_U8};

/// What the inputs that are cut from the file take.
struct Vocabulary {
  int64_t size = INT64_MAX; ///< INT64_MAX: any number
  const char *input = "";   ///< that says so
};

/// The file's tokens as numbers of one type.
struct Reading {
  zccrt_elem elem;
  int64_t worst = -1; ///< the largest of those looked at; -1: the file's bytes are no whole number of them
};
} // namespace

/// Looks at the first and the last 64 KiB.
static Reading readAs(const File &file, zccrt_elem elem) {
  Reading r{elem};
  int64_t size = elemBytes(elem);
  if (file.bytes() % size)
    return r;
  std::vector<char> piece(std::min<int64_t>(file.bytes(), 1 << 16));
  for (int64_t at : {int64_t(0), int64_t(file.bytes() - piece.size())}) {
    file.read(at, piece.size(), piece.data());
    for (size_t i = 0; i < piece.size(); i += size) {
      uint32_t token = 0;
      memcpy(&token, &piece[i], size);
      r.worst = std::max<int64_t>(r.worst, token);
    }
  }
  return r;
}

/// Whether every other 16-bit number is zero, and not all are: uint32 below 65536, which as uint16 would make every
/// other token 0.
static bool looksWide(const File &file) {
  std::vector<uint16_t> front(std::min<int64_t>(file.bytes() / 2, 1 << 15));
  file.read(0, front.size() * 2, front.data());
  bool lowZero = true, highZero = true;
  for (size_t i = 0; i + 1 < front.size(); i += 2) {
    lowZero &= front[i] == 0;
    highZero &= front[i + 1] == 0;
  }
  return file.bytes() % 4 == 0 && highZero && !lowZero;
}

/// The element type of the tokens: asked for, or the first of those that make tokens of the vocabulary.
static zccrt_elem tokenElem(const File &file, TokenType type, const Vocabulary &v) {
  if (type != TokenType::Auto)
    return type == TokenType::U32 ? ZCCRT_U32 : type == TokenType::U16 ? ZCCRT_U16 : ZCCRT_U8;
  std::vector<zccrt_elem> order(std::begin(kTokenElems), std::end(kTokenElems));
  bool isLarge = v.size > 65536 && v.size != INT64_MAX;
  if (looksWide(file) || isLarge)
    std::swap(order[0], order[1]);
  if (v.size == INT64_MAX)
    return order[0];
  std::string tried;
  for (zccrt_elem elem : order) {
    Reading r = readAs(file, elem);
    if (r.worst >= 0 && r.worst < v.size)
      return elem;
    tried += format("; as %s %s", elemName(elem),
                    r.worst < 0 ? "they are no whole number of tokens"
                                : format("there is %lld among them", static_cast<long long>(r.worst)).c_str());
  }
  fail("--tokens: the %lld bytes of '%s' are no tokens of this model, whose input '%s' takes 0 to %lld%s; tokenize "
       "the text for this model, or name the type with --tokens-dtype",
       static_cast<long long>(file.bytes()), file.path().c_str(), v.input, static_cast<long long>(v.size - 1), tried.c_str());
}

void DataSet::bindTokens(const std::string &path, const Options &o, const zccrt_program &p) {
  auto file = std::make_shared<File>(path);
  std::vector<std::pair<const zccrt_io *, zccrt_tokens>> cut;
  Vocabulary vocabulary;
  int64_t length = -1;
  for (int i = 0; i < p.ninputs; ++i) {
    const zccrt_io &in = p.inputs[i];
    zccrt_tokens role = roleOf(in, o.tokenLabels);
    bool given = std::any_of(bindings.begin(), bindings.end(), [&](auto &b) { return b.input == &in; });
    if (given || role == ZCCRT_TOKENS_NONE)
      continue;
    // Masks and positions are integers of the same shape; what they hold is not in a token file.
    if (strstr(in.name, "mask") || strstr(in.name, "position") || strstr(in.name, "type"))
      fail("input '%s' is not cut from --tokens; give it with --data=%s=FILE.npy", in.name, in.name);
    int64_t inputLength = in.t.dims[in.t.ndim - 1];
    if (length >= 0 && length != inputLength)
      fail("--tokens: input '%s' is %lld tokens long, input '%s' %lld", cut[0].first->name, static_cast<long long>(length),
           in.name, static_cast<long long>(inputLength));
    length = inputLength;
    if (in.lo < in.hi && in.hi < vocabulary.size)
      vocabulary = {in.hi, in.name};
    cut.push_back({&in, role});
  }
  if (cut.empty())
    fail("--tokens: the model has no integer input of shape (batch, length) left to fill");
  zccrt_elem elem = tokenElem(*file, o.tokenType, vocabulary);
  if (file->bytes() % elemBytes(elem))
    fail("--tokens: '%s' has %lld bytes, which is no whole number of %s tokens; say what they are with "
         "--tokens-dtype=uint16|uint32|uint8",
         path.c_str(), static_cast<long long>(file->bytes()), elemName(elem));
  int64_t tokens = file->bytes() / elemBytes(elem);
  bool shifts = std::any_of(cut.begin(), cut.end(), [](auto &c) { return c.second == ZCCRT_TOKENS_NEXT; });
  int64_t samples = length > 0 ? (tokens - shifts) / length : 0;
  note(format("'%s': %lld %s tokens, %lld samples of %lld", path.c_str(), static_cast<long long>(tokens), elemName(elem),
              static_cast<long long>(samples), static_cast<long long>(length)));
  for (auto [input, role] : cut) {
    if (elemBytes(input->t.elem) < elemBytes(elem) || input->t.elem == ZCCRT_I16)
      fail("%s tokens do not fit input '%s', which is %s", elemName(elem), input->name, elemName(input->t.elem));
    Binding b{input, {}, input->t.ndim == 2 ? input->t.dims[0] : 1, 0, length, length};
    b.array.name = path;
    b.array.elem = elem;
    b.array.dims = {samples, length};
    b.array.source = file;
    b.array.offset = role == ZCCRT_TOKENS_NEXT ? elemBytes(elem) : 0;
    b.samples = samples;
    b.batches = b.rows > 0 ? samples / b.rows : 0;
    b.advice =
        format("; '%s' is read as %s tokens, --tokens-dtype=uint16|uint32|uint8 says otherwise", path.c_str(), elemName(elem));
    if (!samples || (!b.batches && rest == Rest::LeaveOut))
      fail("--tokens: '%s' has %lld tokens, too few for one batch of %lld samples of %lld", path.c_str(),
           static_cast<long long>(tokens), static_cast<long long>(b.rows), static_cast<long long>(length));
    bindings.push_back(std::move(b));
  }
}

} // namespace zccrt
