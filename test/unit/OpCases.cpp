// The table of cases, and their operands drawn at random.
#include "test/unit/OpCases.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

using namespace zcc;
using namespace zcc::test;
using llvm::StringRef;
using Ints = std::vector<int64_t>;

static const OpCase kCases[] = {
    {"add", "f32[2x3], f32[3]"},
    {"add", "f32[2x1x3], f32[4x1]"},
    {"sub", "f32[2x3], f32[2x1]"},
    {"mul", "f32[2x3], f32[]"},
    {"div", "f32[2x3], f32[3]", {}, 0.5, 2},
    {"pow", "f32[2x3], f32[3]", {}, 0.5, 2},
    {"max", "f32[2x3], f32[2x3]"},
    {"min", "f32[2x3], f32[2x3]"},
    {"mod", "f32[2x3], f32[3]", {}, 0.5, 2},
    {"fmod", "f32[2x3], f32[3]", {}, 0.5, 2},
    {"neg", "f32[2x3]"},
    {"abs", "f32[2x3]"},
    {"sign", "f32[2x3]"},
    {"stop_gradient", "f32[2x3]"},
    {"sqrt", "f32[2x3]", {}, 0.5, 2},
    {"rsqrt", "f32[2x3]", {}, 0.5, 2},
    {"reciprocal", "f32[2x3]", {}, 0.5, 2},
    {"exp", "f32[2x3]"},
    {"expm1", "f32[2x3]"},
    {"log", "f32[2x3]", {}, 0.5, 2},
    {"log1p", "f32[2x3]", {}, -0.5, 2},
    {"sin", "f32[2x3]"},
    {"cos", "f32[2x3]"},
    {"tan", "f32[2x3]"},
    {"asin", "f32[2x3]", {}, -0.9, 0.9},
    {"acos", "f32[2x3]", {}, -0.9, 0.9},
    {"atan", "f32[2x3]"},
    {"sinh", "f32[2x3]"},
    {"cosh", "f32[2x3]"},
    {"asinh", "f32[2x3]"},
    {"acosh", "f32[2x3]", {}, 1.2, 3},
    {"atanh", "f32[2x3]", {}, -0.9, 0.9},
    {"erf", "f32[2x3]"},
    {"tanh", "f32[2x3]"},
    {"sigmoid", "f32[2x3]", {}, -3, 3},
    {"softplus", "f32[2x3]", {}, -3, 3},
    {"relu", "f32[2x3]"},
    {"gelu", "f32[2x3]", {}, -3, 3},
    {"gelu_tanh", "f32[2x3]", {}, -3, 3},
    {"silu", "f32[2x3]", {}, -3, 3},
    {"gelu_grad", "f32[2x3], f32[2x3]", {}, -3, 3},
    {"gelu_tanh_grad", "f32[2x3], f32[2x3]", {}, -3, 3},
    {"silu_grad", "f32[2x3], f32[2x3]", {}, -3, 3},
    {"floor", "f32[2x3]"},
    {"ceil", "f32[2x3]"},
    {"round", "f32[2x3]"},
    {"select", "bool[2x3]<2, f32[2x3], f32[3]"},
    {"cast", "f32[2x3]", {{"to", "f64"}}},
    {"reshape", "f32[2x3]", {{"dims", Ints{3, 2}}}},
    {"transpose", "f32[2x3x4]", {{"perm", Ints{2, 0, 1}}}},
    {"slice", "f32[4x6]", {{"starts", Ints{1, 0}}, {"ends", Ints{3, 6}}, {"steps", Ints{1, 1}}}},
    {"slice", "f32[4x6]", {{"starts", Ints{0, 1}}, {"ends", Ints{4, 6}}, {"steps", Ints{3, 2}}}},
    {"slice", "f32[4x6]", {{"starts", Ints{3, 5}}, {"ends", Ints{-1, 0}}, {"steps", Ints{-1, -2}}}},
    {"run", "f32[4x6]", {{"begin", int64_t(5)}, {"count", int64_t(11)}}},
    {"broadcast", "f32[3x1]", {{"dims", Ints{2, 3, 4}}}},
    {"concat", "f32[2x3], f32[2x1], f32[2x2]", {{"axis", 1}}},
    {"concat", "f32[3x4x2], f32[3x8x2], f32[3x2x2]", {{"axis", 1}}},
    {"pad", "f32[2x3]", {{"lo", Ints{1, 0}}, {"hi", Ints{0, 2}}}},
    {"pad", "f32[2x8]", {{"lo", Ints{0, 0}}, {"hi", Ints{3, 0}}}},
    {"pad", "f32[1x3x4]", {{"lo", Ints{1, 2, 0}}, {"hi", Ints{0, 1, 0}}}},
    {"pad", "f32[3x4]", {{"lo", Ints{-1, 1}}, {"hi", Ints{0, -2}}}},
    {"pad", "f32[3x4]", {{"lo", Ints{1, 2}}, {"hi", Ints{2, 1}}, {"mode", "reflect"}}},
    {"pad", "f32[3x4]", {{"lo", Ints{1, 2}}, {"hi", Ints{2, 1}}, {"mode", "edge"}}},
    {"pad", "f32[3x4]", {{"lo", Ints{1, 2}}, {"hi", Ints{2, 1}}, {"mode", "wrap"}}},
    {"copy", "f32[2x3]"},
    {"reduce_sum", "f32[2x3x4]", {{"axes", Ints{0, 2}}}},
    {"reduce_max", "f32[2x3x4]", {{"axes", Ints{1}}}},
    {"reduce_min", "f32[2x3x4]", {{"axes", Ints{1, 2}}}},
    {"reduce_prod", "f32[2x3x2]", {{"axes", Ints{1}}}},
    {"cumsum", "f32[2x4]", {{"axis", 1}}},
    {"cumsum", "f32[4x2]", {{"axis", 0}, {"exclusive", 1}, {"reverse", 1}}},
    {"topk", "f32[2x5]", {{"axis", 1}, {"k", 2}}},
    {"topk", "f32[5x2]", {{"axis", 0}, {"k", 3}, {"largest", 0}}},
    {"sum_squares", "f32[5x3]", {{"piece", 4}}},
    {"matmul", "f32[3x4], f32[4x2]"},
    {"matmul", "f32[2x3x4], f32[4x2]"},
    {"matmul", "f32[2x3x4], f32[1x4x2]"},
    {"matmul", "f32[2x3x4], f32[2x4x2]"},
    {"matmul", "f32[3x4], f32[2x4x2]"},
    {"matmul", "f32[2x1x2x3], f32[3x3x2]"},
    {"add_matmul", "f32[3x2], f32[3x4], f32[4x2]"},
    {"add_matmul", "f32[2x3x2], f32[2x3x4], f32[4x2]"},
    {"add_matmul", "f32[1x4], f32[1x8], f32[8x4]"},
    {"conv", "f32[2x3x5], f32[4x3x2], f32[4]", {{"strides", Ints{2}}, {"pads_lo", Ints{1}}}},
    {"conv",
     "f32[1x4x5x4], f32[6x2x3x2]",
     {{"group", 2}, {"pads_lo", Ints{1, 0}}, {"pads_hi", Ints{0, 1}}, {"dilations", Ints{1, 2}}}},
    {"conv", "f32[1x2x3x4x3], f32[2x2x2x2x2]"},
    {"conv",
     "f32[2x1x4x5x8], f32[16x8x3x2], f32[16]",
     {{"block", 16}, {"pads_lo", Ints{1, 0}}, {"strides", Ints{2, 1}}}}, // in blocks
    {"conv", "f32[1x8x3x3], f32[8x8x1x1]", {{"block", 8}}},
    {"conv", "f32[1x2x3x8], f32[4x16x1]", {{"block", 1}}},
    {"conv_grad_input",
     "f32[1x6x3x2], f32[6x2x3x2]",
     {{"dims", Ints{1, 4, 6, 3}}, {"group", 2}, {"strides", Ints{2, 2}}, {"pads_lo", Ints{1, 0}}, {"pads_hi", Ints{0, 1}}}},
    {"conv_grad_input", "f32[1x1x3x2x8], f32[8x8x2x2]", {{"dims", Ints{1, 1, 4, 3, 8}}}},
    {"conv_grad_weight", "f32[2x3x6], f32[2x4x3]", {{"dims", Ints{4, 3, 2}}, {"strides", Ints{2}}}},
    {"conv_grad_weight", "f32[2x1x4x3x8], f32[2x1x3x2x8]", {{"dims", Ints{8, 8, 2, 2}}}},
    {"conv_grad_weight", "f32[2x8x4x3], f32[2x1x3x2x16]", {{"dims", Ints{16, 8, 2, 2}}}},
    {"max_pool",
     "f32[2x2x5x4]",
     {{"kernel", Ints{3, 2}}, {"strides", Ints{2, 1}}, {"pads_lo", Ints{1, 0}}, {"pads_hi", Ints{1, 1}}}},
    {"max_pool", "f32[1x2x7]", {{"kernel", Ints{2}}, {"dilations", Ints{3}}}},
    {"max_pool",
     "f32[2x2x5x4x16]",
     {{"kernel", Ints{3, 2, 1}},
      {"strides", Ints{2, 1, 1}},
      {"pads_lo", Ints{1, 0, 0}},
      {"pads_hi", Ints{1, 1, 0}}}}, // of blocks
    {"avg_pool",
     "f32[2x2x5x4]",
     {{"kernel", Ints{3, 2}}, {"strides", Ints{2, 1}}, {"pads_lo", Ints{1, 0}}, {"pads_hi", Ints{1, 1}}}},
    {"avg_pool", "f32[1x2x6]", {{"kernel", Ints{3}}, {"pads_lo", Ints{1}}, {"count_pad", 1}}},
    {"avg_pool_grad", "f32[1x2x6]", {{"dims", Ints{1, 2, 7}}, {"kernel", Ints{3}}, {"pads_lo", Ints{1}}}},
    {"softmax", "f32[2x5]", {{"axis", 1}}},
    {"softmax", "f32[3x2x2]", {{"axis", 0}}},
    {"log_softmax", "f32[2x3x2]", {{"axis", 1}}},
    {"layer_norm", "f32[2x3x4], f32[4], f32[4]", {{"axis", 2}, {"eps", 1e-5}}},
    {"layer_norm", "f32[2x3x4], f32[3x4], _", {{"axis", 1}, {"eps", 1e-5}}},
    {"layer_norm", "f32[2x4]", {{"axis", 1}, {"eps", 1e-2}}},
    {"rms_norm", "f32[2x3x4], f32[4]", {{"axis", 2}, {"eps", 1e-5}}},
    {"rms_norm", "f32[2x3x4]", {{"axis", 1}, {"eps", 1e-5}}},
    {"batch_norm", "f32[3x2x4], f32[2], f32[2]", {{"eps", 1e-5}}},
    {"batch_norm", "f32[5x2], f32[2], f32[2]", {{"eps", 1e-5}}},
    {"batch_norm", "f32[2x1x3x8], f32[8], f32[8]", {{"eps", 1e-5}}}, // channels in blocks
    {"cross_entropy", "f32[6x4], i64[6]<4"},
    {"cross_entropy", "f32[6x3], i64[6]<3, f32[3]", {{"ignore", 1}}},
    {"cross_entropy", "f32[2x5], i64[2]<5", {{"has_ignore", 0}}},
    {"cross_entropy", "f32[6x70], i64[6]<3", {{"ignore", 1}}}, // rows without a label are passed by
    {"cross_entropy", "f32[6x7], i64[6]<4", {{"classes", 4}}},
    {"attention", "f32[1x2x3x4], f32[1x2x5x4], f32[1x2x5x2]", {{"scale", 0.5}}, -1, 1, 1},
    {"attention", "f32[2x4x3x2], f32[2x2x3x2], f32[2x2x3x3]", {{"scale", 0.7}, {"causal", 1}}, -1, 1, 1},
    {"attention", "f32[1x2x4x2], f32[1x1x2x2], f32[1x1x2x2], f32[2x1x2]", {{"scale", 0.7}, {"causal", 1}}, -1, 1, 1},
    {"attention", "f32[2x2x2x2], f32[2x2x4x2], f32[2x2x4x2], bool[2x1x2x4]<2", {{"scale", 0.5}}, -1, 1, 1},
    {"attention", "f32[1x4x3x2], f32[1x2x5x2], f32[1x2x5x3]", {{"scale", 0.5}, {"rows_first", 1}}, -1, 1, 1},
    {"attention", "f32[2x2x3x2], f32[2x2x3x2], f32[2x2x3x2], f32[2x1x3]", {{"scale", 0.7}, {"rows_first", 1}}, -1, 1, 1},
    {"gather", "f32[5x3], i64[2x2]<5", {{"axis", 0}}},
    {"gather", "f32[5x8], i64[3]<5", {{"axis", 0}}},
    {"gather", "f32[2x4x3], i32[5]<4", {{"axis", 1}}},
    {"gather", "f32[2x3], i64[]<3", {{"axis", 1}}},
    {"scatter_add", "f32[4x3], i64[2x3]<4, f32[2x3x3]", {{"axis", 0}}},
    {"scatter_add", "f32[3x2], i64[230]<3, f32[230x2]", {{"axis", 0}}}, // a row's updates in several chunks
    {"gather_elements", "f32[3x4], i64[3x2]<4", {{"axis", 1}}},
    {"gather_elements", "f32[3x4], i64[2x4]<3", {{"axis", 0}}},
    {"scatter_elements", "f32[5x2], i64[1x2]<5, f32[1x2]", {{"axis", 0}}},
    {"scatter_elements", "f32[2x3], i64[2x4]<3, f32[2x4]", {{"axis", 1}, {"reduce", "add"}}},
    {"scatter_elements", "f32[2x3], i64[2x4]<3, f32[2x4]", {{"axis", 1}, {"reduce", "mul"}}},
    {"scatter_elements", "f32[2x3], i64[2x4]<3, f32[2x4]", {{"axis", 1}, {"reduce", "max"}}},
    {"scatter_elements", "f32[2x3], i64[2x4]<3, f32[2x4]", {{"axis", 1}, {"reduce", "min"}}},
    {"scatter_elements", "f32[3x2], i64[230x2]<3, f32[230x2]", {{"axis", 0}, {"reduce", "add"}}},
    {"scatter_elements", "f32[3x2], i64[230x2]<3, f32[230x2]", {{"axis", 0}, {"reduce", "max"}}},
    {"gather_nd", "f32[3x3x2], i64[4x2]<3"},
    {"gather_nd", "f32[2x3x2], i64[2x4x1]<3", {{"batch", 1}}},
    {"scatter_nd", "f32[5x2], i64[1x1]<5, f32[1x2]"},
    {"scatter_nd", "f32[3x2], i64[4x1]<3, f32[4x2]", {{"reduce", "add"}}},
    {"scatter_nd", "f32[3x2], i64[4x1]<3, f32[4x2]", {{"reduce", "mul"}}},
    {"scatter_nd", "f32[3x2], i64[4x1]<3, f32[4x2]", {{"reduce", "max"}}},
    {"scatter_nd", "f32[3x2], i64[4x1]<3, f32[4x2]", {{"reduce", "min"}}},
};

static const OpCase kOtherCases[] = {
    // Integers
    {"add", "i64[2x3]<-9..9, i64[3]<-9..9"},
    {"sub", "i32[2x3]<-9..9, i32[2x1]<-9..9"},
    {"mul", "i64[2x3]<-9..9, i64[]<-9..9"},
    {"div", "i64[2x3]<-9..9, i64[3]<1..5"},
    {"div", "i32[2x3]<-9..9, i32[3]<-5..-1"},
    {"mod", "i64[2x3]<-9..9, i64[3]<-5..-1"},
    {"mod", "i32[2x3]<-9..9, i32[3]<1..5"},
    {"fmod", "i64[2x3]<-9..9, i64[3]<1..5"},
    {"pow", "i64[2x3]<-4..4, i64[3]<5"},
    {"max", "i64[2x3]<-9..9, i64[2x3]<-9..9"},
    {"min", "u8[2x3]<250, u8[2x3]<250"},
    {"neg", "i64[2x3]<-9..9"},
    {"abs", "i32[2x3]<-9..9"},
    {"sign", "i64[2x3]<-2..3"},
    {"select", "bool[2x3]<2, i64[2x3]<9, i64[3]<9"},
    {"select", "bool[2x3]<2, bool[2x3]<2, bool[]<2"},
    {"reduce_sum", "i64[2x3x4]<-9..9", {{"axes", Ints{0, 2}}}},
    {"reduce_max", "i64[2x3x4]<-9..9", {{"axes", Ints{1}}}},
    {"reduce_min", "i32[2x3x4]<-9..9", {{"axes", Ints{1, 2}}}},
    {"reduce_prod", "i64[2x3x2]<-2..3", {{"axes", Ints{1}}}},
    {"cumsum", "i64[2x4]<-9..9", {{"axis", 1}}},
    {"topk", "i64[2x5]<90", {{"axis", 1}, {"k", 2}}},
    {"gather", "i64[5x3]<90, i64[2x2]<-5..5", {{"axis", 0}}},
    {"gather", "bool[5x3]<2, i32[4]<3", {{"axis", 1}}},
    {"gather_elements", "i64[3x4]<90, i64[3x2]<-4..4", {{"axis", 1}}},
    {"scatter_nd", "i64[5x2]<90, i64[1x1]<5, i64[1x2]<90"},
    {"concat", "i64[2x3]<90, i64[2x1]<90", {{"axis", 1}}},
    {"pad", "i64[2x3]<90", {{"lo", Ints{1, 0}}, {"hi", Ints{0, 2}}, {"value", 7.0}}},
    {"transpose", "bool[2x3x4]<2", {{"perm", Ints{2, 0, 1}}}},
    // Comparisons, truth values, bits
    {"eq", "i64[2x3]<3, i64[3]<3"},
    {"eq", "f32[2x3], f32[3]", {}, -1, 1, 0, true},
    {"ne", "i32[2x3]<3, i32[3]<3"},
    {"ne", "f32[2x3], f32[3]", {}, -1, 1, 0, true},
    {"lt", "f32[2x3], f32[3]", {}, -1, 1, 0, true},
    {"lt", "i64[2x3]<3, i64[2x1]<3"},
    {"le", "f32[2x3], f32[3]", {}, -1, 1, 0, true},
    {"gt", "f32[2x3], f32[3]", {}, -1, 1, 0, true},
    {"ge", "f32[2x3], f32[3]", {}, -1, 1, 0, true},
    {"ge", "u8[2x3]<3, u8[3]<3"},
    {"and", "bool[2x3]<2, bool[3]<2"},
    {"or", "bool[2x3]<2, bool[3]<2"},
    {"xor", "bool[2x3]<2, bool[3]<2"},
    {"not", "bool[2x3]<2"},
    {"bit_and", "i64[2x3]<-99..99, i64[3]<-99..99"},
    {"bit_or", "i32[2x3]<-99..99, i32[3]<-99..99"},
    {"bit_xor", "u8[2x3]<256, u8[3]<256"},
    {"bit_not", "i64[2x3]<-99..99"},
    {"bit_not", "u8[2x3]<256"},
    {"shift_left", "u32[2x3]<99, u32[3]<9"},
    {"shift_left", "u8[2x3]<256, u8[3]<8"},
    {"shift_right", "u64[2x3]<9999, u64[3]<9"},
    // Conversions
    {"cast", "f32[2x3]", {{"to", "i64"}}, -90, 90},
    {"cast", "f32[2x3]", {{"to", "u8"}}, 0, 200},
    {"cast", "f32[2x9]", {{"to", "u8"}}, -300, 300}, // as PyTorch, what lies outside wraps
    {"cast", "f32[3x11]", {{"to", "u32"}}, -300, 300},
    {"cast", "f32[2x9]", {{"to", "i16"}}, -90000, 90000},
    {"cast", "f32[2x3]", {{"to", "bool"}}, -1, 1, 0, true},
    {"cast", "f32[2x3]", {{"to", "f16"}}},
    {"cast", "i64[2x3]<-9..9", {{"to", "f32"}}},
    {"cast", "i64[2x3]<-999..999", {{"to", "i8"}}},
    {"cast", "i64[2x3]<-1..2", {{"to", "bool"}}},
    {"cast", "bool[2x3]<2", {{"to", "f32"}}},
    {"bit_cast", "f32[2x3]", {{"to", "i32"}}},
    {"bit_cast", "i32[2x3]<-9..9999", {{"to", "f32"}}},
    {"bit_cast", "f64[2x3]", {{"to", "u64"}}},
    // What is not finite
    {"isnan", "f32[2x3]", {}, -1, 1, 0, true},
    {"isinf", "f32[2x3]", {}, -1, 1, 0, true},
    {"max", "f32[2x3], f32[2x3]", {}, -1, 1, 0, true},
    {"min", "f32[2x3], f32[2x3]", {}, -1, 1, 0, true},
    {"add", "f32[2x3], f32[2x3]", {}, -1, 1, 0, true},
    {"mul", "f32[2x3], f32[2x3]", {}, -1, 1, 0, true},
    {"div", "f32[2x3], f32[2x3]", {}, -1, 1, 0, true},
    {"abs", "f32[2x3]", {}, -1, 1, 0, true},
    {"relu", "f32[2x3]", {}, -1, 1, 0, true},
    {"floor", "f32[2x3]", {}, -9, 9, 0, true},
    {"ceil", "f32[2x3]", {}, -9, 9, 0, true},
    {"round", "f32[2x3]", {}, -9, 9, 0, true},
    {"sqrt", "f32[2x3]", {}, -1, 1, 0, true},
    {"exp", "f32[2x3]", {}, -200, 200, 0, true},
    {"log", "f32[2x3]", {}, -1, 1, 0, true},
    {"tanh", "f32[2x3]", {}, -40, 40, 0, true},
    {"sigmoid", "f32[2x3]", {}, -200, 200, 0, true},
    {"erf", "f32[2x3]", {}, -9, 9, 0, true},
    {"sin", "f32[2x3]", {}, -5000, 5000},
    {"cos", "f32[2x3]", {}, -5000, 5000},
    {"select", "bool[2x3]<2, f32[2x3], f32[3]", {}, -1, 1, 0, true},
    {"reduce_max", "f32[2x3x4]", {{"axes", Ints{1}}}, -1, 1, 0, true},
    {"reduce_min", "f32[2x3x4]", {{"axes", Ints{2}}}, -1, 1, 0, true},
    // Positions, counters, random numbers
    {"argmax", "f32[2x5]", {{"axis", 1}}},
    {"argmax", "i64[5x3]<4", {{"axis", 0}, {"last", 1}}},
    {"argmin", "f32[2x5x2]", {{"axis", 1}}},
    {"argmin", "i64[3x5]<4", {{"axis", 1}, {"last", 1}}},
    {"constant", "", {{"dims", Ints{2, 3}}, {"value", std::vector<double>{0.5}}}},
    {"constant", "", {{"dims", Ints{3}}, {"elem", "i64"}, {"value", Ints{3, -1, 2}}}},
    {"iota", "", {{"dims", Ints{2, 7}}, {"axis", 1}}},
    {"iota", "", {{"dims", Ints{9, 2}}, {"axis", 0}, {"elem", "f32"}}},
    {"iota", "", {{"dims", Ints{3, 5, 2}}, {"axis", -1}}},
    {"random_uniform", "i64[]<99, i64[]<999999, i64[]<4, i64[]<7, i64[33x70]<9999"},
    {"random_normal", "i64[]<99, i64[]<9, i64[]<4", {{"dims", Ints{33, 70}}, {"id", 4}}},
    // Gradients that lie as others are laid by passes
    {"attention_grad",
     "f32[2x4x3x2], f32[2x4x3x2], f32[2x2x5x2], f32[2x2x5x2], _, f32[2x4x3x2], f32[2x4x3x1]",
     {{"scale", 0.5}, {"rows_first", 7}}},
    // A window wholly in the padding
    {"max_pool", "f32[1x2x4x8]", {{"kernel", Ints{2, 1}}, {"pads_lo", Ints{2, 0}}}},
    // Of nothing
    {"attention_grad", "f32[1x2x3x8], f32[1x2x3x8], f32[1x2x0x8], f32[1x2x0x8], _, f32[1x2x3x8], f32[1x2x3x1]", {{"scale", 0.5}}},
    {"attention_grad", "f32[1x2x0x8], f32[1x2x0x8], f32[1x2x3x8], f32[1x2x3x8], _, f32[1x2x0x8], f32[1x2x0x1]", {{"scale", 0.5}}},
};

/// All, or those of the operator that ZCC_OP names.
static llvm::ArrayRef<OpCase> chosen(llvm::ArrayRef<OpCase> all) {
  const char *only = getenv("ZCC_OP");
  if (!only)
    return all;
  static std::map<const OpCase *, std::vector<OpCase>> kept;
  std::vector<OpCase> &some = kept[all.data()];
  if (some.empty())
    llvm::copy_if(all, std::back_inserter(some), [&](const OpCase &c) { return StringRef(c.op) == only; });
  return some;
}

llvm::ArrayRef<OpCase> test::opCases() { return chosen(kCases); }
llvm::ArrayRef<OpCase> test::otherCases() { return chosen(kOtherCases); }

std::string test::describe(const OpCase &c) { return std::string(c.op) + " " + c.operands; }

/// Distinct values in random order, evenly over [lo, hi) with a little noise.
static std::vector<double> spread(int64_t n, double lo, double hi, std::mt19937 &random) {
  std::uniform_real_distribution<double> noise(0.2, 0.8);
  std::vector<double> v(n);
  for (int64_t i = 0; i < n; ++i)
    v[i] = lo + (hi - lo) * (double(i) + noise(random)) / double(n);
  std::shuffle(v.begin(), v.end(), random);
  return v;
}

static void addSpecial(std::vector<double> &v, std::mt19937 &random) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kSpecial[] = {NAN, kInfinity, -kInfinity, 0.0, -0.0};
  for (double &x : v)
    if (random() % 2)
      x = kSpecial[random() % std::size(kSpecial)];
}

bool test::hasBlocks(const OpCase &c) {
  if (!StringRef(c.op).starts_with("conv"))
    return false;
  llvm::SmallVector<StringRef, 3> texts;
  StringRef(c.operands).split(texts, ", ");
  const size_t ranks[] = {texts[0].count('x'), texts[1].count('x')};
  const std::vector<int64_t> dims = c.attrs.ints("dims");
  return ranks[0] != ranks[1] || c.attrs.has("block") || (!dims.empty() && dims.size() != ranks[0] + 1);
}

std::vector<Operand> test::drawOperands(const OpCase &c, std::mt19937 &random) {
  llvm::SmallVector<StringRef, 8> texts;
  StringRef(c.operands).split(texts, ", ", -1, /*KeepEmpty=*/false);
  std::vector<Operand> out;
  for (StringRef text : texts) {
    Operand o;
    o.present = text != "_";
    if (o.present) {
      o.type = parseType(text).value();
      int64_t first = 0, limit = 2;
      if (text.consume_front("<"))
        text.consumeInteger(10, limit);
      if (text.consume_front("..")) {
        first = limit;
        text.consumeInteger(10, limit);
      }
      std::uniform_int_distribution<int64_t> integers(first, limit - 1);
      if (isFloat(o.type.elem))
        o.f = spread(o.type.count(), c.lo, c.hi, random);
      else
        for (int64_t i = 0; i < o.type.count(); ++i)
          o.i.push_back(integers(random));
      if (c.special)
        addSpecial(o.f, random);
    }
    out.push_back(std::move(o));
  }
  return out;
}
