// The operators of a program that read or write maps of bytes.
#pragma once
#include <vector>

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
struct ByteAverageOp { ByteAverage average; };
// One of the channels that a channel of a combination is the sum of; input -1 for none.
struct ByteTerm {
  int input, channel;
};
struct ByteCombineOp {
  ByteRounding rounding;
  std::vector<int> zeros;       // [input]: its zero point
  std::vector<float> units;     // [input]: what a step of it is, in steps of the result or as it is
  std::vector<ByteTerm> terms;  // [out][kByteTerms]
};

}  // namespace sanp
