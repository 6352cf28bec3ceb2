// What of a model is trained: which initializer, or which use of one, stands for which parameter, and on what evidence.
#pragma once

#include "frontend/Import.h"
#include "frontend/onnx/OnnxFile.h"
#include "llvm/ADT/DenseMap.h"

namespace zcc {

namespace onnx_pb {
class NodeProto;
} // namespace onnx_pb

/// One tensor of the module that comes from an initializer.
struct Parameter {
  enum Role {
    Trained,
    Frozen,    ///< a weight that is not trained
    Statistic, ///< running mean or variance of a BatchNormalization
    Constant,
  } role = Constant;
  std::string name;                    ///< in the module
  const Initializer *source = nullptr; ///< whose layout and data it has
  /// The source is this many equal pieces along its first axis (one per sample of the batch), and
  /// this parameter is one.
  int64_t pieces = 1;
  std::string evidence;
  std::optional<Init> given;     ///< by --weights
  GlobalValue *global = nullptr; ///< made by whoever needs it first

  Type type() const {
    Type t = source->type();
    if (pieces > 1)
      t.dims[0] = 1;
    return t;
  }
};

/// One tensor of the model's state_dict, and what of the file holds it.
struct StateName {
  std::string name;
  Dims dims;                           ///< the model's
  const Initializer *source = nullptr; ///< whose data it had at first
  Parameter *parameter = nullptr;      ///< nullptr: nothing changes it
  bool transposed = false;             ///< against the parameter, or the source where there is none
  bool isAnother = false;              ///< a further name of a tensor that has one
};

/// How one use sees a parameter.
struct ParameterUse {
  Parameter *parameter = nullptr;
  bool transposed = false; ///< the use sees the last two axes swapped
};

class Parameters {
public:
  /// Decides for every initializer of the main graph. Errors: a regular expression that is wrong or
  /// matches nothing, a name that does not exist, ties of different shapes.
  static llvm::Expected<std::unique_ptr<Parameters>> decide(const OnnxFile &file, const ImportOptions &options,
                                                            ImportReport &report);

  /// The parameter that input `index` of `node` means by `initializer` (a merged one means
  /// several).
  ParameterUse use(llvm::StringRef initializer, const onnx_pb::NodeProto *node, unsigned index) const;
  /// What the initializer means by itself.
  ParameterUse use(llvm::StringRef initializer) const;

  struct SplitUse {
    const onnx_pb::NodeProto *node;
    unsigned index;
    std::string initializer; ///< the merged one
    Parameter *parameter;
  };
  const std::vector<std::unique_ptr<Parameter>> &all() const { return all_; }
  const std::vector<SplitUse> &splits() const { return splits_; }
  /// The model's state_dict as far as the file knows it, no name twice.
  const std::vector<StateName> &state() const { return state_; }
  /// What else is in it, by the file's metadata.
  const std::vector<std::string> &absent() const { return absent_; }

private:
  friend class Decision;
  std::vector<std::unique_ptr<Parameter>> all_;
  llvm::StringMap<ParameterUse> uses_;
  std::vector<SplitUse> splits_;
  std::vector<StateName> state_;
  std::vector<std::string> absent_;
  llvm::DenseMap<std::pair<const onnx_pb::NodeProto *, unsigned>, Parameter *> splitIndex_;
};

} // namespace zcc
