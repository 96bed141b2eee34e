// Reads the operators on bytes; included by read.cpp, whose Builder reads all others.
#pragma once
#include <cmath>

#include "../reader.hpp"

namespace sanp {

// Whole numbers from -127 to 127 as bytes: rows of taps, with zeros behind the channels of each.
inline const int8_t* place_byte_weights(Program& p, const ByteConv& c, const float* weight) {
  p.weights.emplace_back((c.out_channels * c.row() + kWeightLine) / (long)sizeof(float) + 16);
  int8_t* to = reinterpret_cast<int8_t*>(p.weights.back().data());
  const int taps = c.window.taps();
  for (long o = 0; o < c.out_channels; o++)
    for (long i = 0; i < c.in_channels; i++)
      for (long k = 0; k < taps; k++) {
        const float w = weight[(o * c.in_channels + i) * taps + k];
        if (!(w >= -127 && w <= 127)) throw Error("the program is not sound: a weight is not from -127 to 127");
        to[o * c.row() + k * c.step + i] = (int8_t)w;
      }
  return to;
}

template <class Builder>
float read_scale(Builder& b) {
  const float scale = *b.r.floats(1);
  if (!(scale > 0 && std::isfinite(scale) && std::isfinite(1 / scale))) fail("a scale is not a positive number");
  return scale;
}

template <class Builder>
Op read_byte_conv(Builder& b) {
  const int in = b.byte_source(), residual = b.r.within(-1, (int64_t)b.p.values.size() - 1, "a value");
  if (residual >= 0 && !b.written[residual]) fail("a residual is read before it is written");
  ByteConvOp op{};
  ByteConv& c = op.conv;
  c.to_bytes = b.r.flag();
  const int out = b.target(c.to_bytes);
  c.window = b.window(b.value(in), b.value(out));
  c.in_channels = b.value(in).channels;
  c.out_channels = b.value(out).channels;
  op.gate = b.r.within(-1, (int64_t)b.p.gate_channels.size() - 1, "a gate");
  if (op.gate >= 0 && b.p.gate_channels[op.gate] != c.out_channels) fail("a gate has another number of channels");
  c.act = b.activation(c.out_channels);
  c.per_scale = 1 / read_scale(b);
  c.highest = 255;
  if (c.to_bytes) {
    if (c.act.kind == Act::clip && c.act.a == 0 && c.act.b >= 0)
      c.highest = std::fmin(255.f, std::nearbyint(c.act.b * c.per_scale));
    else if (c.act.kind != Act::relu)
      fail("bytes are written after a ReLU or a clip from zero on");
  }
  c.step = (c.in_channels + kWeightLine - 1) / kWeightLine * kWeightLine;
  if (c.row() > kMostWeightBytes) fail("a channel has too many weights for bytes");
  c.weight = place_byte_weights(b.p, c, b.r.floats((long)c.out_channels * c.in_channels * c.window.taps()));
  c.multiplier = keep(b.p, b.r.floats(c.out_channels), c.out_channels);
  c.bias = keep(b.p, b.r.floats(c.out_channels), c.out_channels);
  Op result{{in}, out, op};
  const float* residual_scale = b.r.floats(1);
  if (residual >= 0) {
    b.same_shape(residual, out, "an addition");
    if (b.value(residual).bytes && !c.to_bytes) fail("bytes are added to floats");
    std::get<ByteConvOp>(result.kind).conv.residual_scale = b.value(residual).bytes ? *residual_scale : 0;
    if (b.value(residual).bytes && !(*residual_scale > 0)) fail("a scale is not a positive number");
    result.in.push_back(residual);
  }
  return result;
}

template <class Builder>
Op read_quantise(Builder& b) {
  const int in = b.source(), out = b.target(true);
  b.same_shape(in, out, "a quantisation");
  return {{in}, out, QuantiseOp{read_scale(b)}};
}

template <class Builder>
Op read_dequantise(Builder& b) {
  const int in = b.byte_source(), out = b.target();
  b.same_shape(in, out, "a quantisation");
  return {{in}, out, DequantiseOp{read_scale(b)}};
}

template <class Builder>
Op read_byte_mean(Builder& b) {
  const int in = b.byte_source(), out = b.target();
  if (b.value(in).channels != b.value(out).channels || b.value(out).height * b.value(out).width != 1)
    fail("a mean is one number for each channel");
  return {{in}, out, ByteMeanOp{read_scale(b)}};
}

template <class Builder>
Op read_byte_pool(Builder& b) {
  const int in = b.byte_source(), out = b.target(true);
  if (b.value(in).channels != b.value(out).channels) fail("pooling keeps the number of channels");
  return {{in}, out, BytePoolOp{b.window(b.value(in), b.value(out))}};
}

}  // namespace sanp
