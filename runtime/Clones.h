// Loops for the instruction set of the machine that a program runs on.
#pragma once

/// Makes GCC compile a function for several instruction sets and choose one when the program
/// starts. For leaf functions with the inner loops: what OpenMP outlines is not cloned. Vector
/// width never shows in results: sums over lanes are written with a fixed number of lanes, and FMAs
/// are explicit. Sanitizers are not up yet when the choice is made.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) &&                         \
    !defined(__SANITIZE_THREAD__)
#define ZCC_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define ZCC_CLONES
#endif

/// For what a function with ZCC_CLONES calls, lambdas included: only what is inlined gets its
/// instructions.
#define ZCC_INLINE __attribute__((always_inline))
