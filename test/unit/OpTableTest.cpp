// Every record of the operator table is consistent with itself, with the scalar language and with the runtime.
#include "ir/Notes.h"
#include "ir/Scalar.h"
#include "runtime/zccrt.h"
#include "llvm/ADT/StringSet.h"
#include <gtest/gtest.h>
#include <set>

namespace op_table_test {

using namespace zcc;
using llvm::StringRef;

/// Every name that occurs in an expression must be one of `known`.
static void checkNames(const Scalar &s, const llvm::StringSet<> &known, const std::string &where) {
  EXPECT_TRUE(s.kind != Scalar::Name || known.contains(s.text)) << where << ": unknown name '" << s.text << "'";
  for (auto &a : s.args)
    checkNames(*a, known, where);
}

static void checkExpression(StringRef text, const llvm::StringSet<> &known, const std::string &where) {
  auto s = parseScalar(text);
  if (!s)
    ADD_FAILURE() << where << ": '" << text.str() << "': " << llvm::toString(s.takeError());
  else
    checkNames(**s, known, where);
}

TEST(OpTable, NamesAreUniqueAndFound) {
  llvm::StringSet<> names;
  for (const OpDef *op : allOps()) {
    EXPECT_TRUE(names.insert(op->name).second) << "two records are called '" << op->name << "'";
    EXPECT_EQ(findOp(op->name), op) << op->name;
  }
  EXPECT_EQ(findOp("no_such_operator"), nullptr);
}

TEST(OpTable, SummariesReadAlike) {
  for (const OpDef *op : allOps()) {
    StringRef s = op->summary;
    EXPECT_FALSE(s.empty()) << op->name;
    EXPECT_FALSE(s.ends_with(".")) << op->name << ": a summary has no final period";
    EXPECT_FALSE(s.contains('\n')) << op->name << ": a summary is one line";
  }
}

TEST(OpTable, OperandsAndAttributesAreWellFormed) {
  for (const OpDef *op : allOps()) {
    llvm::StringSet<> names;
    bool variadic = false;
    for (const OperandDef &o : op->operands) {
      if (!o.name)
        continue;
      EXPECT_FALSE(variadic) << op->name << ": an operand follows the variadic one";
      EXPECT_TRUE(names.insert(o.name).second) << op->name << ": two operands '" << o.name << "'";
      variadic = o.flags & OperandDef::Variadic;
    }
    names.clear();
    for (const AttrDef &a : op->attrs) {
      if (!a.name)
        continue;
      EXPECT_TRUE(names.insert(a.name).second) << op->name << ": two attributes '" << a.name << "'";
    }
    EXPECT_TRUE(op->scalar || op->eval || op->structural || op->feedsKernel) << op->name << ": cannot be interpreted";
  }
}

/// What passes ask of a record follows from what the operator is.
TEST(OpTable, ColumnsAgree) {
  for (const OpDef *op : allOps()) {
    EXPECT_TRUE(op->isPure() || op->structural) << op->name << ": what has side effects is emitted in the schedule's order";
    EXPECT_TRUE(op->isPure() || op->noGrad) << op->name << ": side effects are added behind differentiation";
    EXPECT_TRUE(!op->startable || op->collective != Collective::None || op->moves) << op->name << ": only transfers are started";
    EXPECT_TRUE(op->collective == Collective::None || (op->startable && op->sends > 0 && op->ordered)) << op->name;
    EXPECT_TRUE(!op->exact || op->isElementwise()) << op->name << ": exactness is asked of expressions";
    EXPECT_TRUE(!op->cheap || op->isElementwise()) << op->name << ": only elementwise operators are computed again";
    EXPECT_TRUE(!op->bilinear || op->linear) << op->name;
    EXPECT_EQ(op->leaf != Leaf::None, op->numOperandDefs() == 0 && !op->random && !op->structural) << op->name;
  }
}

/// Rules of rows read the attributes that they are named after.
TEST(OpTable, RowsHaveTheirAttributes) {
  auto has = [](const OpDef &op, StringRef name) {
    return llvm::any_of(op.attrs, [&](const AttrDef &a) { return a.name && name == a.name; });
  };
  const std::pair<Rows::Kind, const char *> kNeeds[] = {
      {Rows::Reduced, "axes"}, {Rows::Lookup, "axis"}, {Rows::ByTuples, "batch"}, {Rows::Permuted, "perm"},
      {Rows::Sliced, "steps"}, {Rows::Padded, "lo"},   {Rows::Others, "axis"},    {Rows::Leading, "axis"}};
  for (const OpDef *op : allOps()) {
    for (auto [rows, attr] : kNeeds)
      EXPECT_TRUE(op->rows != rows || has(*op, attr)) << op->name << " needs the attribute '" << attr << "'";
    EXPECT_TRUE(op->rows != Rows::PerSample || (op->rowOperands & 1)) << op->name << ": the first operand has the samples";
    EXPECT_TRUE(!op->isElementwise() || op->rows == Rows::Aligned) << op->name;
    EXPECT_TRUE(!op->reshapes || op->rows == Rows::InOrder) << op->name;
    EXPECT_TRUE(!op->structural || op->rows == Rows::Mixed) << op->name;
  }
}

TEST(OpTable, NotesAreWellFormed) {
  std::set<std::pair<int, std::string>> names;
  for (const NoteDef &n : allNotes()) {
    EXPECT_TRUE(names.insert({n.of, n.name}).second) << "two notes '" << n.name << "'";
    EXPECT_FALSE(StringRef(n.summary).ends_with(".")) << n.name;
    EXPECT_TRUE(*n.writer && *n.readers) << n.name << ": who writes and reads it?";
    for (const OpDef *op : allOps())
      for (const AttrDef &a : op->attrs)
        EXPECT_FALSE(n.of == NoteDef::Node && op->structural && a.name && StringRef(n.name) == a.name)
            << "'" << n.name << "' is an attribute of '" << op->name << "'";
  }
}

/// What bfloat16 operands take instead is the same function.
TEST(OpTable, RoughExpressionsAgree) {
  for (const OpDef *op : allOps())
    for (double x = -9; op->roughly && x <= 9; x += 0.25) {
      const std::pair<StringRef, double> names[] = {{"x", x}, {"dy", 0.75}};
      auto rough = llvm::cantFail(parseScalar(op->roughly));
      EXPECT_NEAR(llvm::cantFail(evalScalar(*rough, names)), llvm::cantFail(evalScalar(scalarOf(*op), names)), 1e-12)
          << op->name << " of " << x;
    }
}

TEST(OpTable, ExpressionsParse) {
  for (const OpDef *op : allOps()) {
    llvm::StringSet<> known;
    for (unsigned i = 0; i < op->numOperandDefs(); ++i)
      known.insert(op->operands[i].name);
    if (op->scalar)
      checkExpression(op->scalar, known, std::string(op->name) + ".scalar");
    if (op->roughly)
      checkExpression(op->roughly, known, std::string(op->name) + ".roughly");
    if (!op->grad)
      continue;
    known.insert("y");
    known.insert("dy");
    llvm::SmallVector<StringRef, 3> rules;
    StringRef(op->grad).split(rules, ';');
    bool none = rules.size() == 1 && rules[0].trim() == "0";
    EXPECT_TRUE(none || rules.size() == op->numOperandDefs()) << op->name << ": one rule per operand";
    for (StringRef r : rules)
      checkExpression(r.trim(), known, std::string(op->name) + ".grad");
  }
}

TEST(OpTable, KernelsExistInTheRuntime) {
  llvm::StringSet<> kernels;
  for (int i = 0; i < zccrt_cpu_kernel_count; ++i)
    EXPECT_TRUE(kernels.insert(zccrt_cpu_kernels[i].name).second) << "two kernels '" << zccrt_cpu_kernels[i].name << "'";
  for (const OpDef *op : allOps())
    EXPECT_TRUE(!op->kernel || kernels.contains(op->kernel))
        << "'" << op->name << "' names the kernel '" << op->kernel << "', which is not there";
}

} // namespace op_table_test
