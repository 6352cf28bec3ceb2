// Builds the IR of one function and folds as it goes: an operator whose operands are all known is evaluated at once, so shape
// chains, masks and tables never reach the program. Operators' decompositions are written against it.
#pragma once

#include "ir/Builder.h"
#include "ir/Tensor.h"
#include "llvm/ADT/DenseMap.h"

namespace zcc {

/// Thrown while one node is imported and caught by the import loop; it never leaves the frontend.
struct NodeError {
  enum Kind {
    Unsupported,
    NotConstant, ///< unsupported because it is computed at run time
    Invalid,
    Failed ///< reported already, deeper inside
  } kind;
  std::string what;
};
/// zcc cannot do this: collected, with all others, in one report.
[[noreturn]] void unsupported(const llvm::Twine &what);
/// zcc would have to know while compiling what is computed at run time.
[[noreturn]] void notConstant(const llvm::Twine &what);
/// The model is wrong.
[[noreturn]] void invalid(const llvm::Twine &what);

/// A tensor whose elements are known while compiling; read from its file when first looked at.
struct Known {
  Known() = default;
  Known(const Known &) = delete;
  ~Known();
  std::function<Tensor()> load;
  GlobalValue *global = nullptr; ///< the constant of the module that holds the same, if there is one
  const Tensor &tensor();
  static int64_t loaded; ///< elements of all that are

private:
  std::optional<Tensor> tensor_;
};

/// A value during import: known, or computed by the program, or a list of such (an ONNX sequence).
struct Val {
  Type type;
  Value *value = nullptr;
  std::shared_ptr<Known> known;
  /// The elements of a frozen parameter: usable where an operator needs a constant, but never
  /// folded away.
  std::shared_ptr<Known> peek;
  std::shared_ptr<std::vector<Val>> list;

  explicit operator bool() const { return value || known || list; }
  Elem elem() const { return type.elem; }
  bool isFloat() const { return zcc::isFloat(type.elem); }
  int64_t rank() const { return int64_t(type.ndim()); }
  llvm::ArrayRef<int64_t> dims() const { return type.dims; }
  /// The extent of axis `i`, counted from the end if negative; throws if there is none.
  int64_t dim(int64_t i) const;
  int64_t count() const { return type.count(); }
};
using Vals = llvm::SmallVector<Val, 4>;

class Emitter {
public:
  Emitter(Module &m, Function &f) : module(m), fn(f) {}
  Module &module;
  Function &fn; ///< the entry; bodies are made beside it
  Loc loc;

  /// Where nodes are put: the innermost body that is being made, or the entry.
  Function &current() { return bodies_.empty() ? fn : *bodies_.back().fn; }

  /// One operator: folded if all operands are known and the result is not too large. Throws
  /// NodeError on a type error.
  Vals emitAll(const OpDef &op, llvm::ArrayRef<Val> operands, Attrs attrs = {});
  Val emit(const OpDef &op, llvm::ArrayRef<Val> operands, Attrs attrs = {}) { return emitAll(op, operands, std::move(attrs))[0]; }
  Val operator()(const OpDef &op, const Val &a) { return emit(op, {a}); }
  Val operator()(const OpDef &op, const Val &a, const Val &b) { return emit(op, {a, b}); }

  /// The IR value: a known one becomes a `constant` node (8 elements or a splat) or a constant of
  /// the module.
  Value *materialize(const Val &v);
  static Val of(Value *v);

  // ---- known values
  static Val known(Tensor t);
  static Val number(double v, Elem e);
  static Val full(double v, const Type &t);
  static Val integers(llvm::ArrayRef<int64_t> v, llvm::ArrayRef<int64_t> dims = {-1}, Elem e = Elem::I64);
  static Val floats(llvm::ArrayRef<double> v, const Type &t);
  /// Elements that may still become known: a file of a few nodes could ask for tables without end.
  static int64_t roomForKnown();
  Val like(double v, const Val &x) { return number(v, x.elem()); }
  /// The elements, if they are known now.
  static const Tensor *tensorOf(const Val &v);
  /// Elements of a tensor that must be known ("the axes", for the message).
  static std::vector<int64_t> asInts(const Val &v, const char *what);
  static std::vector<double> asFloats(const Val &v, const char *what);
  static int64_t asInt(const Val &v, const char *what);
  static double asFloat(const Val &v, const char *what);

  // ---- shapes; each returns its operand where nothing would change
  Val cast(const Val &v, Elem e);
  Val reshape(const Val &v, llvm::ArrayRef<int64_t> dims);
  Val squeeze(const Val &v, llvm::ArrayRef<int64_t> axes);
  Val unsqueeze(const Val &v, llvm::ArrayRef<int64_t> axes); ///< axes of the result
  Val transpose(const Val &v, llvm::ArrayRef<int64_t> perm);
  Val swapAxes(const Val &v, int64_t a, int64_t b);
  Val expand(const Val &v, llvm::ArrayRef<int64_t> dims); ///< to exactly these, by numpy's rules
  Val slice(const Val &v, int64_t axis, int64_t start, int64_t end, int64_t step = 1);
  Val concat(llvm::ArrayRef<Val> parts, int64_t axis); ///< from the end if negative
  Val pad(const Val &v, llvm::ArrayRef<int64_t> lo, llvm::ArrayRef<int64_t> hi, double value = 0,
          llvm::StringRef mode = "constant");
  Val iota(llvm::ArrayRef<int64_t> dims, int64_t axis, Elem e = Elem::I64);
  Val numbers(llvm::ArrayRef<int64_t> dims); ///< each element's among all; not folded, so that kernels count
  Val gather(const Val &x, const Val &index, int64_t axis);

  // ---- arithmetic
  Val add(const Val &a, const Val &b) { return emit(ops::add, {a, b}); }
  Val sub(const Val &a, const Val &b) { return emit(ops::sub, {a, b}); }
  Val mul(const Val &a, const Val &b) { return emit(ops::mul, {a, b}); }
  Val div(const Val &a, const Val &b) { return emit(ops::div, {a, b}); }
  // With numbers that a 16-bit type would round they go by f32, as PyTorch does.
  Val add(const Val &a, double b) { return b == 0 ? a : byNumber(ops::add, a, b); }
  Val mul(const Val &a, double b) { return b == 1 ? a : byNumber(ops::mul, a, b); }
  Val select(const Val &c, const Val &a, const Val &b) { return emit(ops::select, {c, a, b}); }
  Val matmul(const Val &a, const Val &b) { return emit(ops::matmul, {a, b}); }
  Val softmax(const Val &v, int64_t axis) { return emit(ops::softmax, {v}, {{"axis", axis}}); }
  enum class Direction { Forward, Backward };
  /// A scan of a finished body. `trips` counts where nothing is scanned.
  Vals scan(const Function &body, llvm::ArrayRef<Val> carried, llvm::ArrayRef<Val> scanned, llvm::ArrayRef<Value *> captured,
            int64_t trips, Direction direction);
  enum class Keep { Axes, Nothing };
  /// reduce_* over axes; with no axes, the operand.
  Val reduce(const OpDef &op, const Val &v, llvm::ArrayRef<int64_t> axes, Keep keep);
  Val sum(const Val &v, llvm::ArrayRef<int64_t> axes, Keep keep = Keep::Axes) { return reduce(ops::reduce_sum, v, axes, keep); }
  Val mean(const Val &v, llvm::ArrayRef<int64_t> axes, Keep keep = Keep::Axes);

  /// What an argument of a body stands for outside: the captured value, or the tensor whose slices it is; or nullptr.
  Value *origin(Value *arg) const { return origins_.lookup(arg); }
  /// Whether nodes that are made now run whatever the data are.
  bool runsAlways() const {
    return llvm::none_of(bodies_, [](const Body &b) { return b.isSometimes; });
  }

private:
  friend class BodyScope;
  using Materialized = llvm::DenseMap<Known *, Value *>;
  /// A body that is being made.
  struct Body {
    Function *fn = nullptr;
    Materialized materialized;
    std::vector<Value *> captured; ///< values of outside; their arguments are the last ones
    llvm::DenseMap<Value *, Value *> args;
    bool isSometimes = false;
  };
  Val byNumber(const OpDef &op, const Val &a, double b);
  std::optional<Vals> fold(const OpDef &op, llvm::ArrayRef<Val> operands, const Attrs &attrs);
  Value *inside(Body &body, Value *v);
  std::vector<Body> bodies_;
  llvm::DenseMap<Value *, Value *> origins_;
  Materialized materialized_;
  std::vector<std::shared_ptr<Known>> alive_; ///< keeps the keys of materialized_ valid
};

/// A body of scan or cond while it is made: nodes are put into it, and values of outside that they read become its
/// arguments. It is erased unless it is finished.
class BodyScope {
public:
  enum class Runs { Always, Sometimes };
  BodyScope(Emitter &e, llvm::StringRef name, Runs runs = Runs::Always);
  ~BodyScope();
  Val arg(llvm::StringRef name, const Type &t);
  /// A slice of a tensor along axis 0.
  Val slice(llvm::StringRef name, const Val &of);
  /// Ends the body; `captured`: the values of outside that its last arguments stand for.
  Function *finish(llvm::ArrayRef<Val> results, std::vector<Value *> &captured);

private:
  Emitter &e_;
  Function *fn_;
  bool isOpen_ = true;
};
/// Gives a body an argument for each of these values of outside, in this order, behind its first ones.
void takeCaptured(Function &body, llvm::ArrayRef<Value *> has, llvm::ArrayRef<Value *> wanted);

/// Refuses tables of weights or coordinates that no compiler should make.
void checkTableSize(double elements);
/// An axis counted from the end if negative; throws if it is none of `rank`.
int64_t normalAxis(int64_t axis, int64_t rank);
/// Sorted, unique. Of a tensor without axes 0 and -1 are taken, and are none.
Dims normalAxes(llvm::ArrayRef<int64_t> axes, int64_t rank);
Dims allAxes(int64_t from, int64_t to);

} // namespace zcc
