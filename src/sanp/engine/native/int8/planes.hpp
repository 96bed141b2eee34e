// Maps of bytes plane by plane: to and from floats, means of channels, windows' largest and average bytes, sums of channels.
#pragma once
#include "conv.hpp"

namespace SANP_NAMESPACE {

static void quantise(const Map& in, ByteScale s, const Map& out, int n) {
  const int here = at_most(kQuad, in.live - n * kQuad);
  float* to = out.data + n * out.stride;
  const float per_scale = 1 / s.scale;
  for (int i = 0; i < in.pixels(); i += L) {
    const int count = at_most(L, in.pixels() - i);
    vf v[kQuad];
#pragma GCC unroll 4
    for (int b = 0; b < kQuad; b++)
      v[b] = b < here ? as_floats(load_some(in.data + (n * kQuad + b) * in.stride + i, count)) * per_scale + (float)s.zero
                      : vf{};
    store_bytes(to + i, bytes_of_channels(v, 0.f, 255.f), count);
  }
}

static void dequantise(const Map& in, ByteScale s, const Map& out, int n) {
  const float* from = in.data + n * in.stride;
  for (int b = 0; b < at_most(kQuad, in.live - n * kQuad); b++) {
    float* to = out.data + (n * kQuad + b) * out.stride;
    for (int i = 0; i < in.pixels(); i += L) {
      const int count = at_most(L, in.pixels() - i);
      const vi steps = byte_of(load_some(from + i, count), b) - s.zero;
      store_bytes(to + i, as_bits(__builtin_convertvector(steps, vf) * s.scale), count);
    }
  }
}

// Adds the bytes of the four channels to their sums.
static inline void add_bytes(vi (&sum)[kQuad], vi quad) {
#ifdef __AVX512VNNI__
  for (int b = 0; b < kQuad; b++) sum[b] = dot(sum[b], quad, splat_bits(1 << 8 * b));
#else
  for (int b = 0; b < kQuad; b++) sum[b] += byte_of(quad, b);
#endif
}

// Sums are whole numbers of up to 2^36, which a double holds.
static void mean(const Map& in, ByteScale s, const Map& out, int n) {
  const float* from = in.data + n * in.stride;
  const int here = at_most(kQuad, in.live - n * kQuad), pixels = in.pixels();
  constexpr int most = 1 << 20;  // pixels whose sum fits 32 bits
  double total[kQuad] = {};
  for (int first = 0; first < pixels; first += most) {
    vi sum[kQuad] = {};
    const int last = at_most(pixels, first + most);
    for (int i = first; i < last; i += L) add_bytes(sum, load_some(from + i, last - i));
    const Channels added = add_four_lanes(sum[0], sum[1], sum[2], sum[3]);
    for (int b = 0; b < here; b++) total[b] += added[b];
  }
  for (int b = 0; b < here; b++)
    out.data[(n * kQuad + b) * out.stride] = (float)((total[b] - (double)s.zero * pixels) / pixels * (double)s.scale);
}

typedef unsigned char vb __attribute__((vector_size(L * 4)));

static inline vi larger_bytes(vi a, vi b) {
  const vb x = (vb)a, y = (vb)b;
  return (vi)(x > y ? x : y);
}

static long pool_scratch(const Window& w) { return plan_copies(w, 0, w.out_height).channel + 4 * L; }

static void pool(const Window& w, const Map& in, const Map& out, int n, float* room) {
  const Copies copies = plan_copies(w, 0, w.out_height);
  expand_plane(w, copies, in.data + n * in.stride, room, 0.f);  // no byte is smaller than 0
  float* to = out.data + n * out.stride;
  for (int i = 0; i < out.pixels(); i += L) {
    vi best{};
    for (int y = 0; y < w.kernel_y; y++)
      for (int x = 0; x < w.kernel_x; x++) best = larger_bytes(best, load_bytes(room + tap_offset(w, copies, y, x) + i));
    store_bytes(to + i, best, at_most(L, out.pixels() - i));
  }
}

// Around the map lie bytes that stand for zero, so that a sum over the whole window is one over its part inside.
static void average(const ByteAverage& a, const Map& in, const Map& out, int n, float* room) {
  const Window& w = a.window;
  const Copies copies = plan_copies(w, 0, w.out_height);
  expand_plane(w, copies, in.data + n * in.stride, room, zero_word(a.zero));
  float* to = out.data + n * out.stride;
  for (int i = 0; i < out.pixels(); i += L) {
    const int count = at_most(L, out.pixels() - i);
    vi sum[kQuad];
    for (vi& each : sum) each = splat_bits(-a.zero * w.taps());
    for (int y = 0; y < w.kernel_y; y++)
      for (int x = 0; x < w.kernel_x; x++) add_bytes(sum, load_bytes(room + tap_offset(w, copies, y, x) + i));
    const vf inverse = as_floats(load_some(a.inverse + i, count));
    vf v[kQuad];
#pragma GCC unroll 4
    for (int b = 0; b < kQuad; b++) v[b] = __builtin_convertvector(sum[b], vf) * inverse + a.out_zero;
    store_bytes(to + i, bytes_of_channels(v, 0.f, 255.f), count);
  }
}

static void combine(const ByteRounding& r, const ByteSum* sums, int here, float* to, int pixels) {
  for (int i = 0; i < pixels; i += L) {
    const int count = at_most(L, pixels - i);
    vf v[kQuad];
#pragma GCC unroll 4
    for (int b = 0; b < kQuad; b++) {
      v[b] = vf{};
      if (b >= here) continue;
      const ByteSum& s = sums[b];
      v[b] = splat(s.shift);
      for (int t = 0; t < kByteTerms; t++)
        v[b] += __builtin_convertvector(load_some(s.plane[t] + i, count) >> s.bits[t] & 255, vf) * s.factor[t];
      if (!r.steps) v[b] = apply(r.act, s.channel, v[b]) * r.per_scale + r.out_zero;
    }
    store_bytes(to + i, bytes_of_channels(v, r.lowest, r.highest), count);
  }
}

}  // namespace SANP_NAMESPACE
