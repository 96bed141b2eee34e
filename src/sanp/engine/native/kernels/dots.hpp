// The last pixels of a map that do not fill a vector, for windows of one pixel: dot products over the input channels,
// which are the lanes here. A map of 7x7 pixels is three vectors and one pixel.
#pragma once
#include "activate.hpp"
#include "expand.hpp"

namespace SANP_NAMESPACE {

constexpr int kMostDotted = 4;

// The pixels that are computed so; the channels of each lie one after the other, zeros for those that are not live.
struct Dots {
  int pixels;
  const float* in;
  long row;  // floats of one pixel
};

static long dots_scratch(const Conv& c) { return kMostDotted * odd_lines(c.in_channels); }

// Of a band of pixels, the last ones if a vector of them would take longer: a dot product takes a multiplication for
// each vector of channels, and about twelve instructions to add up the lanes.
static Dots gather_dots(const Conv& c, const Map& in, long first, int pixels, float* room) {
  const int rest = pixels % L;
  if (rest == 0 || rest > kMostDotted || rest * (c.in_channels / L + 12) >= in.live) return {};
  const Dots dots{rest, room, odd_lines(c.in_channels)};
  for (int p = 0; p < rest; p++) {
    float* to = room + p * dots.row;
    for (int i = 0; i < c.in_channels; i += L) store(to + i, vf{});
    for (int a = 0; a < in.live; a++) to[in.index[a]] = in.data[a * in.stride + first + pixels - rest + p];
  }
  return dots;
}

// The sums of T output channels by P pixels. Meanwhile the rows of weights that come next are fetched.
template <int T, int P>
static inline void dot_block(const float* const* weight, const float* const* next, const Dots& dots, int channels,
                             float (&sums)[T][P]) {
  vf sum[T][P]{};
  for (int i = 0; i < channels; i += L) {
    vf x[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; p++) x[p] = load(dots.in + p * dots.row + i);
#pragma GCC unroll 4
    for (int t = 0; t < T; t++) {
      const vf w = load(weight[t] + i);
      __builtin_prefetch(next[t] + i);
#pragma GCC unroll 4
      for (int p = 0; p < P; p++) sum[t][p] += w * x[p];
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < T; t++)
#pragma GCC unroll 4
    for (int p = 0; p < P; p++) sums[t][p] = sum_lanes(sum[t][p]);
}

template <int T, int P>
static void write_dots(const Conv& c, const Dots& dots, const Outputs& out, int j, long at) {
  const Weights& weights = c.of(Algorithm::direct);
  const Bounds bounds = bounds_of(c.act);
  const float *weight[T], *next[T];
  for (int t = 0; t < T; t++) {
    weight[t] = weights.data + out.channel[j + t] * weights.row;
    next[t] = weights.data + out.channel[at_most(j + T + t, out.count - 1)] * weights.row;
  }
  float sums[T][P];
  dot_block<T, P>(weight, next, dots, c.in_channels, sums);
  for (int t = 0; t < T; t++)
    for (int p = 0; p < P; p++) {
      float y = (sums[t][p] + c.bias[out.channel[j + t]]) * out.scale[j + t];
      if (out.residual[j + t]) y += out.residual[j + t][at + p];
      y = y < bounds.low ? bounds.low : y;
      out.plane[j + t][at + p] = y > bounds.high ? bounds.high : y;
    }
}

// Computes the pixels of output channels [j, j + count), which are written from `at` on.
static void dot_pixels(const Conv& c, const Dots& dots, const Outputs& out, int j, int count, long at) {
  constexpr int T = SANP_REGISTERS >= 32 ? 4 : 2;
  const auto run = [&](auto one, auto several) {
    int t = 0;
    for (; t + T <= count; t += T) several(c, dots, out, j + t, at);
    for (; t < count; t++) one(c, dots, out, j + t, at);
  };
  switch (dots.pixels) {
    case 1: run(write_dots<1, 1>, write_dots<T, 1>); break;
    case 2: run(write_dots<1, 2>, write_dots<T, 2>); break;
    case 3: run(write_dots<1, 3>, write_dots<T, 3>); break;
    default: run(write_dots<1, 4>, write_dots<T, 4>);
  }
  activate_written(c.act, out.channel + j, out.plane + j, count, at, dots.pixels);
}

}  // namespace SANP_NAMESPACE
