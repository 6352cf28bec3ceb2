// What the text form and the verifier do with modules that no text can say, and with text that says nonsense.
#include "ir/Text.h"
#include "ir/Builder.h"
#include "ir/Verifier.h"
#include "gtest/gtest.h"
#include <random>

namespace text_test {

using namespace zcc;

namespace {

struct Relu {
  Module m;
  Function *f = m.addFunction("micro");
  Value *x = f->addArg("x", Type(Elem::F32, {4}));
  Node *n = Builder(*f, nullptr, makeLoc("relu")).node(ops::relu, {x});
};

std::string broken(const Module &m) { return llvm::toString(verify(m)); }

TEST(Verifier, V8WantsLocations) {
  Relu r;
  EXPECT_EQ(broken(r.m), "");
  r.n->loc = nullptr;
  EXPECT_EQ(broken(r.m), "[V8] 'relu' in '@micro' has no location");
}

TEST(Verifier, V1WantsDefinitionsFirst) {
  Relu r;
  Node *after = Builder(*r.f, nullptr, makeLoc("exp")).node(ops::exp, {r.n->result()});
  after->moveBefore(r.n);
  EXPECT_EQ(broken(r.m), "node 'exp': [V1] '%relu' is used before it is defined");
}

TEST(Verifier, V1WantsTheRecordsTypes) {
  Relu r;
  r.n->result()->type = Type(Elem::F32, {5});
  EXPECT_EQ(broken(r.m), "node 'relu': [V1] '%relu' is f32[4], not f32[5]");
}

TEST(Verifier, V1WantsResultsOfTheFunction) {
  Relu r;
  Function *other = r.m.addFunction("eval");
  other->results.push_back(r.n->result());
  EXPECT_EQ(broken(r.m), "[V1] '@eval' returns '%relu', which is not defined in it");
}

TEST(Printer, MakesNamesUnique) {
  Relu r;
  r.m.addGlobal(GlobalValue::State, "relu", Type(Elem::F32, {}), {});
  Node *second = Builder(*r.f, nullptr, makeLoc("b")).node(ops::exp, {r.n->result()});
  second->result()->name = "x";
  r.f->results.push_back(second->result());
  std::string text = toText(r.m);
  EXPECT_NE(text.find("%relu.1 = relu %x : f32[4]\n    %x.1 = exp %relu.1"), std::string::npos) << text;
  auto again = parse(text);
  ASSERT_TRUE(bool(again)) << llvm::toString(again.takeError());
  EXPECT_EQ(toText(**again), text);
}

TEST(Module, ClonesPrintTheSame) {
  Relu r;
  EXPECT_EQ(toText(*r.m.clone()), toText(r.m));
}

/// Text with operators of many kinds, which the test below damages.
constexpr const char *kText = R"(module @m ranks 2 properties [differentiated] {
  attrs {batch_why = "a\n", f_args = [1, 2]}
  param %w : f32[4x4] = uniform(-0.5, 0.5) {trained, onnx = "w"}
  state %g : f32[4x4]+2 = zero
  const %c : i8[2] = [1, -1]
  kernel @k(%a : f32[4x4]) -> (f32[4x4]) {
    %e = exp %a : f32[4x4]
    return %e
  }
  func @micro(%x : f32[4x4], %i : i64[2]) -> ("out" : f32[4x4]) {
    %y = matmul %x, %w : f32[4x4] loc("MatMul", op = "MatMul")
    %n, %m, %r = layer_norm %y, _, _ {axis = 1, eps = 1e-05} : f32[4x4], f32[4x1], f32[4x1]
    %s = slice %n {starts = [3, 0], ends = [-1, 4], steps = [-2, 2]} : f32[2x2]
    %t = gather %n, %i {axis = 0} : f32[2x4]
    %k = constant {dims = [2, 2], value = [0.5]} : f32[2x2]
    %o = fused @k %n {!scratch = 64} : f32[4x4]
    %p = start all_reduce %g : future<f32[4x4]>
    %q = wait %p : f32[4x4]
    assign %w, %q
    return %o
  }
}
)";

TEST(Parser, SurvivesDamage) {
  auto whole = parse(kText);
  ASSERT_TRUE(bool(whole)) << llvm::toString(whole.takeError());
  constexpr int kRounds = 2000;
  constexpr const char *kPieces[] = {
      "9223372036854775807", "-1", "0", "[", "]", "{", "}", "%x", "\"", "_", "/2", "+2", ":", "=", ",", "@host"};
  std::mt19937 random(1);
  testing::internal::CaptureStderr();
  int parsed = 0;
  for (int i = 0; i < kRounds; ++i) {
    std::string s = kText;
    size_t at = random() % s.size();
    switch (random() % 4) {
    case 0:
      s.erase(at, 1 + random() % 8);
      break;
    case 1:
      s.insert(at, kPieces[random() % std::size(kPieces)]);
      break;
    case 2:
      s[at] = char(random());
      break;
    default:
      s.insert(at, s.substr(random() % s.size(), random() % 60));
      break;
    }
    auto m = parse(s);
    if (!m) {
      llvm::consumeError(m.takeError());
      continue;
    }
    ++parsed;
    std::string text = toText(**m);
    auto again = parse(text);
    if (!again) {
      ADD_FAILURE() << llvm::toString(again.takeError()) << " in\n" << text;
      break;
    }
    EXPECT_EQ(toText(**again), text);
  }
  testing::internal::GetCapturedStderr();
  EXPECT_GT(parsed, 0);
}

} // namespace

} // namespace text_test
