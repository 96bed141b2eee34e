// The operators of a program that read or write maps of bytes.
#pragma once
#include "bytes.hpp"

namespace sanp {

struct ByteConvOp {
  ByteConv conv;
  int gate;      // the one that decides which channels are open, or -1
  bool follows;  // a channel none of whose inputs is live is zero, whatever the bias
};
struct QuantiseOp { ByteScale scale; };
struct DequantiseOp { ByteScale scale; };
struct ByteMeanOp { ByteScale scale; };  // the mean of each channel, a map of one pixel
struct BytePoolOp { Window window; };

}  // namespace sanp
