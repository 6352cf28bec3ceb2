// Scalar expressions and element types as C++, with the functions of runtime/cpu/KernelMath.h.
#pragma once

#include "ir/Graph.h"

namespace zcc {

/// The C++ type an element is computed in: 16-bit floats in float.
std::string computeType(Elem e);
/// The C++ type it is stored in.
std::string storageType(Elem e);
/// Reads a stored element, writes one that is rounded, rounds a computed value to what the element can hold.
std::string loadCode(Elem e, const std::string &place);
std::string storeCode(Elem e, const std::string &value);
std::string roundCode(Elem e, const std::string &value);
/// A splat constant's value, and as C++; of a float it is rounded to the element.
double literalValue(const Value &constant);
std::string literal(const Value &constant);
/// An elementwise node's value from its operands'. `isNear`: z_is_far() holds for no operand whose angle is taken.
std::string scalarCode(const Node &n, llvm::ArrayRef<std::string> operands, bool isNear = false);
/// Whether the node takes the sine, cosine or tangent of a float, which is dearer where it is large.
bool takesAngle(const Node &n);
/// A reduction's neutral element, and the combination of two values.
std::string identityCode(const Node &reduction);
std::string combineCode(const Node &reduction, const std::string &a, const std::string &b);

} // namespace zcc
