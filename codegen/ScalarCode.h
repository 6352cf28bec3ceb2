// Scalar expressions and element types as C++, with the functions of runtime/cpu/KernelMath.h.
#pragma once

#include "ir/Graph.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace zcc {

/// The C++ type an element is computed in: 16-bit floats in float.
std::string computeType(Elem e);
/// The C++ type it is stored in.
std::string storageType(Elem e);
/// The type of numbers as wide as a float that an element narrower than one is held in beside floats (kZStrip); "": it is not.
std::string wideType(Elem e);
/// Reads a stored element, writes one that is rounded, rounds a computed value to what the element can hold.
std::string loadCode(Elem e, const std::string &place);
std::string storeCode(Elem e, const std::string &value);
std::string roundCode(Elem e, const std::string &value);
/// A splat constant's value, and as C++; of a float it is rounded to the element.
double literalValue(const Value &constant);
std::string literal(const Value &constant);
/// What an elementwise node computes, from what its operands are: equal for equal values, whatever the order of sums and
/// products.
std::string scalarKey(const Node &n, llvm::ArrayRef<std::string> operands);
/// Gets a function's call inside an expression, its key and type, and returns what stands for it, such as a variable that has it.
using ShareCall = llvm::function_ref<std::string(const std::string &key, const std::string &code, const std::string &type)>;
/// An elementwise node's value from its operands'. `isNear`: z_is_far() holds for no operand whose angle is taken. `keys`: what
/// the operands are, for `share`.
std::string scalarCode(const Node &n, llvm::ArrayRef<std::string> operands, bool isNear = false,
                       llvm::ArrayRef<std::string> keys = {}, ShareCall share = nullptr);
/// The arguments of the call that an elementwise node's expression is.
std::vector<std::string> callArguments(const Node &n, llvm::ArrayRef<std::string> operands);
/// Whether the node takes the sine, cosine or tangent of a float, which is dearer where it is large.
bool takesAngle(const Node &n);
/// A reduction's neutral element, and the combination of two values.
std::string identityCode(const Node &reduction);
std::string combineCode(const Node &reduction, const std::string &a, const std::string &b);

} // namespace zcc
