// What becomes of the sums of a convolution of bytes: factors, shifts, residuals and activations, as bytes or floats.
#pragma once
#include "gather.hpp"

namespace SANP_NAMESPACE {

// Of one output channel: v = sum * factor + shift, then (activation of v) * after + the zero point. Where all is in steps
// of bytes, the zero point is part of the shift, and there is no more to do.
struct ByteFinish {
  float factor, shift, after;
};

static inline ByteFinish finish_of(const ByteConv& c, int channel, float scale) {
  if (c.steps) {
    const float unit = scale * c.per_scale;
    return {c.multiplier[channel] * unit, c.bias[channel] * unit + c.out_zero, 1.f};
  }
  const float inside = c.scale_after ? 1.f : scale, after = c.scale_after ? scale : 1.f;
  return {c.multiplier[channel] * inside, c.bias[channel] * inside, c.to_bytes ? after * c.per_scale : after};
}

static inline vf finished(const ByteFinish& f, const int* sums) {
  const vi sum = *reinterpret_cast<const vi_unaligned*>(sums);
  return __builtin_convertvector(sum, vf) * f.factor + f.shift;
}

// Byte `place` % 4 of every pixel, as whole numbers.
static inline vi byte_of(vi quad, int place) { return quad >> 8 * (place % kQuad) & 255; }

// What a channel of the residual adds at `count` pixels from `first` on, in steps of the result's bytes or as it is.
static inline vf residual_at(const ByteConv& c, const Map& residual, int from, long first, int count) {
  const float unit = c.steps ? c.per_scale : 1.f;
  if (c.residual_scale == 0) return as_floats(load_some(residual.data + from * residual.stride + first, count)) * unit;
  const float* plane = residual.data + from / kQuad * residual.stride + first;
  const vf byte = __builtin_convertvector(byte_of(load_some(plane, count), from), vf);
  return (byte - c.residual_zero) * (c.residual_scale * unit);
}

// The numbers of which bytes are made, in steps.
static inline vf in_steps(const ByteConv& c, const ByteFinish& f, int channel, vf v) {
  return c.steps ? v : apply(c.act, channel, v) * f.after + c.out_zero;
}

// Puts bytes among those of the other channels of a plane: `written` has the bits of those that are new.
static inline void put_bytes(float* to, vi bytes, unsigned written, int count) {
  if (written != ~0u) bytes = (load_some(to, count) & (int)~written) | (bytes & (int)written);
  store_bytes(to, bytes, count);
}

static inline unsigned bits_of(int place) { return 255u << 8 * (place % kQuad); }

static void pass(const ByteConv& c, int channel, const Map* residual, int from, const Map& out, int to) {
  float* plane = out.data + to / kQuad * out.stride;
  const ByteFinish none{0, 0, c.steps ? 1.f : c.per_scale};
  for (int i = 0; i < out.pixels(); i += L) {
    const int count = at_most(L, out.pixels() - i);
    vf v = splat(c.steps ? c.out_zero : 0.f);
    if (from >= 0) v += residual_at(c, *residual, from, i, count);
    const vi byte = to_byte(in_steps(c, none, channel, v), c.lowest, c.highest);
    put_bytes(plane + i, byte << 8 * (to % kQuad), bits_of(to), count);
  }
}

// A block's sums, and the pixels [first, first + pixels) of the map that they are for.
struct ByteSums {
  const int* sums;  // [channel][vector][lane]
  int vectors;
  long first;
  int pixels;
};

// How a plane of four channels gets its residual: none, one plane of bytes whose channels are in the same order, or
// channels from anywhere.
enum class Added { nothing, plane, anything };

// The output channels of one plane of four: those of them that a convolution computes.
struct ByteQuad {
  int plane;
  int slot[kQuad];  // number among the outputs, or -1
  ByteFinish finish[kQuad];
  unsigned written;  // the bits of their bytes
  Added added;

  // Outputs [j, end) that lie in the plane of the first of them; gives the number of the next output.
  int take(const ByteConv& c, const ByteOutputs& out, int j, int end) {
    plane = out.place[j] / kQuad;
    written = 0;
    for (int b = 0; b < kQuad; b++) slot[b] = -1, finish[b] = {0, 0, 0};
    for (; j < end && out.place[j] / kQuad == plane; j++) {
      const int b = out.place[j] % kQuad;
      slot[b] = j;
      finish[b] = finish_of(c, out.channel[j], out.scale[j]);
      written |= bits_of(b);
    }
    if (plane == (out.places - 1) / kQuad)  // nothing lies behind the last channel
      for (int b = (out.places - 1) % kQuad + 1; b < kQuad; b++) written |= bits_of(b);
    added = added_to(c, out);
    return j;
  }

  Added added_to(const ByteConv& c, const ByteOutputs& out) const {
    if (!out.residual) return Added::nothing;
    int from = -1, missing = 0;
    for (int b = 0; b < kQuad; b++) {
      if (slot[b] < 0) continue;
      const int place = out.residual_place[slot[b]];
      missing += place < 0;
      if (place < 0) continue;
      if (place % kQuad != b || (from >= 0 && from != place / kQuad)) return Added::anything;
      from = place / kQuad;
    }
    if (from < 0) return Added::nothing;
    return missing || c.residual_scale == 0 ? Added::anything : Added::plane;
  }
};

constexpr int kMostPlanes = 24;  // that the channels of a block lie in

// The planes that output channels [first, first + channels) lie in.
struct BytePlanes {
  int first, channels, count = 0;
  ByteQuad quad[kMostPlanes];
  BytePlanes(const ByteConv& c, const ByteOutputs& out, int first, int channels) : first(first), channels(channels) {
    for (int next = first; next < first + channels;) next = quad[count++].take(c, out, next, first + channels);
  }
};

// One plane whose four channels are all written, where all is in steps of bytes.
template <bool Residual>
static void finish_plane(const ByteConv& c, const ByteOutputs& out, const ByteQuad& quad, int j, float* to,
                         const ByteSums& s) {
  const int* sums[kQuad];
  float factor[kQuad], shift[kQuad];
  const float step = c.residual_scale * c.per_scale;
  const float* more = nullptr;
  for (int b = 0; b < kQuad; b++) {
    const int slot = quad.slot[b];
    sums[b] = s.sums + (slot < 0 ? 0 : (slot - j) * s.vectors * L);
    factor[b] = quad.finish[b].factor;
    shift[b] = quad.finish[b].shift - (Residual ? c.residual_zero * step : 0.f);
    if (Residual && slot >= 0)
      more = out.residual->data + out.residual_place[slot] / kQuad * out.residual->stride + s.first;
  }
  const float lowest = c.lowest, highest = c.highest;
  for (int i = 0; i < s.pixels; i += L) {
    const int count = at_most(L, s.pixels - i);
    vf v[kQuad];
    const vi bytes = Residual ? load_some(more + i, count) : vi{};
#pragma GCC unroll 4
    for (int b = 0; b < kQuad; b++) {
      v[b] = __builtin_convertvector(*reinterpret_cast<const vi_unaligned*>(sums[b] + i), vf) * factor[b] + shift[b];
      if (Residual) v[b] += __builtin_convertvector(byte_of(bytes, b), vf) * step;
    }
    store_bytes(to + i, bytes_of_channels(v, lowest, highest), count);
  }
}

// One plane in any other case; it keeps the channels that are not written.
static void finish_mixed(const ByteConv& c, const ByteOutputs& out, const ByteQuad& quad, int j, float* to,
                         const ByteSums& s) {
  for (int p = 0; p * L < s.pixels; p++) {
    const int count = at_most(L, s.pixels - p * L);
    vf v[kQuad];
#pragma GCC unroll 4
    for (int b = 0; b < kQuad; b++) {
      const int slot = quad.slot[b];
      v[b] = vf{};
      if (slot < 0) continue;
      v[b] = finished(quad.finish[b], s.sums + ((slot - j) * s.vectors + p) * L);
      const int from = out.residual_place[slot];
      if (from >= 0) v[b] += residual_at(c, *out.residual, from, s.first + p * L, count);
      v[b] = in_steps(c, quad.finish[b], out.channel[slot], v[b]);
    }
    put_bytes(to + p * L, bytes_of_channels(v, c.lowest, c.highest), quad.written, count);
  }
}

static void finish_bytes(const ByteConv& c, const ByteOutputs& out, const BytePlanes& planes, const ByteSums& s) {
  for (int n = 0; n < planes.count; n++) {
    const ByteQuad& quad = planes.quad[n];
    float* to = out.out->data + quad.plane * out.out->stride + s.first;
    const bool whole = quad.written == ~0u && c.steps;
    if (whole && quad.added == Added::nothing)
      finish_plane<false>(c, out, quad, planes.first, to, s);
    else if (whole && quad.added == Added::plane)
      finish_plane<true>(c, out, quad, planes.first, to, s);
    else
      finish_mixed(c, out, quad, planes.first, to, s);
  }
}

// Writes output channels [j, j + T) as floats.
static void finish_floats(const ByteConv& c, const ByteOutputs& out, int j, int T, const ByteSums& s) {
  for (int t = 0; t < T; t++) {
    const ByteFinish finish = finish_of(c, out.channel[j + t], out.scale[j + t]);
    const int from = out.residual_place[j + t];
    const float* more = from < 0 ? nullptr : out.residual->data + from * out.residual->stride + s.first;
    float* to = out.out->data + out.place[j + t] * out.out->stride + s.first;
    for (int p = 0; p * L < s.pixels; p++) {
      const int count = at_most(L, s.pixels - p * L);
      vf v = finished(finish, s.sums + (t * s.vectors + p) * L);
      if (more) v += as_floats(load_some(more + p * L, count));
      store_bytes(to + p * L, as_bits(apply(c.act, out.channel[j + t], v) * finish.after), count);
    }
  }
}

// Writes the channels of a block.
static inline void finish(const ByteConv& c, const ByteOutputs& out, const BytePlanes& planes, const ByteSums& s) {
  if (c.to_bytes)
    finish_bytes(c, out, planes, s);
  else
    finish_floats(c, out, planes.first, planes.channels, s);
}

}  // namespace SANP_NAMESPACE
