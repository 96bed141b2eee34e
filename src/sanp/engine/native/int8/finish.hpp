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

// The same for a channel that is not computed.
static inline ByteFinish nothing_made(const ByteConv& c) {
  return c.steps ? ByteFinish{0, c.out_zero, 1} : ByteFinish{0, 0, c.per_scale};
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
  const ByteFinish none = nothing_made(c);
  for (int i = 0; i < out.pixels(); i += L) {
    const int count = at_most(L, out.pixels() - i);
    vf v = splat(none.shift);
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

// How a plane of four channels gets its residual: none, one plane of bytes whose channels are in the same order, bytes
// from anywhere, or floats.
enum class Added { nothing, plane, apart, floats };

// The output channels of one plane of four: those that a block computes, and those that no block computes.
struct ByteQuad {
  int plane;
  int slot[kQuad];     // number among the outputs, or -1
  int from[kQuad];     // place in the residual, or -1
  int channel[kQuad];
  ByteFinish finish[kQuad];
  unsigned written;  // the bits of their bytes
  Added added;

  // The plane of output j, of a block that ends at `end`; gives the number of the next plane's first output. Which of its
  // channels are computed has no pattern, so that numbers are chosen without a branch.
  int take(const ByteConv& c, const ByteOutputs& out, int j, int end) {
    plane = out.place[j] / kQuad;
    written = 0;
    const ByteFinish none = nothing_made(c);
    bool any = false, in_order = true;
    for (int b = 0; b < kQuad; b++) {
      const int place = plane * kQuad + b;
      slot[b] = from[b] = -1, channel[b] = 0, finish[b] = {0, 0, 0};
      if (place >= out.places) {  // nothing lies behind the last channel
        written |= bits_of(b);
        continue;
      }
      const int number = out.made[place];
      if (number >= end || (number >= 0) & (number < j)) continue;  // another block's
      written |= bits_of(b);
      slot[b] = number;
      from[b] = out.residual ? out.from[place] : -1;
      channel[b] = out.at[place];
      const ByteFinish made = finish_of(c, channel[b], out.scale[at_least(number, 0)]);
      finish[b].factor = number >= 0 ? made.factor : none.factor;
      finish[b].shift = number >= 0 ? made.shift : none.shift;
      finish[b].after = number >= 0 ? made.after : none.after;
      any |= from[b] >= 0;
      in_order &= (from[b] >= 0) & (from[b] % kQuad == b) & (from[b] / kQuad == from[0] / kQuad);
    }
    added = !any ? Added::nothing
            : c.residual_scale == 0 ? Added::floats
            : in_order && from[0] >= 0 ? Added::plane
                                       : Added::apart;
    while (j < end && out.place[j] / kQuad == plane) j++;
    return j;
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

// One plane whose four channels are all written, where all is in steps of bytes and the residual is one of bytes.
template <Added A>
static void finish_plane(const ByteConv& c, const ByteOutputs& out, const ByteQuad& quad, int j, float* to,
                         const ByteSums& s) {
  const int* sums[kQuad];
  const float* more[kQuad];
  float factor[kQuad], shift[kQuad], step[kQuad];
  int down[kQuad];  // bits below the residual's byte
  for (int b = 0; b < kQuad; b++) {
    const int slot = quad.slot[b], from = quad.from[b];
    sums[b] = s.sums + (slot < 0 ? 0 : (slot - j) * s.vectors * L);
    factor[b] = quad.finish[b].factor;
    shift[b] = quad.finish[b].shift;
    if (A == Added::nothing) continue;
    step[b] = from < 0 ? 0.f : c.residual_scale * c.per_scale;
    shift[b] -= c.residual_zero * step[b];
    more[b] = out.residual->data + at_least(from, 0) / kQuad * out.residual->stride + s.first;
    down[b] = 8 * (at_least(from, 0) % kQuad);
  }
  const float lowest = c.lowest, highest = c.highest;
  for (int i = 0; i < s.pixels; i += L) {
    const int count = at_most(L, s.pixels - i);
    vf v[kQuad];
    const vi bytes = A == Added::plane ? load_some(more[0] + i, count) : vi{};
#pragma GCC unroll 4
    for (int b = 0; b < kQuad; b++) {
      v[b] = __builtin_convertvector(*reinterpret_cast<const vi_unaligned*>(sums[b] + i), vf) * factor[b] + shift[b];
      if (A == Added::plane) v[b] += __builtin_convertvector(byte_of(bytes, b), vf) * step[b];
      if (A == Added::apart) v[b] += __builtin_convertvector(load_some(more[b] + i, count) >> down[b] & 255, vf) * step[b];
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
      v[b] = finished(quad.finish[b], s.sums + (slot < 0 ? p : (slot - j) * s.vectors + p) * L);
      if (quad.from[b] >= 0) v[b] += residual_at(c, *out.residual, quad.from[b], s.first + p * L, count);
      v[b] = in_steps(c, quad.finish[b], quad.channel[b], v[b]);
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
      finish_plane<Added::nothing>(c, out, quad, planes.first, to, s);
    else if (whole && quad.added == Added::plane)
      finish_plane<Added::plane>(c, out, quad, planes.first, to, s);
    else if (whole && quad.added == Added::apart)
      finish_plane<Added::apart>(c, out, quad, planes.first, to, s);
    else
      finish_mixed(c, out, quad, planes.first, to, s);
  }
}

// Writes output channels [j, j + T) as floats.
static void finish_floats(const ByteConv& c, const ByteOutputs& out, int j, int T, const ByteSums& s) {
  for (int t = 0; t < T; t++) {
    const ByteFinish finish = finish_of(c, out.channel[j + t], out.scale[j + t]);
    const int from = out.residual ? out.from[out.place[j + t]] : -1;
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
