// --tokens: flat files of uint16, uint32 or (a text itself) uint8 token ids. Sample i of a file is its tokens [i*T, (i+1)*T);
// labels are those of one token later. Those of the next file follow; no sample is cut from two files.
#include "runtime/Data.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include <algorithm>
#include <cstring>
#include <functional>

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

using Files = std::vector<std::shared_ptr<File>>;

/// The element type of the tokens: asked for, or the first of those that make tokens of the vocabulary of every file.
static zccrt_elem tokenElem(const Files &files, TokenType type, const Vocabulary &v) {
  if (type != TokenType::Auto)
    return type == TokenType::U32 ? ZCCRT_U32 : type == TokenType::U16 ? ZCCRT_U16 : ZCCRT_U8;
  std::vector<zccrt_elem> order(std::begin(kTokenElems), std::end(kTokenElems));
  bool isLarge = v.size > 65536 && v.size != INT64_MAX;
  if (looksWide(*files[0]) || isLarge)
    std::swap(order[0], order[1]);
  if (v.size == INT64_MAX)
    return order[0];
  std::string tried;
  const File *wrong = nullptr;
  for (zccrt_elem elem : order) {
    auto isNone = [&](const std::shared_ptr<File> &f) {
      const Reading r = readAs(*f, elem);
      return r.worst < 0 || r.worst >= v.size;
    };
    auto bad = std::find_if(files.begin(), files.end(), isNone);
    if (bad == files.end())
      return elem;
    if (!wrong)
      wrong = bad->get();
    Reading r = readAs(**bad, elem);
    tried += format("; as %s %s", elemName(elem),
                    r.worst < 0 ? "they are no whole number of tokens"
                                : format("there is %lld among them", static_cast<long long>(r.worst)).c_str());
    if (bad->get() != wrong)
      tried += " in '" + (*bad)->path() + "'";
  }
  fail("--tokens: the %lld bytes of '%s' are no tokens of this model, whose input '%s' takes 0 to %lld%s; tokenize "
       "the text for this model, or name the type with --tokens-dtype",
       static_cast<long long>(wrong->bytes()), wrong->path().c_str(), v.input, static_cast<long long>(v.size - 1), tried.c_str());
}

namespace {
/// The inputs that are cut from the tokens.
struct Cut {
  std::vector<std::pair<const zccrt_io *, zccrt_tokens>> inputs;
  Vocabulary vocabulary;
  int64_t length = -1; ///< tokens of a sample
  bool shifts() const {
    return std::any_of(inputs.begin(), inputs.end(), [](auto &c) { return c.second == ZCCRT_TOKENS_NEXT; });
  }
};
} // namespace

static Cut cutInputs(const zccrt_program &p, const Options &o, const std::function<bool(const zccrt_io &)> &isGiven) {
  Cut cut;
  for (int i = 0; i < p.ninputs; ++i) {
    const zccrt_io &in = p.inputs[i];
    zccrt_tokens role = roleOf(in, o.tokenLabels);
    if (isGiven(in) || role == ZCCRT_TOKENS_NONE)
      continue;
    // Masks and positions are integers of the same shape; what they hold is not in a token file.
    if (strstr(in.name, "mask") || strstr(in.name, "position") || strstr(in.name, "type"))
      fail("input '%s' is not cut from --tokens; give it with --data=%s=FILE.npy", in.name, in.name);
    int64_t inputLength = in.t.dims[in.t.ndim - 1];
    if (cut.length >= 0 && cut.length != inputLength)
      fail("--tokens: input '%s' is %lld tokens long, input '%s' %lld", cut.inputs[0].first->name,
           static_cast<long long>(cut.length), in.name, static_cast<long long>(inputLength));
    cut.length = inputLength;
    if (in.lo < in.hi && in.hi < cut.vocabulary.size)
      cut.vocabulary = {in.hi, in.name};
    cut.inputs.push_back({&in, role});
  }
  if (cut.inputs.empty())
    fail("--tokens: the model has no integer input of shape (batch, length) left to fill");
  return cut;
}

static Files openTokens(const std::vector<std::string> &paths) {
  Files files;
  for (const std::string &path : paths) {
    files.push_back(std::make_shared<File>(path));
    if (!files.back()->bytes())
      fail("--tokens: '%s' is empty", path.c_str());
  }
  return files;
}

/// The samples of all files, as an input takes them.
static Array cutSamples(const Files &files, zccrt_elem elem, const Cut &cut, zccrt_tokens role) {
  std::vector<Array> parts;
  for (const std::shared_ptr<File> &file : files) {
    Array a;
    a.name = a.file = file->path();
    a.elem = elem;
    const int64_t tokens = std::max<int64_t>(0, file->bytes() / elemBytes(elem) - cut.shifts());
    a.dims = {cut.length > 0 ? tokens / cut.length : 0, cut.length};
    a.source = file;
    a.offset = role == ZCCRT_TOKENS_NEXT ? elemBytes(elem) : 0;
    parts.push_back(std::move(a));
  }
  return joinArrays(parts);
}

void DataSet::bindTokens(const std::vector<std::string> &paths, const Options &o, const zccrt_program &p) {
  const Files files = openTokens(paths);
  const Cut cut = cutInputs(p, o, [&](const zccrt_io &in) {
    return std::any_of(bindings.begin(), bindings.end(), [&](auto &b) { return b.input == &in; });
  });
  const zccrt_elem elem = tokenElem(files, o.tokenType, cut.vocabulary);
  for (const std::shared_ptr<File> &f : files.size() > 1 ? files : Files())
    if (const zccrt_elem own = tokenElem({f}, o.tokenType, cut.vocabulary); own != elem)
      fail("--tokens: '%s' looks like %s tokens, and with '%s' they are read as %s; name the type of all with --tokens-dtype",
           f->path().c_str(), elemName(own), files[f == files[0]]->path().c_str(), elemName(elem));
  int64_t tokens = 0;
  for (const std::shared_ptr<File> &file : files) {
    if (file->bytes() % elemBytes(elem))
      fail("--tokens: '%s' has %lld bytes, which is no whole number of %s tokens; say what they are with "
           "--tokens-dtype=uint16|uint32|uint8",
           file->path().c_str(), static_cast<long long>(file->bytes()), elemName(elem));
    tokens += file->bytes() / elemBytes(elem);
    if (files.size() > 1 && file->bytes() / elemBytes(elem) < cut.length + cut.shifts())
      note(format("'%s' is left out: it has %lld tokens, a sample takes %lld", file->path().c_str(),
                  static_cast<long long>(file->bytes() / elemBytes(elem)), static_cast<long long>(cut.length + cut.shifts())));
  }
  const std::string what = files.size() == 1 ? "'" + paths[0] + "'" : format("%zu files of tokens", files.size());
  for (auto [input, role] : cut.inputs) {
    if (elemBytes(input->t.elem) < elemBytes(elem) || input->t.elem == ZCCRT_I16)
      fail("%s tokens do not fit input '%s', which is %s", elemName(elem), input->name, elemName(input->t.elem));
    Binding b{input, cutSamples(files, elem, cut, role), input->t.ndim == 2 ? input->t.dims[0] : 1, 0, cut.length, cut.length};
    b.samples = b.array.dims[0];
    b.batches = b.rows > 0 ? b.samples / b.rows : 0;
    b.advice = format("; %s %s read as %s tokens, --tokens-dtype=uint16|uint32|uint8 says otherwise", what.c_str(),
                      files.size() == 1 ? "is" : "are", elemName(elem));
    if (input == cut.inputs[0].first)
      note(format("%s: %lld %s tokens, %lld samples of %lld", what.c_str(), static_cast<long long>(tokens), elemName(elem),
                  static_cast<long long>(b.samples), static_cast<long long>(cut.length)));
    if (!b.samples || (!b.batches && rest == Rest::LeaveOut))
      fail("--tokens: '%s' has %lld tokens, too few for one batch of %lld samples of %lld", paths[0].c_str(),
           static_cast<long long>(tokens), static_cast<long long>(b.rows), static_cast<long long>(cut.length));
    bindings.push_back(std::move(b));
  }
}

} // namespace zccrt
