// The operators, activations and algorithms of a program, in the order of their numbers. engine/names.py has the same
// names; it compares them with these when it loads the library.
#pragma once
#include <cstdint>

// Operators are numbered from 1, activations and algorithms from 0.
#define SANP_OPERATORS(NAME)                                                                                   \
  NAME(input) NAME(output) NAME(conv) NAME(gate) NAME(linear) NAME(pool) NAME(adaptive) NAME(activation)       \
  NAME(add) NAME(multiply) NAME(affine) NAME(concat) NAME(channels) NAME(flatten) NAME(layer_norm)            \
  NAME(quantise) NAME(dequantise) NAME(byte_conv) NAME(byte_mean) NAME(byte_pool)                              \
  NAME(gather) NAME(instance_norm) NAME(softmax) NAME(resize) NAME(unpool) NAME(power)                            \
  NAME(byte_average) NAME(byte_combine)

#define SANP_ACTIVATIONS(NAME)                                                                                 \
  NAME(none) NAME(relu) NAME(clip) NAME(leaky) NAME(silu) NAME(gelu) NAME(gelu_tanh) NAME(hardswish)           \
  NAME(hardsigmoid) NAME(sigmoid) NAME(tanh) NAME(prelu) NAME(elu) NAME(mish)

// How a convolution can be computed, each with the words that a plan has for it.
#define SANP_ALGORITHMS(NAME)                                                                                  \
  NAME(direct, "direct") NAME(winograd2, "winograd 2x2") NAME(winograd4, "winograd 4x4")                       \
  NAME(strided2, "winograd stride 2") NAME(lanes, "winograd by lanes") NAME(strided7, "winograd 7x7 stride 2")

namespace sanp {

#define SANP_ENTRY(name, ...) name,
enum class Operator : int64_t { nothing, SANP_OPERATORS(SANP_ENTRY) count };
enum class Act : int { SANP_ACTIVATIONS(SANP_ENTRY) count };
enum class Algorithm : int { SANP_ALGORITHMS(SANP_ENTRY) count };
#undef SANP_ENTRY

}  // namespace sanp
