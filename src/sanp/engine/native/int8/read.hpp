// Reads the operators on bytes; included by read.cpp, whose Builder reads all others.
#pragma once
#include <cmath>

#include "../reader.hpp"

namespace sanp {

// Memory for so many bytes of weights, zeros at first.
inline int8_t* byte_room(Program& p, long bytes) {
  p.weights.emplace_back((bytes + kWeightLine) / (long)sizeof(float) + 16);
  return reinterpret_cast<int8_t*>(p.weights.back().data());
}

// Whole numbers from -127 to 127 as bytes: rows of taps, with zeros behind the channels of each; and rows of columns for a
// depthwise convolution.
inline void place_byte_weights(Program& p, ByteConv& c, const float* weight) {
  const int taps = c.window.taps();
  const long inputs = c.group_inputs();
  for (long i = 0; i < c.out_channels * inputs * taps; i++)
    if (!(weight[i] >= -127 && weight[i] <= 127)) fail("a weight is not from -127 to 127");
  if (is_byte_depthwise(c)) {
    int8_t* to = byte_room(p, c.out_channels * depth_row(c.window));
    const int columns = c.window.kernel_x, width = depth_fours(c.window) * kDepthColumns;
    for (long o = 0; o < c.out_channels; o++)
      for (int k = 0; k < taps; k++)
        to[o * depth_row(c.window) + k / columns * width + k % columns] = (int8_t)weight[o * taps + k];
    c.depth = to;
    return;
  }
  int8_t* to = byte_room(p, c.out_channels * c.row());
  for (long o = 0; o < c.out_channels; o++)
    for (long i = 0; i < inputs; i++)
      for (long k = 0; k < taps; k++) to[o * c.row() + k * c.step + i] = (int8_t)weight[(o * inputs + i) * taps + k];
  c.weight = to;
}

// The bytes that are written under an activation, if it does no more than cut and `cuts` says that it is the last step.
inline void read_bounds(ByteRounding& c, bool cuts) {
  const auto step = [&](float bound) {
    return std::fmin(255.f, std::fmax(0.f, std::nearbyint(bound * c.per_scale) + c.out_zero));
  };
  c.lowest = 0;
  c.highest = 255;
  const Act kind = c.act.kind;
  c.steps = cuts && (kind == Act::none || kind == Act::relu || kind == Act::clip);
  if (!c.steps || kind == Act::none) return;
  c.lowest = kind == Act::relu ? c.out_zero : step(c.act.a);
  if (kind == Act::clip) c.highest = step(c.act.b);
  if (!(c.lowest <= c.highest)) fail("an activation cuts to nothing");
}

template <class Builder>
int read_zero(Builder& b) {
  return b.r.within(0, 255, "a zero point");
}

template <class Builder>
float read_scale(Builder& b) {
  const float scale = *b.r.floats(1);
  if (!(scale > 0 && std::isfinite(scale) && std::isfinite(1 / scale))) fail("a scale is not a positive number");
  return scale;
}

template <class Builder>
ByteScale read_byte_scale(Builder& b) {
  const float scale = read_scale(b);
  return {scale, read_zero(b)};
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
  c.groups = b.r.size("a number of groups");
  if (c.in_channels % c.groups || c.out_channels % c.groups) fail("groups do not divide the channels");
  op.gate = b.r.within(-1, (int64_t)b.p.gate_channels.size() - 1, "a gate");
  if (op.gate >= 0 && b.p.gate_channels[op.gate] != c.out_channels) fail("a gate has another number of channels");
  op.follows = b.r.flag();
  c.scale_after = b.r.flag();
  if (c.scale_after && residual >= 0) fail("what is scaled after its activation has no residual");
  c.act = b.activation(c.out_channels);
  c.zero = read_zero(b);
  c.per_scale = 1 / read_scale(b);
  c.out_zero = (float)read_zero(b);
  read_bounds(c, c.to_bytes && !c.scale_after);
  c.step = (c.group_inputs() + kWeightLine - 1) / kWeightLine * kWeightLine;
  if (c.row() > kMostWeightBytes) fail("a channel has too many weights for bytes");
  place_byte_weights(b.p, c, b.r.floats((long)c.out_channels * c.group_inputs() * c.window.taps()));
  c.multiplier = keep(b.p, b.r.floats(c.out_channels), c.out_channels);
  c.bias = keep(b.p, b.r.floats(c.out_channels), c.out_channels);
  Op result{{in}, out, op};
  const float* residual_scale = b.r.floats(1);
  const int residual_zero = read_zero(b);
  if (residual >= 0) {
    b.same_shape(residual, out, "an addition");
    if (b.value(residual).bytes && !c.to_bytes) fail("bytes are added to floats");
    std::get<ByteConvOp>(result.kind).conv.residual_scale = b.value(residual).bytes ? *residual_scale : 0;
    std::get<ByteConvOp>(result.kind).conv.residual_zero = (float)residual_zero;
    if (b.value(residual).bytes && !(*residual_scale > 0)) fail("a scale is not a positive number");
    result.in.push_back(residual);
  }
  return result;
}

template <class Builder>
Op read_quantise(Builder& b) {
  const int in = b.source(), out = b.target(true);
  b.same_shape(in, out, "a quantisation");
  return {{in}, out, QuantiseOp{read_byte_scale(b)}};
}

template <class Builder>
Op read_dequantise(Builder& b) {
  const int in = b.byte_source(), out = b.target();
  b.same_shape(in, out, "a quantisation");
  return {{in}, out, DequantiseOp{read_byte_scale(b)}};
}

template <class Builder>
Op read_byte_mean(Builder& b) {
  const int in = b.byte_source(), out = b.target();
  if (b.value(in).channels != b.value(out).channels || b.value(out).height * b.value(out).width != 1)
    fail("a mean is one number for each channel");
  return {{in}, out, ByteMeanOp{read_byte_scale(b)}};
}

template <class Builder>
Op read_byte_pool(Builder& b) {
  const int in = b.byte_source(), out = b.target(true);
  if (b.value(in).channels != b.value(out).channels) fail("pooling keeps the number of channels");
  return {{in}, out, BytePoolOp{b.window(b.value(in), b.value(out))}};
}

template <class Builder>
Op read_byte_average(Builder& b) {
  const int in = b.byte_source(), out = b.target(true);
  if (b.value(in).channels != b.value(out).channels) fail("pooling keeps the number of channels");
  ByteAverageOp op{};
  ByteAverage& a = op.average;
  a.window = b.window(b.value(in), b.value(out));
  const long pixels = (long)b.value(out).height * b.value(out).width;
  const float* inverse = b.r.floats(pixels);
  std::vector<float> in_steps(inverse, inverse + pixels);
  const float unit = read_scale(b);
  a.zero = read_zero(b);
  const float per_scale = 1 / read_scale(b);
  a.out_zero = (float)read_zero(b);
  for (float& each : in_steps) each *= unit * per_scale;
  a.inverse = keep(b.p, in_steps.data(), pixels);
  return {{in}, out, op};
}

// One term of a combination's channel.
template <class Builder>
ByteTerm read_byte_term(Builder& b, const std::vector<int>& inputs) {
  const int input = b.r.within(-1, (int64_t)inputs.size() - 1, "an input of a combination");
  const int channels = input < 0 ? 1 : b.value(inputs[input]).channels;
  return {input, b.r.within(0, channels - 1, "a channel")};
}

template <class Builder>
Op read_byte_combine(Builder& b) {
  const int count = b.r.within(1, 1 << 16, "a number of values");
  Op result{{}, -1, ByteCombineOp{}};
  ByteCombineOp& op = std::get<ByteCombineOp>(result.kind);
  for (int i = 0; i < count; i++) result.in.push_back(b.byte_source());
  result.out = b.target(true);
  const auto out = b.value(result.out);
  for (int v : result.in)
    if (b.value(v).height != out.height || b.value(v).width != out.width) fail("a combination wants maps of one size");
  const float* scales = b.r.floats(count);
  for (int i = 0; i < count; i++) op.zeros.push_back(read_zero(b));
  for (int i = 0; i < out.channels * kByteTerms; i++) op.terms.push_back(read_byte_term(b, result.in));
  ByteRounding& r = op.rounding;
  r.act = b.activation(out.channels);
  r.per_scale = 1 / read_scale(b);
  r.out_zero = (float)read_zero(b);
  read_bounds(r, true);
  for (int i = 0; i < count; i++) op.units.push_back(scales[i] * (r.steps ? r.per_scale : 1.f));
  return result;
}

}  // namespace sanp
