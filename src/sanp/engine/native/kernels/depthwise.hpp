// Depthwise convolution: every output channel reads one input channel. Vectors of pixels are read from the plane itself,
// and masks stand for the zeros around it. A few output rows are computed together, so that an input row is read once
// for all of them.
#pragma once
#include "activate.hpp"
#include "expand.hpp"
#include "pack.hpp"

namespace SANP_NAMESPACE {

constexpr int kMostAcross = 1024;  // columns of an output row

static inline bool is_depthwise(const Conv& c) {
  const Window& w = c.window;
  const bool square = w.kernel_y == w.kernel_x && w.stride_y == w.stride_x && w.dilation_y == 1 && w.dilation_x == 1;
  return square && c.groups == c.in_channels && w.out_width <= kMostAcross && w.stride_x <= 2 &&
         (w.kernel_x == 3 || w.kernel_x == 5 || w.kernel_x == 7);
}

// For each vector of an output row: which lanes of its loads are inside the plane, and which of it are written. With
// stride 1 a load is a column of the window; with stride 2 two loads are two columns, and sorted by every second.
template <int N, int K, int S>
struct Across {
  static constexpr int loads = S == 1 ? K : (K + 1) / 2 * 2;
  static constexpr int place(int n) { return S == 1 ? n : n / 2 * 2 + n % 2 * N; }  // of the first float of a load
  int vectors;
  unsigned mask[(kMostAcross + N - 1) / N][loads];
  unsigned written[(kMostAcross + N - 1) / N];

  explicit Across(const Window& w) : vectors((w.out_width + N - 1) / N) {
    for (int v = 0; v < vectors; v++) {
      for (int n = 0; n < loads; n++) {
        const int first = v * N * S - w.pad_x + place(n);
        mask[v][n] = lanes_between(-first, w.width - first, N);
      }
      written[v] = lanes_between(0, w.out_width - v * N, N);
    }
  }
};

// One plane in, one plane out.
struct DepthPlane {
  const float* in;
  const float* weight;
  float bias, scale;
  Bounds bounds;
  const float* residual;
  float* out;
};

// What comes of an input that is not live.
static void bias_plane(const Activation& act, int channel, const DepthPlane& d, long first, int count) {
  each(d.out + first, count, [&](int i, int n) {
    vf y = splat(d.bias * d.scale);
    if (d.residual) y += take(d.residual + first, i, n);
    return clip(y, d.bounds.low, d.bounds.high);
  });
  activate_written(act, &channel, &d.out, 1, first, count);
}

// Computes vector v of R output rows from y on.
template <int N, int K, int S, int R>
static inline void depth_rows(const Window& w, const Across<N, K, S>& across, const DepthPlane& d, int y, int v) {
  using Vector = Pack<N>;
  typename Vector::type sum[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; r++) sum[r] = Vector::splat(d.bias);
  const int top = y * S - w.pad_y;
  const float* left = d.in + (long)top * w.width + v * N * S - w.pad_x;
#pragma GCC unroll 16
  for (int i = 0; i < (R - 1) * S + K; i++, left += w.width) {
    if (top + i < 0 || top + i >= w.height) continue;
    typename Vector::type x[Across<N, K, S>::loads];
#pragma GCC unroll 8
    for (int n = 0; n < across.loads; n++) x[n] = Vector::load(left + across.place(n), across.mask[v][n]);
    if constexpr (S == 2)
#pragma GCC unroll 8
      for (int n = 0; n < across.loads; n += 2) {
        const auto even = Vector::template every_second<0>(x[n], x[n + 1]);
        x[n + 1] = Vector::template every_second<1>(x[n], x[n + 1]);
        x[n] = even;
      }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      const int row = i - r * S;
      if (row < 0 || row >= K) continue;
#pragma GCC unroll 7
      for (int k = 0; k < K; k++) sum[r] += d.weight[row * K + k] * x[k];
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; r++) {
    const long at = (long)(y + r) * w.out_width + v * N;
    sum[r] *= d.scale;
    if (d.residual) sum[r] += Vector::load(d.residual + at, across.written[v]);
    Vector::store(d.out + at, Vector::clip(sum[r], d.bounds), across.written[v]);
  }
}

// Computes output rows [y, bottom), and gives the first row that is not done.
template <int N, int K, int S, int R>
static int depth_bands(const Window& w, const Across<N, K, S>& across, const Activation& act, int channel,
                       const DepthPlane& d, int y, int bottom) {
  for (; y + R <= bottom; y += R) {
    for (int v = 0; v < across.vectors; v++) depth_rows<N, K, S, R>(w, across, d, y, v);
    activate_written(act, &channel, &d.out, 1, (long)y * w.out_width, R * w.out_width);
  }
  return y;
}

template <int N, int K, int S>
static void depth_planes(const Conv& c, const Map& in, const Outputs& out, Share share) {
  const Window& w = c.window;
  const Across<N, K, S> across(w);
  const bool by_rows = share.size > 1 && w.out_height >= 4 * share.size;
  const int from = by_rows ? 0 : share.from(out.count), to = by_rows ? out.count : share.to(out.count);
  const int top = by_rows ? share.from(w.out_height) : 0, bottom = by_rows ? share.to(w.out_height) : w.out_height;
  const Weights& weights = c.of(Algorithm::direct);
  const int each = c.out_channels / c.groups;
  for (int j = from, a = 0; j < to; j++) {
    const int channel = out.channel[j];
    while (a < in.live && in.index[a] < channel / each) a++;
    const bool live = a < in.live && in.index[a] == channel / each;
    const DepthPlane d{in.data + a * in.stride, weights.data + channel * weights.row, c.bias[channel], out.scale[j],
                       bounds_of(c.act), out.residual[j], out.plane[j]};
    if (!live) {
      bias_plane(c.act, channel, d, (long)top * w.out_width, (bottom - top) * w.out_width);
      continue;
    }
    int y = depth_bands<N, K, S, 4>(w, across, c.act, channel, d, top, bottom);
    y = depth_bands<N, K, S, 2>(w, across, c.act, channel, d, y, bottom);
    depth_bands<N, K, S, 1>(w, across, c.act, channel, d, y, bottom);
  }
}

// Half a vector is enough where it leaves fewer lanes empty.
template <int K, int S>
static void depth_width(const Conv& c, const Map& in, const Outputs& out, Share share) {
  if constexpr (L == 16) {
    const int width = c.window.out_width;
    if ((width + 7) / 8 % 2 == 1) return depth_planes<8, K, S>(c, in, out, share);
  }
  depth_planes<L, K, S>(c, in, out, share);
}

static void depthwise(const Conv& c, const Map& in, const Outputs& out, Share share) {
  switch (c.window.kernel_x * 10 + c.window.stride_x) {
    case 31: return depth_width<3, 1>(c, in, out, share);
    case 32: return depth_width<3, 2>(c, in, out, share);
    case 51: return depth_width<5, 1>(c, in, out, share);
    case 52: return depth_width<5, 2>(c, in, out, share);
    case 71: return depth_width<7, 1>(c, in, out, share);
    default: return depth_width<7, 2>(c, in, out, share);
  }
}

}  // namespace SANP_NAMESPACE
