// The operators of a program that read or write maps of bytes.
#pragma once
#include "bytes.hpp"

namespace sanp {

struct ByteConvOp { ByteConv conv; int gate; };  // gate: the one that decides which channels are open, or -1
struct QuantiseOp { float scale; };
struct DequantiseOp { float scale; };
struct ByteMeanOp { float scale; };  // the mean of each channel, a map of one pixel
struct BytePoolOp { Window window; };

}  // namespace sanp
