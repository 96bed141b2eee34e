// Winograd's F(2x2, 3x3) and F(4x4, 3x3) on the live channels (Lavin and Gray, arXiv:1509.09308): lanes are tiles, so each
// of the (M + 2)^2 frequencies is a product of plain weights with vectors of tiles, in the same register block as direct.
#include "direct.hpp"

namespace SANP_NAMESPACE {

template <int M>
struct Transform;

template <>
struct Transform<2> {
  static inline void input(const vf (&d)[4], vf (&o)[4]) {
    o[0] = d[0] - d[2];
    o[1] = d[1] + d[2];
    o[2] = d[2] - d[1];
    o[3] = d[1] - d[3];
  }
  static inline void output(const vf (&m)[4], vf (&o)[2]) {
    o[0] = m[0] + m[1] + m[2];
    o[1] = m[1] - m[2] - m[3];
  }
};

template <>
struct Transform<4> {
  static inline void input(const vf (&d)[6], vf (&o)[6]) {
    const vf a = d[4] - 4.f * d[2], b = d[3] - 4.f * d[1];
    const vf c = d[4] - d[2], e = 2.f * (d[3] - d[1]);
    o[0] = 4.f * d[0] - 5.f * d[2] + d[4];
    o[1] = a + b;
    o[2] = a - b;
    o[3] = c + e;
    o[4] = c - e;
    o[5] = 4.f * d[1] - 5.f * d[3] + d[5];
  }
  static inline void output(const vf (&m)[6], vf (&o)[4]) {
    const vf a = m[1] + m[2], b = m[1] - m[2], c = m[3] + m[4], e = m[3] - m[4];
    o[0] = m[0] + a + c;
    o[1] = b + 2.f * e;
    o[2] = a + 4.f * c;
    o[3] = b + 8.f * e + m[5];
  }
};

template <int M>
static Window tile_window(const Window& w) {
  Window t = w;
  t.kernel_y = t.kernel_x = M + 2;
  t.stride_y = t.stride_x = M;
  t.out_height = (w.out_height + M - 1) / M;
  t.out_width = (w.out_width + M - 1) / M;
  return t;
}

static inline int padded(int tiles) { return (tiles + L - 1) / L * L; }

// Rows of tiles that are transformed together.
template <int M>
static int tile_band(const Window& t, int channels, int share) {
  constexpr int F = (M + 2) * (M + 2);
  int rows = (t.out_height + share - 1) / share;
  channels = at_least(channels, kMostChannels);  // the sums want room too
  while (rows > 1 && (long)F * channels * padded(rows * t.out_width) > 2 * kBandFloats) rows = (rows + 1) / 2;
  if (rows == t.out_height) return rows;
  int whole = 1;
  while (whole * t.out_width % L != 0) whole *= 2;
  return rows > whole ? rows / whole * whole : rows;
}

struct TileScratch {
  long copies, input, sums, pixels;
  long total() const { return copies + input + sums + pixels; }
};

template <int M>
static TileScratch tile_scratch(const Window& t, int channels, int rows) {
  constexpr int F = (M + 2) * (M + 2);
  const long tiles = padded(rows * t.out_width);
  return {plan_copies(t, 0, rows).channel + 4 * L, F * channels * tiles, (long)kMostChannels * F * tiles,
          M * M * tiles + 2 * L};
}

template <int M>
static void transform_input(const Window& t, const Copies& copies, const float* plane, float* room, float* out,
                            long frequency, int tiles) {
  constexpr int N = M + 2;
  expand_plane(t, copies, plane, room, 0.f);
  long tap[N][N];
  for (int y = 0; y < N; y++)
    for (int x = 0; x < N; x++) tap[y][x] = tap_offset(t, copies, y, x);
  for (int v = 0; v < tiles; v += L) {
    vf half[N][N];  // [column][row frequency]
#pragma GCC unroll 6
    for (int x = 0; x < N; x++) {
      vf d[N];
#pragma GCC unroll 6
      for (int y = 0; y < N; y++) d[y] = load(room + tap[y][x] + v);
      Transform<M>::input(d, half[x]);
    }
#pragma GCC unroll 6
    for (int y = 0; y < N; y++) {
      vf d[N], o[N];
#pragma GCC unroll 6
      for (int x = 0; x < N; x++) d[x] = half[x][y];
      Transform<M>::input(d, o);
#pragma GCC unroll 6
      for (int x = 0; x < N; x++) store(out + (y * N + x) * frequency + v, o[x]);
    }
  }
}

// Sums of all frequencies to pixels, [row in tile][column in tile][tile].
template <int M>
static void transform_output(const float* sums, float* pixels, int tiles) {
  constexpr int N = M + 2;
  for (int v = 0; v < tiles; v += L) {
    vf half[N][M];  // [column frequency][row in tile]
#pragma GCC unroll 6
    for (int x = 0; x < N; x++) {
      vf m[N];
#pragma GCC unroll 6
      for (int y = 0; y < N; y++) m[y] = load(sums + (long)(y * N + x) * tiles + v);
      Transform<M>::output(m, half[x]);
    }
#pragma GCC unroll 4
    for (int y = 0; y < M; y++) {
      vf m[N], o[M];
#pragma GCC unroll 6
      for (int x = 0; x < N; x++) m[x] = half[x][y];
      Transform<M>::output(m, o);
#pragma GCC unroll 4
      for (int x = 0; x < M; x++) store(pixels + (long)(y * M + x) * tiles + v, o[x]);
    }
  }
}

struct Finish {
  float bias, scale;
  bool relu;
};

static inline void finish_row(const Finish& f, vf v, float* out, const float* residual, int room) {
  if (room <= 0) return;
  v = (v + f.bias) * f.scale;
  if (residual) v = v + load(residual);
  if (f.relu) v = relu(v);
  if (room >= L)
    store(out, v);
  else
    store_first(out, v, room);
}

// One row of output pixels; `room` is how many may be written, at least the row's own.
template <int M>
static void write_row(const Finish& f, const float* pixels, int tiles, int across, float* out, const float* residual,
                      int width, int room) {
  for (int i = 0; i < across && i * M < width; i += L) {
    vf v[M];
    if constexpr (M == 2) {
      const vf a = load(pixels + i), b = load(pixels + tiles + i);
      v[0] = interleave_low(a, b);
      v[1] = interleave_high(a, b);
    } else {
      const vf a = load(pixels + i), b = load(pixels + tiles + i);
      const vf c = load(pixels + 2 * tiles + i), d = load(pixels + 3 * tiles + i);
      const vf ac = interleave_low(a, c), bd = interleave_low(b, d);
      const vf AC = interleave_high(a, c), BD = interleave_high(b, d);
      v[0] = interleave_low(ac, bd);
      v[1] = interleave_high(ac, bd);
      v[2] = interleave_low(AC, BD);
      v[3] = interleave_high(AC, BD);
    }
#pragma GCC unroll 4
    for (int m = 0; m < M; m++) {
      const int x = i * M + m * L;
      if (x < width) finish_row(f, v[m], out + x, residual ? residual + x : nullptr, room - x);
    }
  }
}

template <int M>
static void winograd(const Conv& c, const Map& in, const Outputs& out, Scratch scratch, Share share) {
  constexpr int F = (M + 2) * (M + 2);
  const Window t = tile_window<M>(c.window);
  const float* weights = M == 2 ? c.winograd2 : c.winograd4;
  const long weights_row = M == 2 ? c.winograd2_row : c.winograd4_row;
  const bool by_rows = share.size > 1 && t.out_height >= 2 * share.size;
  const int rows = tile_band<M>(t, at_least(in.live, 1), by_rows ? share.size : 1);
  const TileScratch plan = tile_scratch<M>(t, at_least(in.live, 1), rows);
  float* room = scratch.floats;
  float* spectrum = room + plan.copies;
  float* sums = spectrum + plan.input;
  float* pixels = sums + plan.sums;
  int from = 0, to = out.count;
  if (share.size > 1 && !by_rows) {
    from = out.count * share.rank / share.size;
    to = out.count * (share.rank + 1) / share.size;
  }
  const int width = c.window.out_width, height = c.window.out_height;
  const long zero_tap = 0;
  for (int first = 0, n = 0; first < t.out_height; first += rows, n++) {
    if (by_rows && n % share.size != share.rank) continue;
    const int here = at_most(rows, t.out_height - first);
    const int tiles = padded(here * t.out_width), vectors = tiles / L;
    const Copies copies = plan_copies(t, first, here);
    const long frequency = (long)in.live * tiles;
    for (int a = 0; a < in.live; a++)
      transform_input<M>(t, copies, in.data + a * in.stride, room, spectrum + (long)a * tiles, frequency, tiles);
    const int per_block = choose_vectors(vectors, to - from);
    const auto& table = kBlocks.taps(1);
    const int blocks = (to - from + kMaxChannels[per_block] - 1) / kMaxChannels[per_block];
    Block b{};
    b.in_stride = tiles;
    b.in_count = in.live;
    b.in_channel = in.index;
    b.tap = &zero_tap;
    b.taps = 1;
    b.last = L;
    for (int n_block = 0, j = from; n_block < blocks; n_block++) {
      const int T = (to - j + (blocks - n_block) - 1) / (blocks - n_block);
      const float* weight[kMostChannels];
      float* target[kMostChannels];
      b.weight = weight;
      b.out = target;
      for (int f = 0; f < F; f++) {
        for (int i = 0; i < T; i++) {
          weight[i] = weights + out.channel[j + i] * weights_row + f * c.winograd_step;
          target[i] = sums + ((long)i * F + f) * tiles;
        }
        for (int v = 0; v < vectors; v += per_block) {
          const int P = at_most(per_block, vectors - v);
          b.in = spectrum + f * frequency + v * L;
          b.out_offset = v * L;
          table[P][T](b);
        }
      }
      for (int i = 0; i < T; i++) {
        transform_output<M>(sums + (long)i * F * tiles, pixels, tiles);
        const Finish finish{c.bias[out.channel[j + i]], out.scale[j + i], c.act.kind == Act::relu};
        const int last = at_most((first + here) * M, height) - 1;
        for (int y = first * M; y <= last; y++) {
          const float* residual = out.residual[j + i];
          write_row<M>(finish, pixels + (long)(y % M) * M * tiles + (y / M - first) * t.out_width, tiles, t.out_width,
                       out.plane[j + i] + y * width, residual ? residual + y * width : nullptr, width,
                       (last - y + 1) * width);
        }
      }
      j += T;
    }
    Band band;
    band.first_pixel = first * M * width;
    band.pixels = (at_most((first + here) * M, height) - first * M) * width;
    activate_band(c, band, out, from, to);
  }
}

template <int M>
static long winograd_scratch(const Conv& c) {
  const Window t = tile_window<M>(c.window);
  long most = 0;  // fewer live channels allow more rows at a time
  for (int rows = 1; rows <= t.out_height; rows++) {
    constexpr int F = (M + 2) * (M + 2);
    const long tiles = padded(rows * t.out_width);
    long channels = rows == 1 ? c.in_channels : at_most(c.in_channels, 2 * kBandFloats / (F * tiles));
    const long need = tile_scratch<M>(t, at_least(channels, 1), rows).total();
    if (need > most) most = need;
  }
  return most + 2 * L;
}

}  // namespace SANP_NAMESPACE
