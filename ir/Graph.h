// The module: globals (params, states, constants), kernels and functions of straight-line nodes in SSA form.
#pragma once

#include "ir/Diag.h"
#include "ir/Pool.h"
#include "ir/Type.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Allocator.h"
#include "llvm/Support/Error.h"
#include <atomic>
#include <list>
#include <memory>
#include <variant>

namespace zcc {

struct OpDef;
class Node;
class Function;
class Module;

// ---- attributes

using Attr = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;

/// Attributes by name, in name order, so that text and hashes do not depend on insertion. Side by side: there are few, and passes
/// look them up and copy them more often than anything else.
class Attrs {
  using Named = std::pair<std::string, Attr>;
  llvm::SmallVector<Named, 0> all_;

public:
  Attrs() = default;
  Attrs(std::initializer_list<Named> l) {
    for (const Named &a : l)
      set(a.first, a.second);
  }
  bool has(llvm::StringRef n) const { return find(n); }
  void set(llvm::StringRef n, Attr a);
  void erase(llvm::StringRef n) {
    llvm::erase_if(all_, [&](const Named &a) { return a.first == n; });
  }
  const Attr *find(llvm::StringRef n) const {
    for (const Named &a : all_)
      if (a.first == n)
        return &a.second;
    return nullptr;
  }
  int64_t i(llvm::StringRef n, int64_t otherwise = 0) const;
  double f(llvm::StringRef n, double otherwise = 0) const; ///< integers count as numbers too
  std::string s(llvm::StringRef n, llvm::StringRef otherwise = "") const;
  std::vector<int64_t> ints(llvm::StringRef n) const;  ///< empty if absent
  std::vector<double> floats(llvm::StringRef n) const; ///< empty if absent
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  bool empty() const { return all_.empty(); }
  bool operator==(const Attrs &o) const { return all_ == o.all_; }
};

// ---- values

/// A result of a node, an argument of a function, or a global. Uses are kept by Node.
class Value : public Pooled<Value> {
public:
  enum Kind { Result, Argument, Global };
  struct Use {
    Node *node;
    unsigned index;
  };
  using Uses = std::list<Use, PoolAllocator<Use>>;

  Value(Kind k, std::string n, Type t) : kind(k), name(std::move(n)), type(std::move(t)) {}
  virtual ~Value() = default;

  const Kind kind;
  std::string name; ///< without '%'
  Type type;
  Node *def = nullptr; ///< for a Result
  unsigned index = 0;  ///< number of the result or argument
  Uses uses;           ///< by nodes of all functions, oldest first; function results are not uses

  bool hasUses() const { return !uses.empty(); }
  bool isGlobal() const { return kind == Global; }
  /// Whether the function of the node that makes it returns it.
  bool isReturned() const;
  /// Makes every node that uses this value use `v` instead, and every function result too.
  void replaceAllUsesWith(Value *v);
};

/// How a global gets its first value.
struct Init {
  enum Kind { Zero, Splat, File, Uniform, Normal, Copy, Box } kind = Zero;
  double a = 0, b = 0; ///< Splat: a. Uniform: [a, b). Normal: mean a, standard deviation b
  std::string file;    ///< File: path relative to the model's folder; empty: the module's constant data
  int64_t offset = 0, bytes = 0;
  /// File: how the bytes encode the tensor: "raw" (little-endian, row-major), or "transposed" (raw with the
  /// last two axes swapped).
  std::string encoding = "raw";
  std::optional<Elem> elem; ///< File: the bytes' element, if another than the global's: they are converted
  /// Copy: the global it starts equal to. Uniform, Normal: the global by whose name numbers are drawn, if not its own.
  /// Box: the tensor that it is a box of.
  std::string from;
  std::vector<int64_t> start; ///< Box: where it begins in the tensor; its type says how far it reaches
};

/// `param`: trained or frozen weights. `state`: lives over steps, not a weight (moments, running statistics).
/// `const`: never written. `tensor`: has no storage, no node reads it; params or states are its boxes. What belongs to the whole
/// is its: where its values come from, its name in the model, whether it is exported.
class GlobalValue : public Value {
public:
  enum Role { Param, State, Const, Tensor };
  GlobalValue(Role r, std::string n, Type t, Init i) : Value(Global, std::move(n), std::move(t)), role(r), init(std::move(i)) {}
  Role role;
  Init init;
  bool trained = false;  ///< Param only; printed as the attribute `trained`
  bool exported = false; ///< written by --export under `onnxName`: weights, running statistics
  Attrs attrs;           ///< what passes and the plan note about it (weight_decay, lr_scale, of...)
  std::string onnxName;  ///< the initializer's name in the model; empty for what passes add
  Loc loc;

  bool isBox() const { return init.kind == Init::Box; }
  bool hasStorage() const { return role != Tensor; }
};

/// Calls f for each row of a box, along the last axis: from which element of the whole on, and how many.
void forRows(const GlobalValue &box, const Type &whole, llvm::function_ref<void(int64_t at, int64_t count)> f);

// ---- nodes

/// What part of a step a node belongs to. The importer's are of the forward; `differentiate` and `append-optimizer` say so of
/// what they add, and what is built in front of a node is of that node's (ir/Builder.h). Means nothing in kernels and bodies,
/// which are of their callers'.
enum class Phase { Forward, Backward, Update };

class Node : public Pooled<Node> {
public:
  using List = std::list<std::unique_ptr<Node>, PoolAllocator<std::unique_ptr<Node>>>;
  const OpDef *op;
  Attrs attrs;
  Phase phase = Phase::Forward;
  unsigned number = ~0u; ///< for the pass that is at work, which gives each node of a function one; means nothing to others
  Loc loc;
  llvm::SmallVector<std::unique_ptr<Value>, 1> results;

  Node(const OpDef *o, Loc l) : op(o), loc(std::move(l)) {}
  ~Node();
  Node(const Node &) = delete;

  /// For rules that are about one operator. What several ask is a column of the record (ir/Op.h).
  bool is(const OpDef &o) const { return op == &o; }
  Function *parent() const { return parent_; }
  unsigned numOperands() const { return operands_.size(); }
  /// An optional operand that is left out is nullptr.
  Value *operand(unsigned i) const { return i < operands_.size() ? operands_[i] : nullptr; }
  llvm::ArrayRef<Value *> operands() const { return operands_; }
  void setOperand(unsigned i, Value *v);
  void addOperand(Value *v);
  void dropOperands();
  Value *result(unsigned i = 0) const { return results[i].get(); }
  bool hasUses() const;

  /// Next and previous node of the function, or nullptr.
  Node *next() const;
  Node *prev() const;
  /// Moves this node before `other`, within its function.
  void moveBefore(Node *other);
  /// Unlinks and deletes; no result may have uses.
  void erase();
  /// What follows moves up by one. The result may have no uses.
  void eraseOperand(unsigned i);
  void eraseResult(unsigned i);

private:
  void dropUse(unsigned i);

  friend class Function;
  llvm::SmallVector<Value *, 2> operands_;
  llvm::SmallVector<Value::Uses::iterator, 2> places_; ///< of each operand among its value's uses
  Function *parent_ = nullptr;
  List::iterator self_;
};

// ---- functions, kernels, modules

class Function {
public:
  std::string name; ///< without '@'
  Module *module = nullptr;
  std::vector<std::unique_ptr<Value>> args;
  std::vector<Value *> results;
  std::vector<std::string> resultNames; ///< the outputs' names in the model; may be shorter than results
  bool isKernel = false;                ///< `kernel @k`: the body of a fused operator
  bool isBody = false;                  ///< `body @b`: what scan and cond run (ir/Control.h)

  using List = Node::List;
  List nodes;

  ~Function();
  Value *addArg(llvm::StringRef name, Type t);
  /// What follows moves up by one. The argument may have no uses.
  void eraseArg(unsigned i);
  /// Drops a result and its name.
  void eraseResult(unsigned i);
  /// `func`: neither a kernel nor a body.
  bool isEntry() const { return !isKernel && !isBody; }
  /// Inserts a new node before `before` (at the end if null).
  Node *insert(std::unique_ptr<Node> n, Node *before = nullptr);
  Node *first() const { return nodes.empty() ? nullptr : nodes.front().get(); }
  Node *last() const { return nodes.empty() ? nullptr : nodes.back().get(); }
  /// A name that no value of this function or global has: `base`, or `base.1`, ...; registers it.
  std::string unique(llvm::StringRef base);
  /// Makes the names of all values unique and forgets those of values that are gone, so that what new values are called
  /// depends on the function's text only.
  void renameAll();
  /// Whether names have been given since renameAll().
  bool hasNewNames() const { return hasNewNames_; }
  Value *arg(llvm::StringRef name) const;

private:
  bool take(llvm::StringRef name);

  using Names = llvm::StringMap<unsigned, llvm::BumpPtrAllocator>; // never erased from one by one
  Names names_;
  bool hasNewNames_ = true;
};

/// Bytes that constant data in a file is aligned to, so that it can be mapped.
constexpr int64_t kDataAlign = 64;

/// Bytes that copies have in common: what has been copied once is not written any more, but left to them.
class SharedBytes {
public:
  SharedBytes(std::string bytes = {}) : block_(std::make_shared<Block>(std::move(bytes))) {}
  SharedBytes(const SharedBytes &o) : block_(o.block_) { block_->isCopied = true; }
  SharedBytes &operator=(SharedBytes o) {
    std::swap(block_, o.block_);
    return *this;
  }
  operator llvm::StringRef() const { return block_->bytes; }
  bool operator==(const SharedBytes &o) const { return block_ == o.block_ || block_->bytes == o.block_->bytes; }
  size_t size() const { return block_->bytes.size(); }
  bool empty() const { return block_->bytes.empty(); }
  /// To be written; what was read before may be gone.
  std::string &own() {
    if (block_->isCopied)
      block_ = std::make_shared<Block>(block_->bytes);
    return block_->bytes;
  }
  void resize(size_t size) { own().resize(size); }
  SharedBytes &operator+=(llvm::StringRef bytes) {
    own() += bytes;
    return *this;
  }

private:
  struct Block {
    explicit Block(std::string b) : bytes(std::move(b)) {}
    std::string bytes;
    std::atomic<bool> isCopied{false};
  };
  std::shared_ptr<Block> block_;
};

/// Facts that passes establish; printed in the module's head, so a dump obeys the same contracts.
enum class Property : uint32_t {
  Differentiated = 1 << 0,
  Optimized = 1 << 1,
  Partitioned = 1 << 2,
  Gathered = 1 << 3,
  Reduced = 1 << 4,
  Fused = 1 << 5,
  Scheduled = 1 << 6,
  Planned = 1 << 7,
};

class Module {
public:
  std::string name = "model";
  int ranks = 1;
  uint32_t properties = 0;
  std::vector<std::unique_ptr<GlobalValue>> globals;
  std::vector<std::unique_ptr<Function>> functions; ///< kernels too, in order of definition
  /// Bytes of constants that are in no file of the model (folded ones); Init::File with an empty path points here.
  SharedBytes constData;
  /// The file that constData is written to when the module is printed or compiled.
  std::string constPath;
  /// Module attributes: the plan, and what the emitter must know (arena bytes per space, ...).
  Attrs attrs;
  /// Folder that Init::file paths are relative to.
  std::string folder;

  bool has(Property p) const { return properties & uint32_t(p); }
  void add(Property p) { properties |= uint32_t(p); }

  GlobalValue *addGlobal(GlobalValue::Role role, llvm::StringRef name, Type t, Init init);
  GlobalValue *global(llvm::StringRef name) const;
  /// The tensor that a global is a box of; itself, if it is none.
  const GlobalValue &wholeOf(const GlobalValue &g) const;
  /// The boxes of a tensor, in their order.
  std::vector<GlobalValue *> boxesOf(const GlobalValue &tensor) const;
  Function *function(llvm::StringRef name) const;
  Function *addFunction(llvm::StringRef name);
  /// Kernels are defined before what calls them: it goes behind the last one at the head.
  Function *addKernel(std::unique_ptr<Function> k);
  /// A function is found by its name: nothing else may change that.
  void rename(Function &f, llvm::StringRef name);
  /// A new body, called `base`, or `base.1`, ...
  Function *addBody(llvm::StringRef base);
  /// No node may use them.
  void eraseGlobals(llvm::ArrayRef<GlobalValue *> gone);
  void eraseFunction(Function *f);
  /// Adds a constant with these bytes (row-major, little-endian) to constData, or returns an equal one.
  GlobalValue *addConst(llvm::StringRef name, Type t, llvm::StringRef bytes);
  /// Where a file of an Init is.
  std::string pathOf(llvm::StringRef file) const;
  /// An error if a file that is about to be made is one that weights are in.
  llvm::Error expectNotRead(llvm::StringRef made) const;
  /// The bytes of a global that is a constant or comes from a file or splat; reads files at most `limit` bytes large.
  llvm::Expected<std::string> bytesOf(const GlobalValue &g, int64_t limit = INT64_MAX) const;
  std::unique_ptr<Module> clone() const;

  Module() = default;
  Module(const Module &) = delete;
  ~Module();

private:
  friend class Function;
  llvm::StringMap<GlobalValue *> byName_;
  llvm::StringMap<unsigned> numbers_; ///< by a global's name: the last number that made another of it
  llvm::StringMap<Function *> functions_;
  /// Constants that addConst() may return, by a hash of their bytes, in order; of the first `indexed_` globals.
  llvm::DenseMap<uint64_t, std::vector<GlobalValue *>> constants_;
  size_t indexed_ = 0;
  void indexConstants();
};

/// Topological sanity for passes: whether `a` comes before `b` in the same function. Linear time.
bool comesBefore(const Node *a, const Node *b);

} // namespace zcc
