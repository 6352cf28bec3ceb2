// conv, conv_grad_input, conv_grad_weight by oneDNN. The primitive chooses the layouts of its tensors; where they are not the
// program's, the call reorders through its scratch. The program's are plain, or such that it need not: blocks of channels, packed
// weights. Of single points they may be products of matrices, one an image.
#include "runtime/cpu/ConvColumns.h"
#include "runtime/cpu/Kernels.h"
#include "runtime/cpu/Packing.h"
#include "runtime/cpu/Wide.h"
#include <cstring>
#include <functional>
#include <memory>

using namespace dnnl;

namespace zccrt::cpu {

namespace {

/// A tensor of the primitive: where it lies for the program and how the primitive wants it.
struct Part {
  int arg;
  const zccrt_tensor *tensor;
  memory::desc plain, wanted;
  int64_t copyAt = -1; ///< in scratch; -1: used in place
  Primitive reorder;
  bool hasImages = true;

  /// Where the program has it for the images from `first` on.
  char *from(char *arena, int64_t first) const {
    return arena + tensor->offset + (hasImages ? first * (extent(*tensor, 1, tensor->ndim) * elemBytes(tensor->elem)) : 0);
  }
};

struct ConvPlan {
  std::vector<Part> inputs;
  Part output;
  Primitive primitive, adding;   ///< `adding`, if it is there: for all images but the first
  int64_t images = 0, batch = 0; ///< of a call of the primitive, and in all
  int64_t libraryScratch = 0, bytes = 0;
  bool isGemm = false;                  ///< as in Choice
  std::unique_ptr<BlockedGrad> blocked; ///< no primitive; nor with the next two
  std::unique_ptr<FewPixels> few;
  std::unique_ptr<ColumnProduct> columns;
  Scratch scratch;
};

/// The descriptors of one convolution.
struct Descs {
  memory::desc x, w, bias, y;
};

memory::desc plainDesc(const memory::dims &dims, memory::data_type type) {
  memory::dims strides(dims.size());
  int64_t n = 1;
  for (size_t i = dims.size(); i--;) {
    strides[i] = n;
    n *= dims[i];
  }
  return {dims, type, strides};
}

/// Of [N, C, spatial...], which lies as [N, C/block, spatial..., block].
memory::desc blockedDesc(const memory::dims &dims, memory::data_type type, int64_t block) {
  using Tag = memory::format_tag;
  if (block == 1)
    return plainDesc(dims, type);
  const Tag tag8[] = {Tag::nCw8c, Tag::nChw8c, Tag::nCdhw8c}, tag16[] = {Tag::nCw16c, Tag::nChw16c, Tag::nCdhw16c};
  return {dims, type, (block == 8 ? tag8 : tag16)[dims.size() - 3]};
}

Descs plainDescs(const ConvShape &s, memory::data_type type) {
  memory::dims x{s.batch, s.channels}, w{s.filters / s.group, s.channels / s.group}, y{s.batch, s.filters};
  if (s.group > 1)
    w.insert(w.begin(), s.group);
  for (int i = 0; i < s.spatial; ++i) {
    x.push_back(s.in[i]);
    w.push_back(s.kernel[i]);
    y.push_back(s.out[i]);
  }
  return {blockedDesc(x, type, s.xBlock), plainDesc(w, type), plainDesc({s.filters}, type), blockedDesc(y, type, s.yBlock)};
}

/// Whether to keep the plain layouts (a product of matrices behind the scenes) rather than let the primitive choose: as the call
/// says. Where it does not, as measured on Zen 4: a convolution of single points is nothing but a product, which reordering makes
/// up to 1.5 times slower, with steps up to 1.3 times; for the gradient of very few channels the blocked kernels compute 16 of
/// them, 3 times slower.
bool staysPlain(ConvKind kind, const ConvShape &s, const char *way) {
  if (*way && strcmp(way, "product"))
    return !strcmp(way, "plain");
  return hasPoints(s) || (s.group == 1 && kind == ConvKind::GradInput && s.channels <= 4);
}

memory::desc anyLayout(const memory::desc &d, bool plain) {
#if DNNL_VERSION_MAJOR >= 3
  return plain ? d : memory::desc(d.get_dims(), d.get_data_type(), memory::format_tag::any);
#else
  return plain ? d : memory::desc(d.dims(), d.data_type(), memory::format_tag::any);
#endif
}

/// A primitive of one kind and the layouts it wants.
struct Choice {
  std::function<primitive()> make; ///< generates its code
  memory::desc x, w, y, scratchpad;
  bool isGemm = false; ///< of a weights' gradient: the library takes columns of whole images
};

Choice choose(ConvKind kind, const ConvShape &s, const Descs &plain, bool bias, bool keep) {
  memory::desc x = anyLayout(plain.x, keep), w = anyLayout(plain.w, keep), y = anyLayout(plain.y, keep);
  memory::dims stride(s.stride, s.stride + s.spatial), lo(s.padLo, s.padLo + s.spatial), hi(s.padHi, s.padHi + s.spatial),
      dilation;
  for (int i = 0; i < s.spatial; ++i)
    dilation.push_back(s.dilation[i] - 1);
  auto attr = userScratchpad();
  const auto algo = algorithm::convolution_direct;
  const auto prop = prop_kind::forward_training;
#if DNNL_VERSION_MAJOR >= 3
  using Forward = convolution_forward::primitive_desc;
  Forward forward = bias ? Forward(engine(), prop, algo, x, w, plain.bias, y, stride, dilation, lo, hi, attr)
                         : Forward(engine(), prop, algo, x, w, y, stride, dilation, lo, hi, attr);
  auto backward = [&](auto *type) {
    using Pd = std::remove_pointer_t<decltype(type)>;
    if constexpr (std::is_same_v<Pd, convolution_backward_data::primitive_desc>)
      return Pd(engine(), algo, x, w, y, stride, dilation, lo, hi, forward, attr);
    else
      return Pd(engine(), algo, x, w, y, stride, dilation, lo, hi, forward, attr);
  };
#else
  using Desc = convolution_forward::desc;
  convolution_forward::primitive_desc forward(bias ? Desc(prop, algo, x, w, plain.bias, y, stride, dilation, lo, hi)
                                                   : Desc(prop, algo, x, w, y, stride, dilation, lo, hi),
                                              attr, engine());
  auto backward = [&](auto *type) {
    using Pd = std::remove_pointer_t<decltype(type)>;
    if constexpr (std::is_same_v<Pd, convolution_backward_data::primitive_desc>)
      return Pd(convolution_backward_data::desc(algo, x, w, y, stride, dilation, lo, hi), attr, engine(), forward);
    else
      return Pd(convolution_backward_weights::desc(algo, x, w, y, stride, dilation, lo, hi), attr, engine(), forward);
  };
#endif
  if (kind == ConvKind::Forward)
    return {[forward] { return convolution_forward(forward); }, forward.src_desc(), forward.weights_desc(), forward.dst_desc(),
            forward.scratchpad_desc()};
  if (kind == ConvKind::GradInput) {
    auto pd = backward((convolution_backward_data::primitive_desc *)nullptr);
    return {[pd] { return convolution_backward_data(pd); }, pd.diff_src_desc(), pd.weights_desc(), pd.diff_dst_desc(),
            pd.scratchpad_desc()};
  }
  auto pd = backward((convolution_backward_weights::primitive_desc *)nullptr);
  return {[pd] { return convolution_backward_weights(pd); },
          pd.src_desc(),
          pd.diff_weights_desc(),
          pd.diff_dst_desc(),
          pd.scratchpad_desc(),
          std::string_view(pd.impl_info_str()).find("gemm") != std::string_view::npos};
}

/// Finds a place for a tensor that the primitive wants in another layout.
void placePart(ConvPlan &p, Part &part, bool isInput, For purpose) {
  if (part.wanted == part.plain)
    return;
  part.copyAt = p.bytes;
  p.bytes += aligned(int64_t(part.wanted.get_size()));
  const memory::desc &from = isInput ? part.plain : part.wanted;
  const memory::desc &to = isInput ? part.wanted : part.plain;
  reorder::primitive_desc pd(engine(), from, engine(), to, userScratchpad());
  p.libraryScratch = std::max(p.libraryScratch, int64_t(pd.scratchpad_desc().get_size()));
  if (purpose == For::Workspace)
    return;
  part.reorder = Primitive(reorder(pd), pd.scratchpad_desc());
  part.reorder.add(DNNL_ARG_FROM, from);
  part.reorder.add(DNNL_ARG_TO, to);
}

/// Gives what is to be the library's, libraryScratch bytes, its place behind the copies.
void settleScratch(ConvPlan &p) {
  const int64_t library = p.libraryScratch;
  p.libraryScratch = p.bytes;
  p.bytes += aligned(library);
}

struct Operands {
  const zccrt_tensor *x, *w, *y, *bias = nullptr;
};

Operands operandsOf(ConvKind kind, const zccrt_call *c) {
  const zccrt_tensor *a = &operand(c, 0), *b = &operand(c, 1), *r = &result(c, 0);
  switch (kind) {
  case ConvKind::Forward:
    return {a, b, r, hasOperand(c, 2) ? &operand(c, 2) : nullptr};
  case ConvKind::GradInput:
    return {r, b, a};
  case ConvKind::GradWeight:
    break;
  }
  return {a, r, b};
}

/// Images of which the primitive gets reordered copies at once: the most, dividing all, whose copies take kCopied bytes a thread.
/// An image's results are the same among any others; a weights' gradient is a sum over all.
int64_t imagesAtOnce(ConvKind kind, const ConvShape &s, const Choice &choice, const Descs &plain, int threads) {
  constexpr int64_t kCopied = 512 << 10;
  int64_t copied = 0, images = s.batch;
  if (choice.x != plain.x)
    copied += int64_t(choice.x.get_size());
  if (choice.y != plain.y)
    copied += int64_t(choice.y.get_size());
  if (kind != ConvKind::GradWeight)
    while (images > 1 && (s.batch % images || copied / s.batch * images > kCopied * threads))
      --images;
  return images;
}

void makePrimitivePlan(ConvPlan &p, ConvKind kind, const zccrt_call *c, For purpose) {
  Operands t = operandsOf(kind, c);
  ConvShape s(c, *t.x, *t.w, *t.y);
  Descs plain = plainDescs(s, dnnlType(t.x->elem));
  const bool keep = !hasBlocks(s) && staysPlain(kind, s, attrString(c, "way", ""));
  Choice choice = choose(kind, s, plain, t.bias, keep);
  p.isGemm = choice.isGemm;
  p.batch = s.batch;
  p.images = imagesAtOnce(kind, s, choice, plain, c->threads);
  if (p.images != p.batch) {
    s.batch = p.images;
    plain = plainDescs(s, dnnlType(t.x->elem));
    choice = choose(kind, s, plain, t.bias, keep);
  }
  bool forward = kind == ConvKind::Forward, input = kind == ConvKind::GradInput;
  Part x{input ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, t.x, plain.x, choice.x, -1, {}};
  const memory::desc given = *packedLayout(c) ? packedDesc(*t.w, packedLayout(c)) : plain.w;
  Part w{kind == ConvKind::GradWeight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, t.w, given, choice.w, -1, {}, false};
  Part y{forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, t.y, plain.y, choice.y, -1, {}};
  if (forward)
    p.inputs = {x, w}, p.output = y;
  else if (input)
    p.inputs = {y, w}, p.output = x;
  else
    p.inputs = {x, y}, p.output = w;
  if (t.bias)
    p.inputs.push_back({DNNL_ARG_BIAS, t.bias, plain.bias, plain.bias, -1, {}, false});
  p.libraryScratch = int64_t(choice.scratchpad.get_size());
  for (Part &part : p.inputs)
    placePart(p, part, /*isInput=*/true, purpose);
  placePart(p, p.output, /*isInput=*/false, purpose);
  settleScratch(p);
  if (purpose == For::Workspace)
    return;
  p.primitive = Primitive(choice.make(), choice.scratchpad);
  for (Part &part : p.inputs)
    p.primitive.add(part.arg, part.wanted);
  p.primitive.add(p.output.arg, p.output.wanted);
}

/// Whether an image is a product: as the call says. Where it does not, as measured on Zen 4, where plain layouts take a copy of
/// the image in f32: 64 to 256 channels of 56x56 in 1.1 ms instead of 1.9, the weights' gradient in 0.9 instead of 1.5.
bool goesByProduct(ConvKind kind, const zccrt_call *c, const ConvShape &s, const Operands &t) {
  constexpr int64_t kManyPixels = 512; // fewer columns of the transposed filters' product are slower
  const char *way = attrString(c, "way", "");
  if (!isProduct(s) || hasBlocks(s) || !isHalf(t.x->elem) || t.bias || *packedLayout(c) || (*way && strcmp(way, "product")))
    return false;
  return *way || kind != ConvKind::GradInput || extent(*t.x, 2, t.x->ndim) >= kManyPixels;
}

/// y = w x, dx = w^T dy, dw = the sum of dy x^T in f32: x as [C, pixels], y as [F, pixels].
void makeProductPlan(ConvPlan &p, ConvKind kind, const ConvShape &s, const Operands &t, For purpose) {
  const int64_t pixels = extent(*t.x, 2, t.x->ndim);
  const auto type = dnnlType(t.x->elem);
  const memory::desc x = describeMatrix(s.channels, pixels, type, pixels), y = describeMatrix(s.filters, pixels, type, pixels);
  const memory::desc w = describeMatrix(s.filters, s.channels, type, s.channels);
  const memory::desc sum = describeMatrix(s.filters, s.channels, memory::data_type::f32, s.channels);
  const bool sums = kind == ConvKind::GradWeight && s.batch > 1;
  p.batch = s.batch;
  p.images = 1;
  switch (kind) {
  case ConvKind::Forward:
    p.inputs = {{DNNL_ARG_SRC, t.w, w, w, -1, {}, false}, {DNNL_ARG_WEIGHTS, t.x, x, x, -1, {}}};
    p.output = {DNNL_ARG_DST, t.y, y, y, -1, {}};
    break;
  case ConvKind::GradInput: {
    const memory::desc across = describeMatrix(s.channels, s.filters, type, s.channels, /*isTransposed=*/true);
    p.inputs = {{DNNL_ARG_SRC, t.w, across, across, -1, {}, false}, {DNNL_ARG_WEIGHTS, t.y, y, y, -1, {}}};
    p.output = {DNNL_ARG_DST, t.x, x, x, -1, {}};
    break;
  }
  case ConvKind::GradWeight: {
    const memory::desc across = describeMatrix(pixels, s.channels, type, pixels, /*isTransposed=*/true);
    p.inputs = {{DNNL_ARG_SRC, t.y, y, y, -1, {}}, {DNNL_ARG_WEIGHTS, t.x, across, across, -1, {}}};
    p.output = {DNNL_ARG_DST, t.w, w, sums ? sum : w, -1, {}, false};
    break;
  }
  }
  placePart(p, p.output, /*isInput=*/false, purpose);
  auto add = [&](Primitive &to, bool adds) {
    auto pd = makeProduct(p.inputs[0].wanted, p.inputs[1].wanted, p.output.wanted, adds);
    p.libraryScratch = std::max(p.libraryScratch, int64_t(pd.scratchpad_desc().get_size()));
    if (purpose == For::Run)
      to = productPrimitive(pd);
  };
  add(p.primitive, false);
  if (sums)
    add(p.adding, true);
  settleScratch(p);
}

/// Whether to go by columns: as the call says. Where it does not, or says plain, where the library would take columns of whole
/// images and copies of the weights in more memory than what it reads and writes.
bool goesByColumns(ConvKind kind, const zccrt_call *c, const ConvShape &s) {
  const char *way = attrString(c, "way", "");
  if (kind != ConvKind::GradWeight || s.group != 1 || operand(c, 0).elem != ZCCRT_F32 || isDepthwise(s) || hasBlocks(s))
    return false;
  if (*way && strcmp(way, "plain"))
    return !strcmp(way, "columns");
  ConvPlan p;
  makePrimitivePlan(p, kind, c, For::Workspace);
  const int64_t elements = count(operand(c, 0)) + count(operand(c, 1)) + count(result(c, 0));
  return p.isGemm && p.bytes > elements * elemBytes(ZCCRT_F32) && p.bytes > BlockedGrad::scratchBytes(s, c->threads);
}

/// The same for 16-bit floats, where all images together have few pixels: as the call says. Where it does not, as measured on
/// Zen 4: for 512 filters of 3x3x512 over 32 images of 2x2 the blocked kernels take 7.0 ms, this 1.8; over 4 of 14x14 as long.
/// The more where channels are in blocks, which the library's other kernels would reorder: for 256 filters of 3x3x256 over 32
/// images of 4x4 2.5 ms and 1.8.
bool multipliesColumns(const zccrt_call *c, const ConvShape &s, const Operands &t) {
  const int64_t most = hasBlocks(s) ? 2048 : 1024, few = hasBlocks(s) ? 512 : 256;
  const char *way = attrString(c, "way", "");
  const int64_t pixels = s.batch * volume(s.out, s.spatial);
  if (s.group != 1 || !isHalf(t.x->elem) || pixels > most || !fitsTable(s))
    return false;
  return *way ? !strcmp(way, "columns") : pixels <= few || hasSteps(s);
}

/// Whether a convolution in f32 goes by columns of all images' pixels: where these are few and the weights many, whatever way is
/// the fastest, since blocks of the weights take as much memory as these. As measured on Zen 4, 512 filters of 3x3x512, forward
/// and both gradients, cold: 32 images of 2x2 10.9 ms instead of 11.8 by blocks; 4 of 7x7 16.1 instead of 16.7.
bool hasFewPixels(const zccrt_call *c, const ConvShape &s, const Operands &t) {
  constexpr int64_t kFewPixels = 256, kManyFilters = 1 << 17; // of all channels
  constexpr int64_t kMostPixels = 1024;
  const int64_t pixels = s.batch * volume(s.out, s.spatial);
  if (hasBlocks(s) || s.group != 1 || t.x->elem != ZCCRT_F32 || isProduct(s) || pixels > kMostPixels || !fitsTable(s))
    return false;
  return !strcmp(attrString(c, "way", ""), "columns") || (pixels <= kFewPixels && s.filters * s.channels >= kManyFilters);
}

void makePlan(ConvPlan &p, ConvKind kind, const zccrt_call *c, For purpose) {
  const Operands t = operandsOf(kind, c);
  const ConvShape s(c, *t.x, *t.w, *t.y);
  useThreads(c);
  if (goesByProduct(kind, c, s, t))
    return makeProductPlan(p, kind, s, t, purpose);
  if (kind == ConvKind::GradWeight && multipliesColumns(c, s, t)) {
    p.columns = std::make_unique<ColumnProduct>(s, t.x->elem, c->threads);
    p.bytes = p.columns->scratchBytes();
    if (purpose == For::Run)
      p.columns->prepare();
    return;
  }
  const bool isFew = hasFewPixels(c, s, t);
  if (isFew && kind != ConvKind::GradWeight) {
    p.bytes = FewPixels::scratchBytes(kind, s, c->threads);
    if (purpose == For::Run) {
      keepFreedMemory();
      p.few = std::make_unique<FewPixels>(s);
    }
    return;
  }
  if (!isFew && !goesByColumns(kind, c, s))
    return makePrimitivePlan(p, kind, c, purpose);
  p.bytes = BlockedGrad::scratchBytes(s, c->threads);
  if (purpose == For::Run) {
    keepFreedMemory();
    p.blocked = std::make_unique<BlockedGrad>(s);
  }
}

void move(Part &part, char *from, char *to, char *library) {
  part.reorder.bind(0, from);
  part.reorder.bind(1, to);
  part.reorder.run(library);
}

void run(ConvPlan &p, ConvKind kind, char *arena, const zccrt_call *c) {
  char *scratch = p.bytes ? p.scratch.get(arena, c) : nullptr;
  if (p.blocked)
    return p.blocked->run(arena, c, scratch);
  if (p.columns)
    return p.columns->run(arena, c, scratch);
  if (p.few)
    return p.few->run(kind, arena, c, scratch);
  char *library = scratch + p.libraryScratch;
  for (int64_t first = 0; first < p.batch; first += p.images) {
    Primitive &primitive = first && p.adding ? p.adding : p.primitive;
    int place = 0;
    for (Part &part : p.inputs) {
      char *data = part.from(arena, first);
      if (part.copyAt >= 0) {
        char *copy = scratch + part.copyAt;
        if (part.hasImages || !first)
          move(part, data, copy, library);
        data = copy;
      }
      primitive.bind(place++, data);
    }
    char *out = p.output.from(arena, first);
    primitive.bind(place, p.output.copyAt >= 0 ? scratch + p.output.copyAt : out);
    primitive.run(library);
    if (p.output.copyAt >= 0 && (p.output.hasImages || first + p.images == p.batch))
      move(p.output, scratch + p.output.copyAt, out, library);
  }
}

void runLoops(ConvKind kind, char *arena, const zccrt_call *c) {
  Operands t = operandsOf(kind, c);
  convLoops(kind, ConvShape(c, *t.x, *t.w, *t.y), at<double>(arena, *t.x), at<double>(arena, *t.w),
            t.bias ? at<double>(arena, *t.bias) : nullptr, at<double>(arena, *t.y), c->threads);
}

bool viaLoops(const zccrt_call *c) { return operand(c, 0).elem == ZCCRT_F64; }

int64_t workspace(ConvKind kind, const zccrt_call *c) {
  if (viaLoops(c))
    return 0;
  return orFail(c, [&] {
    ConvPlan p;
    makePlan(p, kind, c, For::Workspace);
    return p.bytes;
  });
}

void prepareAndRun(ConvKind kind, char *arena, const zccrt_call *c) {
  useThreads(c);
  if (viaLoops(c)) {
    if (arena)
      runLoops(kind, arena, c);
    return;
  }
  orFail(c, [&] {
    if (!*c->cache) {
      auto p = std::make_unique<ConvPlan>();
      makePlan(*p, kind, c, For::Run);
      p->scratch.prepare(c, p->bytes);
      *c->cache = p.release();
    }
    if (arena)
      run(*static_cast<ConvPlan *>(*c->cache), kind, arena, c);
  });
}

ConvKind kindOf(const char *kernel) {
  return !strcmp(kernel, "conv")              ? ConvKind::Forward
         : !strcmp(kernel, "conv_grad_input") ? ConvKind::GradInput
                                              : ConvKind::GradWeight;
}

} // namespace

static bool isWide(const zccrt_call *c) { return needsWide(c, computesNatively(result(c, 0).elem)); }

std::optional<Packing> convPacking(const char *kernel, const zccrt_call *c) {
  const ConvKind kind = kindOf(kernel);
  if (kind == ConvKind::GradWeight || viaLoops(c) || isWide(c) || attrInt(c, "group", 1) != 1)
    return std::nullopt;
  return orFail(c, [&]() -> std::optional<Packing> {
    ConvPlan p;
    makePlan(p, kind, c, For::Workspace);
    for (const Part &part : p.inputs)
      if (part.arg == DNNL_ARG_WEIGHTS && part.copyAt >= 0 && !part.hasImages)
        if (std::string layout = layoutName(part.wanted); !layout.empty())
          return Packing{layout};
    return std::nullopt;
  });
}

int64_t convBlock(const zccrt_call *c) {
  const Operands t = operandsOf(ConvKind::Forward, c);
  const ConvShape s(c, *t.x, *t.w, *t.y);
  if (viaLoops(c) || isWide(c) || s.group != 1 || hasBlocks(s) || !isHalf(t.x->elem))
    return 1;
  return orFail(c, [&] {
    const auto type = dnnlType(t.x->elem);
    std::vector<Choice> wanted;
    for (const ConvKind kind : {ConvKind::Forward, ConvKind::GradInput, ConvKind::GradWeight})
      wanted.push_back(choose(kind, s, plainDescs(s, type), t.bias, /*keep=*/false));
    for (const int64_t block : {16, 8}) {
      ConvShape with = s;
      with.xBlock = s.channels % block ? 1 : block;
      with.yBlock = block;
      const Descs d = plainDescs(with, type);
      auto fits = [&](const Choice &c) { return c.y == d.y && (with.xBlock == 1 || c.x == d.x); };
      if (s.filters % block == 0 && std::all_of(wanted.begin(), wanted.end(), fits))
        return block;
    }
    return int64_t(1);
  });
}

int64_t convWorkspace(const zccrt_call *c) {
  if (isWide(c))
    return wideWorkspace(c, convWorkspace);
  return workspace(ConvKind::Forward, c);
}
void convRun(char *arena, const zccrt_call *c) {
  if (isWide(c))
    return wideRun(arena, c, convRun, convWorkspace);
  prepareAndRun(ConvKind::Forward, arena, c);
}

int64_t convGradInputWorkspace(const zccrt_call *c) {
  if (isWide(c))
    return wideWorkspace(c, convGradInputWorkspace);
  return workspace(ConvKind::GradInput, c);
}
void convGradInputRun(char *arena, const zccrt_call *c) {
  if (isWide(c))
    return wideRun(arena, c, convGradInputRun, convGradInputWorkspace);
  prepareAndRun(ConvKind::GradInput, arena, c);
}

static ConvShape gradWeightShape(const zccrt_call *c) { return {c, operand(c, 0), result(c, 0), operand(c, 1)}; }
static bool isDepthwiseGrad(const zccrt_call *c) { return !viaLoops(c) && isDepthwise(gradWeightShape(c)); }

int64_t convGradWeightWorkspace(const zccrt_call *c) {
  if (isDepthwiseGrad(c))
    return depthwiseWorkspace(gradWeightShape(c), c->threads);
  if (isWide(c))
    return wideWorkspace(c, convGradWeightWorkspace);
  return workspace(ConvKind::GradWeight, c);
}
void convGradWeightRun(char *arena, const zccrt_call *c) {
  if (isDepthwiseGrad(c)) {
    if (arena)
      depthwiseGradWeight(arena, c, gradWeightShape(c));
    return;
  }
  if (isWide(c))
    return wideRun(arena, c, convGradWeightRun, convGradWeightWorkspace);
  prepareAndRun(ConvKind::GradWeight, arena, c);
}

} // namespace zccrt::cpu
