// Winograd's F(4x4, 3x3) and F(2x2, 3x3) and their gradients (Lavin and Gray, arXiv:1509.09308) on channels-last bf16
// maps, for AVX-512 with bf16. A map is cut into tiles of 4x4 or 2x2 output pixels; each tile becomes 36 or 16
// frequencies, in each of which the convolution is a product of matrices: 1/4 or 4/9 of the multiplications. Transforms
// are computed in float32, products of bf16 pairs are summed in float32. Lanes are channels, so both channel counts are
// multiples of 16. Whichever scheme needs fewer products for a map's size is taken.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "tiles.hpp"

namespace {

using namespace sanp_training;

constexpr int kLanes = 16;
constexpr int kRows = 6, kVectors = 4;  // of a block of sums in registers

typedef std::uint16_t bf16;
typedef __m512 vec;

inline vec widened(const bf16* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
}
inline __m256i narrowed(vec v) { return (__m256i)_mm512_cvtneps_pbh(v); }
inline void store(bf16* p, vec v) { _mm256_storeu_si256((__m256i*)p, narrowed(v)); }

// Lane for lane a pair of bf16: the first in the lower half.
inline __m512i paired(vec first, vec second) {
  const __m512i low = _mm512_cvtepu16_epi32(narrowed(first)), high = _mm512_cvtepu16_epi32(narrowed(second));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// A scheme has the transforms of its input (B^T d), of three taps (G g), of sums to output pixels (A^T m), and their
// transposes for the gradient of the kernels: of the output's gradient (A y), and of sums to taps (G^T d).
struct By2 {
  static constexpr int side = 2, frequencies = 4;
  static constexpr int tiles = 96, pairs = 128;  // tiles, and in the gradient pairs of them, that are transformed together
  struct Input {
    static constexpr int size = 4, frequencies = 4;
    static inline void apply(const vec (&d)[4], vec (&o)[4]) {
      o[0] = d[0] - d[2];
      o[1] = d[1] + d[2];
      o[2] = d[2] - d[1];
      o[3] = d[1] - d[3];
    }
  };
  struct Gradient {
    static constexpr int size = 2, frequencies = 4;
    static inline void apply(const vec (&y)[2], vec (&o)[4]) {
      o[0] = y[0];
      o[1] = y[0] + y[1];
      o[2] = y[0] - y[1];
      o[3] = vec{} - y[1];
    }
  };
  static inline void of_taps(const vec (&g)[3], vec (&o)[4]) {
    const vec half = _mm512_set1_ps(0.5f), outer = half * (g[0] + g[2]), inner = half * g[1];
    o[0] = g[0];
    o[1] = outer + inner;
    o[2] = outer - inner;
    o[3] = g[2];
  }
  static inline void to_taps(const vec (&d)[4], vec (&o)[3]) {
    const vec half = _mm512_set1_ps(0.5f), sum = half * (d[1] + d[2]), difference = half * (d[1] - d[2]);
    o[0] = d[0] + sum;
    o[1] = difference;
    o[2] = d[3] + sum;
  }
  static inline void to_pixels(const vec (&m)[4], vec (&o)[2]) {
    o[0] = m[0] + m[1] + m[2];
    o[1] = m[1] - m[2] - m[3];
  }
};

// F(4, 3) with the points 0, ±5/8, ±3/2 and infinity, whose error in bf16 is 0.4 of that with 0, ±1, ±2 and infinity.
struct By4 {
  static constexpr int side = 4, frequencies = 6;
  static constexpr int tiles = 36, pairs = 64;
  static constexpr float a = 0.625f, b = 1.5f, aa = a * a, bb = b * b;
  static constexpr float of_a = 1 / (2 * aa * (aa - bb)), of_b = 1 / (2 * bb * (bb - aa));
  struct Input {
    static constexpr int size = 6, frequencies = 6;
    static inline void apply(const vec (&d)[6], vec (&o)[6]) {
      const vec even_a = d[4] - bb * d[2], odd_a = a * (d[3] - bb * d[1]);
      const vec even_b = d[4] - aa * d[2], odd_b = b * (d[3] - aa * d[1]);
      o[0] = aa * bb * d[0] - (aa + bb) * d[2] + d[4];
      o[1] = even_a + odd_a;
      o[2] = even_a - odd_a;
      o[3] = even_b + odd_b;
      o[4] = even_b - odd_b;
      o[5] = aa * bb * d[1] - (aa + bb) * d[3] + d[5];
    }
  };
  struct Gradient {
    static constexpr int size = 4, frequencies = 6;
    static inline void apply(const vec (&y)[4], vec (&o)[6]) {
      const vec even_a = y[0] + aa * y[2], odd_a = a * (y[1] + aa * y[3]);
      const vec even_b = y[0] + bb * y[2], odd_b = b * (y[1] + bb * y[3]);
      o[0] = y[0];
      o[1] = even_a + odd_a;
      o[2] = even_a - odd_a;
      o[3] = even_b + odd_b;
      o[4] = even_b - odd_b;
      o[5] = y[3];
    }
  };
  static inline void of_taps(const vec (&g)[3], vec (&o)[6]) {
    const vec even_a = of_a * (g[0] + aa * g[2]), odd_a = of_a * a * g[1];
    const vec even_b = of_b * (g[0] + bb * g[2]), odd_b = of_b * b * g[1];
    o[0] = g[0] / (aa * bb);
    o[1] = even_a + odd_a;
    o[2] = even_a - odd_a;
    o[3] = even_b + odd_b;
    o[4] = even_b - odd_b;
    o[5] = g[2];
  }
  static inline void to_taps(const vec (&d)[6], vec (&o)[3]) {
    const vec sum_a = of_a * (d[1] + d[2]), difference_a = of_a * (d[1] - d[2]);
    const vec sum_b = of_b * (d[3] + d[4]), difference_b = of_b * (d[3] - d[4]);
    o[0] = d[0] / (aa * bb) + sum_a + sum_b;
    o[1] = a * difference_a + b * difference_b;
    o[2] = aa * sum_a + bb * sum_b + d[5];
  }
  static inline void to_pixels(const vec (&m)[6], vec (&o)[4]) {
    const vec sum_a = m[1] + m[2], difference_a = a * (m[1] - m[2]);
    const vec sum_b = m[3] + m[4], difference_b = b * (m[3] - m[4]);
    o[0] = m[0] + sum_a + sum_b;
    o[1] = difference_a + difference_b;
    o[2] = aa * sum_a + bb * sum_b;
    o[3] = aa * difference_a + bb * difference_b + m[5];
  }
};

// A map of one sample; a tile's pixels outside of it are zero.
struct Map {
  const bf16* data;
  int height, width, channels;
};

// Where the pixels of a square are whose first one may lie outside of the map.
template <int S>
struct Square {
  Square(const Map& map, int top, int left, const bf16* zero) {
    for (int y = 0; y < S; y++)
      for (int x = 0; x < S; x++) {
        const int at_y = top + y, at_x = left + x;
        const bool inside = at_y >= 0 && at_y < map.height && at_x >= 0 && at_x < map.width;
        pixel[y][x] = inside ? map.data + ((long)at_y * map.width + at_x) * map.channels : zero;
      }
  }
  const bf16* pixel[S][S];
};

// The frequencies of sixteen channels, from channel c on.
template <class T>
inline void spread(const Square<T::size>& from, int c, vec (&o)[T::frequencies][T::frequencies]) {
  constexpr int S = T::size, F = T::frequencies;
  vec half[S][F];  // [column][row frequency]
#pragma GCC unroll 6
  for (int x = 0; x < S; x++) {
    vec d[S];
#pragma GCC unroll 6
    for (int y = 0; y < S; y++) d[y] = widened(from.pixel[y][x] + c);
    T::apply(d, half[x]);
  }
#pragma GCC unroll 6
  for (int y = 0; y < F; y++) {
    vec d[S];
#pragma GCC unroll 6
    for (int x = 0; x < S; x++) d[x] = half[x][y];
    T::apply(d, o[y]);
  }
}

// The distance from one frequency to the next in [frequency][tile][channel]: an odd number of cache lines, since the
// frequencies of a tile are written and read together, and would share few places in the first-level cache.
template <class Scheme, class T>
constexpr long apart(int channels) {
  return ((long)Scheme::tiles * channels * sizeof(T) / 64 | 1) * (64 / sizeof(T));
}

// Frequencies of some tiles to out[frequency][tile][channel].
template <class Scheme>
void spread_tiles(const Shape& s, const Tiles& tiles, const bf16* x, long first, int count, const bf16* zero,
                  bf16* out) {
  constexpr int F = Scheme::frequencies;
  const long each = apart<Scheme, bf16>(s.in);
  for (int i = 0; i < count; i++) {
    const Place at = tiles.place(first + i);
    const Map map{x + (long)at.sample * s.height * s.width * s.in, s.height, s.width, s.in};
    const Square<Scheme::Input::size> square(map, at.y - s.pad, at.x - s.pad, zero);
    for (int c = 0; c < s.in; c += kLanes) {
      vec o[F][F];
      spread<typename Scheme::Input>(square, c, o);
#pragma GCC unroll 36
      for (int f = 0; f < F * F; f++) store(out + f * each + (long)i * s.in + c, o[f / F][f % F]);
    }
  }
}

// Frequencies of some tiles to out[frequency][tile / 2][channel][tile % 2]; a last one without a second has zeros there.
template <class T>
void spread_pairs(const Tiles& tiles, Map map, long sample_size, int pad, long first, int count, const bf16* zero,
                  std::uint32_t* out) {
  constexpr int F = T::frequencies;
  const bf16* const samples = map.data;
  const auto square = [&](int i) {
    const Place at = tiles.place(first + i);
    map.data = samples + at.sample * sample_size;
    return Square<T::size>(map, i < count ? at.y - pad : -T::size, at.x - pad, zero);
  };
  for (int i = 0; i < count; i += 2) {
    const Square<T::size> one = square(i), other = square(i + 1);
    for (int c = 0; c < map.channels; c += kLanes) {
      vec o[F][F], p[F][F];
      spread<T>(one, c, o);
      spread<T>(other, c, p);
#pragma GCC unroll 36
      for (int f = 0; f < F * F; f++)
        _mm512_storeu_si512(out + ((long)f * (tiles.each / 2) + i / 2) * map.channels + c,
                            paired(o[f / F][f % F], p[f / F][f % F]));
    }
  }
}

// Sums [frequency][tile][channel] of one tile to its output pixels inside the map.
template <class Scheme>
void collect(const float* sums, bf16* map, const Shape& s, const Place& at) {
  constexpr int F = Scheme::frequencies, S = Scheme::side;
  const int rows = s.out_height - at.y < S ? s.out_height - at.y : S, columns = s.out_width - at.x;
  const long each = apart<Scheme, float>(s.out);
  for (int c = 0; c < s.out; c += kLanes) {
    vec half[F][S];  // [column frequency][row]
#pragma GCC unroll 6
    for (int x = 0; x < F; x++) {
      vec m[F];
#pragma GCC unroll 6
      for (int y = 0; y < F; y++) m[y] = _mm512_load_ps(sums + (y * F + x) * each + c);
      Scheme::to_pixels(m, half[x]);
    }
#pragma GCC unroll 4
    for (int y = 0; y < S; y++) {
      if (y >= rows) break;
      vec m[F], o[S];
#pragma GCC unroll 6
      for (int x = 0; x < F; x++) m[x] = half[x][y];
      Scheme::to_pixels(m, o);
      bf16* row = map + ((long)(at.y + y) * s.out_width + at.x) * s.out + c;
#pragma GCC unroll 4
      for (int x = 0; x < S; x++)
        if (x < columns) store(row + (long)x * s.out, o[x]);
    }
  }
}

// out[R][16 V] (+)= a[R][depth] b[depth][16 V] of pairs, with any distance between the rows and the columns of a.
template <int R, int V>
void multiply(const std::uint32_t* a, long row, long column, const std::uint32_t* b, long b_row, int depth, float* out,
              long out_row, bool add) {
  vec sum[R][V];
#pragma GCC unroll 6
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) sum[r][v] = add ? _mm512_load_ps(out + r * out_row + v * kLanes) : _mm512_setzero_ps();
  for (int d = 0; d < depth; d++) {
    __m512bh right[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) right[v] = (__m512bh)_mm512_load_si512(b + d * b_row + v * kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
      const __m512bh left = (__m512bh)_mm512_set1_epi32((int)a[r * row + d * column]);
#pragma GCC unroll 4
      for (int v = 0; v < V; v++) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], left, right[v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) _mm512_store_ps(out + r * out_row + v * kLanes, sum[r][v]);
}

typedef void (*Multiply)(const std::uint32_t*, long, long, const std::uint32_t*, long, int, float*, long, bool);
#define SANP_ROWS(R) {multiply<R, 1>, multiply<R, 2>, multiply<R, 3>, multiply<R, 4>}
constexpr Multiply kMultiply[kRows][kVectors] = {SANP_ROWS(1), SANP_ROWS(2), SANP_ROWS(3),
                                                 SANP_ROWS(4), SANP_ROWS(5), SANP_ROWS(6)};
#undef SANP_ROWS

// out[rows][lanes] (+)= a b for any number of rows, and of lanes up to 64.
inline void product(int rows, int lanes, const std::uint32_t* a, long row, long column, const std::uint32_t* b,
                    long b_row, int depth, float* out, long out_row, bool add) {
  for (int r = 0; r < rows; r += kRows) {
    const int now = rows - r < kRows ? rows - r : kRows;
    kMultiply[now - 1][lanes / kLanes - 1](a + r * row, row, column, b, b_row, depth, out + r * out_row, out_row, add);
  }
}

constexpr int kPanel = kLanes * kVectors;
inline int panel_width(int channels, int from) { return channels - from < kPanel ? channels - from : kPanel; }

// The frequencies of sixteen kernels' taps: w[out][3][3][in] from input channel c on.
template <class Scheme, int F = Scheme::frequencies>
inline void spread_kernel(const float* w, long in, bool turned, vec (&o)[F][F]) {
  vec half[3][F];
#pragma GCC unroll 3
  for (int x = 0; x < 3; x++) {
    vec g[3];
#pragma GCC unroll 3
    for (int y = 0; y < 3; y++) g[y] = _mm512_loadu_ps(w + (turned ? (2 - y) * 3 + 2 - x : y * 3 + x) * in);
    Scheme::of_taps(g, half[x]);
  }
#pragma GCC unroll 6
  for (int y = 0; y < F; y++) {
    const vec g[3] = {half[0][y], half[1][y], half[2][y]};
    Scheme::of_taps(g, o[y]);
  }
}

// Kernels w[out][3][3][in] to u[frequency][panel][in / 2][lane] of pairs of input channels; lanes are output channels.
template <class Scheme>
void transform_kernels(const Shape& s, const float* w, int from, int to, std::uint32_t* u) {
  constexpr int F = Scheme::frequencies;
  const long size = (long)s.in / 2 * s.out;
  for (int panel = from / kPanel * kPanel; panel < to; panel += kPanel) {
    const int width = panel_width(s.out, panel), end = panel + width < to ? panel + width : to;
    for (int c = 0; c < s.in; c += kLanes)  // outside of k, whose pairs are neighbours in memory
      for (int k = from > panel ? from : panel; k < end; k++) {
        vec o[F][F];
        spread_kernel<Scheme>(w + (long)k * 9 * s.in + c, s.in, false, o);
        std::uint32_t* to_pair = u + (long)panel * (s.in / 2) + (long)c / 2 * width + k - panel;
        for (int f = 0; f < F * F; f++) {
          alignas(32) std::uint32_t pairs[kLanes / 2];
          _mm256_store_si256((__m256i*)pairs, narrowed(o[f / F][f % F]));
          for (int j = 0; j < kLanes / 2; j++) to_pair[f * size + (long)j * width] = pairs[j];
        }
      }
  }
}

// The same for the input's gradient, with kernels w[in][3][3][out] turned by 180 degrees.
template <class Scheme>
void transform_turned_kernels(const Shape& s, const float* w, int from, int to, std::uint32_t* u) {
  constexpr int F = Scheme::frequencies;
  const long size = (long)s.in / 2 * s.out;
  for (int k = from / 2 * 2; k < to / 2 * 2; k += 2)
    for (int c = 0; c < s.out; c += kLanes) {
      const int panel = c / kPanel * kPanel, width = panel_width(s.out, panel);
      vec o[F][F], p[F][F];
      spread_kernel<Scheme>(w + (long)k * 9 * s.out + c, s.out, true, o);
      spread_kernel<Scheme>(w + (long)(k + 1) * 9 * s.out + c, s.out, true, p);
      for (int f = 0; f < F * F; f++)
        _mm512_store_si512(u + f * size + (long)panel * (s.in / 2) + (long)k / 2 * width + c - panel,
                           paired(o[f / F][f % F], p[f / F][f % F]));
    }
}

template <class Scheme>
void convolve(const Shape& s, const bf16* x, const float* w, bool turned, bf16* y, int threads) {
  constexpr int kAll = Scheme::frequencies * Scheme::frequencies;
  const Tiles tiles(s, Scheme::side, Scheme::tiles);
  const long of_input = apart<Scheme, bf16>(s.in), of_sums = apart<Scheme, float>(s.out);
  const long size = (long)s.in / 2 * s.out, room_in = kAll * of_input, room_out = kAll * of_sums;
  Buffer<std::uint32_t> u(kAll * size);
  Buffer<bf16> frequencies(threads * room_in), zero(s.in);
  Buffer<float> products(threads * room_out);
  std::memset(zero.data, 0, sizeof(bf16) * s.in);
  const int kernels = turned ? s.in : s.out;
  share(threads, [&](int rank) {
    (turned ? transform_turned_kernels<Scheme> : transform_kernels<Scheme>)(
        s, w, (long)kernels * rank / threads, (long)kernels * (rank + 1) / threads, u.data);
  });
  share(threads, [&](int rank) {
    bf16* input = frequencies.data + rank * room_in;
    float* sums = products.data + rank * room_out;
    tiles.each_block(threads, rank, [&](long first, int count) {
      spread_tiles<Scheme>(s, tiles, x, first, count, zero.data, input);
      for (int f = 0; f < kAll; f++)
        for (int k = 0; k < s.out; k += kPanel) {
          const int width = panel_width(s.out, k);
          product(count, width, (const std::uint32_t*)(input + f * of_input), s.in / 2, 1,
                  u.data + f * size + (long)k * (s.in / 2), width, s.in / 2, sums + f * of_sums + k, s.out, false);
        }
      for (int i = 0; i < count; i++) {
        const Place at = tiles.place(first + i);
        collect<Scheme>(sums + (long)i * s.out, y + (long)at.sample * s.out_height * s.out_width * s.out, s, at);
      }
    });
  });
}

// Sums [frequency][width] of one output channel, over all threads, to dw[3][3][in], of which they are a part.
template <class Scheme>
void collect_kernel(const float* sums, long thread, int threads, long frequency, int width, int in, float* dw) {
  constexpr int F = Scheme::frequencies;
  for (int c = 0; c < width; c += kLanes) {
    vec half[3][F];
#pragma GCC unroll 6
    for (int x = 0; x < F; x++) {
      vec d[F], o[3];
#pragma GCC unroll 6
      for (int y = 0; y < F; y++) {
        const float* at = sums + (y * F + x) * frequency + c;
        d[y] = _mm512_load_ps(at);
        for (int rank = 1; rank < threads; rank++) d[y] += _mm512_load_ps(at + rank * thread);
      }
      Scheme::to_taps(d, o);
      for (int y = 0; y < 3; y++) half[y][x] = o[y];
    }
#pragma GCC unroll 3
    for (int y = 0; y < 3; y++) {
      vec o[3];
      Scheme::to_taps(half[y], o);
      for (int x = 0; x < 3; x++) _mm512_storeu_ps(dw + (y * 3 + x) * in + c, o[x]);
    }
  }
}

// The gradient of the kernels. Few tiles are transformed at once, and the threads share the kernels; of many tiles each
// thread takes its part, block by block, and has sums of its own: whichever needs less memory.
template <class Scheme>
struct KernelGradient {
  static constexpr int kAll = Scheme::frequencies * Scheme::frequencies;

  const Shape& s;
  const bf16 *x, *dy;
  float* dw;
  int threads;
  Buffer<bf16> zero;

  KernelGradient(const Shape& s, const bf16* x, const bf16* dy, float* dw, int threads)
      : s(s), x(x), dy(dy), dw(dw), threads(threads), zero(s.in > s.out ? s.in : s.out) {
    std::memset(zero.data, 0, sizeof(bf16) * (s.in > s.out ? s.in : s.out));
    const long pairs = (Tiles(s, Scheme::side, 1).count + 1) / 2;
    if (pairs * (s.in + s.out) < (long)threads * s.in * s.out)
      at_once(pairs);
    else
      by_blocks();
  }

  void spread_both(const Tiles& tiles, long first, int count, std::uint32_t* input, std::uint32_t* gradient) const {
    spread_pairs<typename Scheme::Input>(tiles, {x, s.height, s.width, s.in}, (long)s.height * s.width * s.in, s.pad,
                                         first, count, zero.data, input);
    spread_pairs<typename Scheme::Gradient>(tiles, {dy, s.out_height, s.out_width, s.out},
                                            (long)s.out_height * s.out_width * s.out, 0, first, count, zero.data,
                                            gradient);
  }

  void at_once(long pairs) const {
    const Tiles tiles(s, Scheme::side, 2 * pairs);
    Buffer<std::uint32_t> input(kAll * pairs * s.in), gradient(kAll * pairs * s.out);
    Buffer<float> rooms(threads * kAll * kRows * kPanel);  // [rank][frequency][out][in] of one block in registers
    share(threads, [&](int rank) {
      const long from = pairs * rank / threads, to = pairs * (rank + 1) / threads;
      const long end = 2 * to < tiles.count ? 2 * to : tiles.count;
      spread_both(tiles, 2 * from, end - 2 * from, input.data + from * s.in, gradient.data + from * s.out);
    });
    share(threads, [&](int rank) {
      float* sums = rooms.data + rank * kAll * kRows * kPanel;
      const int from = (long)s.out * rank / threads, to = (long)s.out * (rank + 1) / threads;
      for (int c = 0; c < s.in; c += kPanel)
        for (int k = from; k < to; k += kRows) {
          const int rows = to - k < kRows ? to - k : kRows, width = panel_width(s.in, c);
          for (int f = 0; f < kAll; f++)
            product(rows, width, gradient.data + f * pairs * s.out + k, 1, s.out, input.data + f * pairs * s.in + c,
                    s.in, pairs, sums + f * kRows * kPanel, kPanel, false);
          for (int r = 0; r < rows; r++)
            collect_kernel<Scheme>(sums + r * kPanel, 0, 1, kRows * kPanel, width, s.in, dw + (k + r) * 9L * s.in + c);
        }
    });
  }

  void by_blocks() {
    constexpr long pairs = Scheme::pairs;
    const Tiles tiles(s, Scheme::side, 2 * pairs);
    if (threads > tiles.blocks) threads = tiles.blocks;
    const long room_in = kAll * pairs * s.in, room_out = kAll * pairs * s.out;
    const long frequency = (long)s.out * s.in, size = kAll * frequency;
    Buffer<std::uint32_t> of_input(threads * room_in), of_output(threads * room_out);
    Buffer<float> sums(threads * size);  // [rank][frequency][out][in]
    share(threads, [&](int rank) {
      std::uint32_t *input = of_input.data + rank * room_in, *gradient = of_output.data + rank * room_out;
      float* sum = sums.data + rank * size;
      bool add = false;
      tiles.each_block(threads, rank, [&](long first, int count) {
        spread_both(tiles, first, count, input, gradient);
        for (int f = 0; f < kAll; f++)
          for (int c = 0; c < s.in; c += kPanel)
            product(s.out, panel_width(s.in, c), gradient + f * pairs * s.out, 1, s.out, input + f * pairs * s.in + c,
                    s.in, (count + 1) / 2, sum + f * frequency + c, s.in, add);
        add = true;
      });
    });
    share(threads, [&](int rank) {
      for (long k = (long)s.out * rank / threads; k < (long)s.out * (rank + 1) / threads; k++)
        collect_kernel<Scheme>(sums.data + k * s.in, size, threads, frequency, s.in, s.in, dw + k * 9 * s.in);
    });
  }
};

// Products of a scheme for each pair of channels.
template <class Scheme>
long products(const Shape& s) {
  return Tiles(s, Scheme::side, 1).count * Scheme::frequencies * Scheme::frequencies;
}

}  // namespace

// shape: samples, height, width, in, out_height, out_width, out, pad; kernels are channels-last. Each gives 0, or -1
// where memory ran out.
extern "C" {

int sanp_winograd_bf16_usable() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16");
}

int sanp_winograd_bf16_convolve(const int* shape, const void* x, const float* w, int turned, void* y, int threads) {
  Shape s;
  std::memcpy(&s, shape, sizeof s);
  return guarded([&] {
    if (products<By4>(s) < products<By2>(s))
      convolve<By4>(s, (const bf16*)x, w, turned != 0, (bf16*)y, threads);
    else
      convolve<By2>(s, (const bf16*)x, w, turned != 0, (bf16*)y, threads);
  });
}

int sanp_winograd_bf16_kernel_gradient(const int* shape, const void* x, const void* dy, float* dw, int threads) {
  Shape s;
  std::memcpy(&s, shape, sizeof s);
  return guarded([&] {
    if (products<By4>(s) < products<By2>(s))
      KernelGradient<By4>(s, (const bf16*)x, (const bf16*)dy, dw, threads);
    else
      KernelGradient<By2>(s, (const bf16*)x, (const bf16*)dy, dw, threads);
  });
}
}
