// Depthwise convolution: every output channel reads one input channel. Vectors of pixels are read from the plane itself,
// and masks stand for the zeros around it. A few output rows are computed together, so that an input row is read once
// for all of them. In small planes addresses and edges would take longer than the arithmetic: the compiler knows them.
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

// The weights of a plane, in registers where they are few, and what its sums begin with and are multiplied by.
template <int N, int K>
struct Taps {
  using Vector = Pack<N>;
  static constexpr bool kept = K == 3 && SANP_REGISTERS >= 32;
  typename Vector::type weight[kept ? K * K : 1];
  typename Vector::type bias, scale;
  const float* at;

  [[gnu::always_inline]] inline explicit Taps(const DepthPlane& d)
      : bias(Vector::splat(d.bias)), scale(Vector::splat(d.scale)), at(d.weight) {
    if constexpr (kept)
#pragma GCC unroll 9
      for (int k = 0; k < K * K; k++) weight[k] = Vector::splat(d.weight[k]);
  }
  inline auto operator[](int k) const {
    if constexpr (kept)
      return weight[k];
    else
      return at[k];
  }
};

// Which rows of the window of some output rows are outside of the plane: those above its first and below its last row,
// or whichever the row's number says.
enum class Edge { none, top, bottom, both, any };

// Computes the v-th vector of R output rows from y on.
template <int N, int K, int S, int R, Edge edge, class Sides>
[[gnu::always_inline]] static inline void depth_rows(const Sides& w, const Across<N, K, S>& across,
                                                     const Taps<N, K>& taps, const DepthPlane& d, int y, int v) {
  using Vector = Pack<N>;
  const int x = v * N;
  constexpr int loads = Across<N, K, S>::loads;
  typename Vector::mask_type mask[loads];
#pragma GCC unroll 8
  for (int n = 0; n < loads; n++) mask[n] = across.mask[v][n];
  constexpr int rows = (R - 1) * S + K, above = edge == Edge::top || edge == Edge::both ? K / 2 : 0;
  constexpr int below = edge == Edge::bottom || edge == Edge::both ? K / 2 + 1 - S : 0;
  typename Vector::type sum[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) sum[r] = taps.bias;
  const int top = y * S - w.pad_y;
  const float* left = d.in + (long)(top + above) * w.width + x * S - w.pad_x;
#pragma GCC unroll 20
  for (int i = above; i < rows - below; i++, left += w.width) {
    if (edge == Edge::any && (top + i < 0 || top + i >= w.height)) continue;
    typename Vector::type taken[loads];
#pragma GCC unroll 8
    for (int n = 0; n < loads; n++) taken[n] = Vector::load(left + Across<N, K, S>::place(n), mask[n]);
    if constexpr (S == 2)
#pragma GCC unroll 8
      for (int n = 0; n < loads; n += 2) {
        const auto even = Vector::template every_second<0>(taken[n], taken[n + 1]);
        taken[n + 1] = Vector::template every_second<1>(taken[n], taken[n + 1]);
        taken[n] = even;
      }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
      const int row = i - r * S;
      if (row < 0 || row >= K) continue;
#pragma GCC unroll 7
      for (int k = 0; k < K; k++) sum[r] += taps[row * K + k] * taken[k];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) {
    const long at = (long)(y + r) * w.out_width + x;
    sum[r] *= taps.scale;
    if (d.residual) sum[r] += Vector::load(d.residual + at, across.written[v]);
    Vector::store(d.out + at, Vector::clip(sum[r], d.bounds), across.written[v]);
  }
}

constexpr int kRows = SANP_REGISTERS >= 32 ? 7 : 4;  // that are computed together

// A plane of any sides.
template <int N, int K, int S>
struct AnyPlane {
  Window w;
  Across<N, K, S> across;
  explicit AnyPlane(const Window& w) : w(w), across(w) {}
  template <int R>
  int rows(const Activation& act, int channel, const Taps<N, K>& taps, const DepthPlane& d, int y, int end) const {
    for (; y + R <= end; y += R) {
      for (int v = 0; v < across.vectors; v++) depth_rows<N, K, S, R, Edge::any>(w, across, taps, d, y, v);
      activate_written(act, &channel, &d.out, 1, (long)y * w.out_width, R * w.out_width);
    }
    return y;
  }
  void operator()(const Activation& act, int channel, const DepthPlane& d, int y, int bottom) const {
    const Taps<N, K> taps(d);
    y = rows<4>(act, channel, taps, d, y, bottom);
    rows<1>(act, channel, taps, d, y, bottom);
  }
};

constexpr int kLargePlane = 56 * 56;  // many of these come from the third-level cache

// A plane of several whole blocks of rows, in which windows reach as far below the last row as above the first.
template <int N, int K, int S>
struct BlockPlane {
  Window w;
  Across<N, K, S> across;
  bool fetches;
  explicit BlockPlane(const Window& w) : w(w), across(w), fetches(w.height * w.width >= kLargePlane) {}
  static bool fits(const Window& w) {
    return w.pad_y == K / 2 && w.height == S * w.out_height && w.out_height % kRows == 0 && w.out_height > kRows;
  }
  template <Edge edge>
  [[gnu::always_inline]] inline void block(const Taps<N, K>& taps, const Activation& act, int channel,
                                           const DepthPlane& d, int y) const {
    const float* next = d.in + (long)(y * S - w.pad_y + (kRows - 1) * S + K) * w.width;
    for (int v = 0; v < across.vectors; v++) {
      depth_rows<N, K, S, kRows, edge>(w, across, taps, d, y, v);
      if (fetches)  // the rows that the next block reads, or those of the next plane, which lies behind this one
#pragma GCC unroll 14
        for (int r = 0; r < kRows * S; r++) __builtin_prefetch(next + (long)r * w.width + v * N * S);
    }
    activate_written(act, &channel, &d.out, 1, (long)y * w.out_width, kRows * w.out_width);
  }
  void operator()(const Activation& act, int channel, const DepthPlane& d, int, int) const {
    const Taps<N, K> taps(d);
    const int last = w.out_height - kRows;
    block<Edge::top>(taps, act, channel, d, 0);
    for (int y = kRows; y < last; y += kRows) block<Edge::none>(taps, act, channel, d, y);
    block<Edge::bottom>(taps, act, channel, d, last);
  }
};

// A square plane of one vector's width, and of one or two blocks of rows.
template <int N, int K, int S, int Side>
struct SmallPlane {
  static constexpr int height = S * Side, width = S * Side, out_height = Side, out_width = Side;
  static constexpr int pad_y = K / 2, pad_x = K / 2;
  Across<N, K, S> across;
  explicit SmallPlane(const Window& w) : across(w) {}
  static bool fits(const Window& w) {
    return w.height == height && w.width == width && w.out_height == Side && w.out_width == Side && w.pad_y == pad_y &&
           w.pad_x == pad_x;
  }
  void operator()(const Activation& act, int channel, const DepthPlane& d, int, int) const {
    constexpr int R = kRows;
    static_assert(Side <= N && (Side == R || Side == 2 * R), "one vector, one or two blocks");
    const Taps<N, K> taps(d);
    if constexpr (Side == R) {
      depth_rows<N, K, S, R, Edge::both>(*this, across, taps, d, 0, 0);
    } else {
      depth_rows<N, K, S, R, Edge::top>(*this, across, taps, d, 0, 0);
      depth_rows<N, K, S, R, Edge::bottom>(*this, across, taps, d, R, 0);
    }
    activate_written(act, &channel, &d.out, 1, 0, Side * Side);
  }
};

template <class Plane>
static void depth_planes(const Conv& c, const Map& in, const Outputs& out, Share share, bool by_rows) {
  const Window& w = c.window;
  const Plane plane(w);
  const int from = by_rows ? 0 : share.from(out.count), to = by_rows ? out.count : share.to(out.count);
  const int top = by_rows ? share.from(w.out_height) : 0, bottom = by_rows ? share.to(w.out_height) : w.out_height;
  const Weights weights = c.of(Algorithm::direct);
  const Bounds bounds = bounds_of(c.act);
  const int each = c.out_channels / c.groups;
  for (int j = from, a = 0; j < to; j++) {
    const int channel = out.channel[j], source = each == 1 ? channel : channel / each;
    while (a < in.live && in.index[a] < source) a++;
    const DepthPlane d{in.data + a * in.stride, weights.data + channel * weights.row, c.bias[channel], out.scale[j],
                       bounds, out.residual[j], out.plane[j]};
    if (a < in.live && in.index[a] == source)
      plane(c.act, channel, d, top, bottom);
    else
      bias_plane(c.act, channel, d, (long)top * w.out_width, (bottom - top) * w.out_width);
  }
}

template <int N, int K, int S>
static void depth_lanes(const Conv& c, const Map& in, const Outputs& out, Share share, bool by_rows) {
  if (!by_rows && BlockPlane<N, K, S>::fits(c.window))
    return depth_planes<BlockPlane<N, K, S>>(c, in, out, share, by_rows);
  depth_planes<AnyPlane<N, K, S>>(c, in, out, share, by_rows);
}

// Half a vector is enough where it leaves fewer lanes empty.
template <int K, int S>
static void depth_width(const Conv& c, const Map& in, const Outputs& out, Share share) {
  const Window& w = c.window;
  const bool by_rows = share.size > 1 && w.out_height >= 4 * share.size;
  if constexpr (L == 16 && kRows == 7) {
    using Seven = SmallPlane<8, K, S, 7>;
    using Fourteen = SmallPlane<16, K, S, 14>;
    if (!by_rows && Seven::fits(w)) return depth_planes<Seven>(c, in, out, share, by_rows);
    if (!by_rows && Fourteen::fits(w)) return depth_planes<Fourteen>(c, in, out, share, by_rows);
  }
  if constexpr (L == 16)
    if ((w.out_width + 7) / 8 % 2 == 1) return depth_lanes<8, K, S>(c, in, out, share, by_rows);
  depth_lanes<L, K, S>(c, in, out, share, by_rows);
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
