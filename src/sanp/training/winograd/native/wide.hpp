// Winograd's F(4x4, 3x3) and F(2x2, 3x3) and their gradients (Lavin and Gray, arXiv:1509.09308) on channels-last maps,
// for AVX-512. A map is cut into tiles of 4x4 or 2x2 output pixels; each tile becomes 36 or 16 frequencies, in each of
// which the convolution is a product of matrices: 1/4 or 4/9 of the multiplications. Transforms and sums are float32.
// Lanes are channels, so both channel counts are multiples of 16. Whichever scheme needs fewer products for a map's size
// is taken.
//
// A Format says what is multiplied: Pixel, a number as maps hold it; Word, `depth` of them side by side in 32 bits, whose
// products are summed together; how sixteen words are read, made of vectors of floats, spread and multiplied.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "tiles.hpp"

namespace sanp_training {
namespace {

constexpr int kLanes = 16;
constexpr int kRows = 6, kVectors = 4;  // of a block of sums in registers

typedef __m512 vec;

// A scheme has the transforms of its input (B^T d), of three taps (G g), of sums to output pixels (A^T m), and their
// transposes for the gradient of the kernels: of the output's gradient (A y), and of sums to taps (G^T d).
struct By2 {
  static constexpr int side = 2, frequencies = 4;
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
template <class Pixel>
struct Map {
  const Pixel* data;
  int height, width, channels;
};

// Where the pixels of a square are whose first one may lie outside of the map.
template <class Pixel, int S>
struct Square {
  Square() = default;
  Square(const Map<Pixel>& map, int top, int left, const Pixel* zero) {
    for (int y = 0; y < S; y++)
      for (int x = 0; x < S; x++) {
        const int at_y = top + y, at_x = left + x;
        const bool inside = at_y >= 0 && at_y < map.height && at_x >= 0 && at_x < map.width;
        pixel[y][x] = inside ? map.data + ((long)at_y * map.width + at_x) * map.channels : zero;
      }
  }
  const Pixel* pixel[S][S];
};

// The frequencies of sixteen channels, from channel c on.
template <class Format, class T>
inline void spread(const Square<typename Format::Pixel, T::size>& from, int c, vec (&o)[T::frequencies][T::frequencies]) {
  constexpr int S = T::size, F = T::frequencies;
  vec half[S][F];  // [column][row frequency]
#pragma GCC unroll 6
  for (int x = 0; x < S; x++) {
    vec d[S];
#pragma GCC unroll 6
    for (int y = 0; y < S; y++) d[y] = Format::widened(from.pixel[y][x] + c);
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

// A distance of at least so many numbers that is an odd number of cache lines: what is written or read together, such as
// the frequencies of a tile, would share few places in the first-level cache at a power of two.
template <class T>
inline long apart(long numbers) {
  return ((numbers * (long)sizeof(T) + 63) / 64 | 1) * (64 / sizeof(T));
}

// Frequencies of some tiles to out[frequency][tile][channel].
template <class Format, class Scheme>
void spread_tiles(const Shape& s, const Tiles& tiles, const typename Format::Pixel* x, long first, int count,
                  const typename Format::Pixel* zero, typename Format::Pixel* out) {
  typedef typename Format::Pixel Pixel;
  constexpr int F = Scheme::frequencies;
  const long each = apart<Pixel>((long)tiles.each * s.in);
  for (int i = 0; i < count; i++) {
    const Place at = tiles.place(first + i);
    const Map<Pixel> map{x + (long)at.sample * s.height * s.width * s.in, s.height, s.width, s.in};
    const Square<Pixel, Scheme::Input::size> square(map, at.y - s.pad, at.x - s.pad, zero);
    for (int c = 0; c < s.in; c += kLanes) {
      vec o[F][F];
      spread<Format, typename Scheme::Input>(square, c, o);
#pragma GCC unroll 36
      for (int f = 0; f < F * F; f++) Format::store(out + f * each + (long)i * s.in + c, o[f / F][f % F]);
    }
  }
}

// Frequencies of some tiles to out[frequency][tile / depth][channel] of words, each of one channel of `depth` tiles and
// each row of channels `apart`; tiles that are missing in the last word are zero.
template <class Format, class T>
void spread_words(const Tiles& tiles, Map<typename Format::Pixel> map, long sample_size, int pad, long first, int count,
                  const typename Format::Pixel* zero, typename Format::Word* out) {
  constexpr int F = T::frequencies, depth = Format::depth;
  const long row = apart<typename Format::Word>(map.channels);
  const auto* const samples = map.data;
  const auto square = [&](int i) {
    const Place at = tiles.place(first + i);
    map.data = samples + at.sample * sample_size;
    return Square<typename Format::Pixel, T::size>(map, i < count ? at.y - pad : -T::size, at.x - pad, zero);
  };
  for (int i = 0; i < count; i += depth) {
    Square<typename Format::Pixel, T::size> squares[depth];
    for (int j = 0; j < depth; j++) squares[j] = square(i + j);
    for (int c = 0; c < map.channels; c += kLanes) {
      vec o[depth][F][F];
#pragma GCC unroll 2
      for (int j = 0; j < depth; j++) spread<Format, T>(squares[j], c, o[j]);
#pragma GCC unroll 36
      for (int f = 0; f < F * F; f++) {
        vec together[depth];
#pragma GCC unroll 2
        for (int j = 0; j < depth; j++) together[j] = o[j][f / F][f % F];
        Format::store_words(out + ((long)f * (tiles.each / depth) + i / depth) * row + c, together);
      }
    }
  }
}

// Sums [frequency][tile][channel] of one tile, `each` from one frequency to the next, to its output pixels inside the map.
template <class Format, class Scheme>
void collect(const float* sums, long each, typename Format::Pixel* map, const Shape& s, const Place& at) {
  constexpr int F = Scheme::frequencies, S = Scheme::side;
  const int rows = s.out_height - at.y < S ? s.out_height - at.y : S, columns = s.out_width - at.x;
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
      typename Format::Pixel* row = map + ((long)(at.y + y) * s.out_width + at.x) * s.out + c;
#pragma GCC unroll 4
      for (int x = 0; x < S; x++)
        if (x < columns) Format::store(row + (long)x * s.out, o[x]);
    }
  }
}

// Products of matrices of words.
template <class Format>
struct Matrices {
  typedef typename Format::Word Word;

  // out[R][16 V] (+)= a[R][depth] b[depth][16 V], with any distance between the rows and the columns of a.
  template <int R, int V>
  static void multiply(const Word* a, long row, long column, const Word* b, long b_row, int depth, float* out,
                       long out_row, bool add) {
    vec sum[R][V];
#pragma GCC unroll 6
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
      for (int v = 0; v < V; v++) sum[r][v] = add ? _mm512_load_ps(out + r * out_row + v * kLanes) : _mm512_setzero_ps();
    for (int d = 0; d < depth; d++) {
      typename Format::Words right[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; v++) right[v] = Format::words(b + d * b_row + v * kLanes);
#pragma GCC unroll 6
      for (int r = 0; r < R; r++) {
        const typename Format::Words left = Format::splat(a[r * row + d * column]);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) sum[r][v] = Format::plus_product(sum[r][v], left, right[v]);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
      for (int v = 0; v < V; v++) _mm512_store_ps(out + r * out_row + v * kLanes, sum[r][v]);
  }

  // out[rows][lanes] (+)= a b for any number of rows, and of lanes up to 64.
  static void product(int rows, int lanes, const Word* a, long row, long column, const Word* b, long b_row, int depth,
                      float* out, long out_row, bool add) {
    typedef void (*Multiply)(const Word*, long, long, const Word*, long, int, float*, long, bool);
#define SANP_ROWS(R) {multiply<R, 1>, multiply<R, 2>, multiply<R, 3>, multiply<R, 4>}
    static constexpr Multiply blocks[kRows][kVectors] = {SANP_ROWS(1), SANP_ROWS(2), SANP_ROWS(3),
                                                         SANP_ROWS(4), SANP_ROWS(5), SANP_ROWS(6)};
#undef SANP_ROWS
    for (int r = 0; r < rows; r += kRows) {
      const int now = rows - r < kRows ? rows - r : kRows;
      blocks[now - 1][lanes / kLanes - 1](a + r * row, row, column, b, b_row, depth, out + r * out_row, out_row, add);
    }
  }
};

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

// From one frequency to the next of all kernels.
template <class Format>
inline long kernel_size(const Shape& s) {
  return apart<typename Format::Word>((long)s.in / Format::depth * s.out);
}

// Sixteen rows of N words to N rows of sixteen, so far apart.
template <int N>
inline void transpose(const std::uint32_t* rows, std::uint32_t* out, long apart) {
  const __m512i first = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                           _mm512_set1_epi32(N));
  for (int j = 0; j < N; j++)
    _mm512_store_si512(out + j * apart, _mm512_i32gather_epi32(first, (const int*)rows + j, 4));
}

// Kernels w[out][3][3][in] to u[frequency][panel][in / depth][lane] of words of input channels; lanes are output channels.
template <class Format, class Scheme>
void transform_kernels(const Shape& s, const float* w, int from, int to, typename Format::Word* u) {
  constexpr int F = Scheme::frequencies, words = kLanes / Format::depth;
  const long size = kernel_size<Format>(s);
  alignas(64) typename Format::Word rows[F * F][kLanes][words];  // [frequency][output channel][word]
  for (int k = from; k < to; k += kLanes) {
    const int panel = k / kPanel * kPanel, width = panel_width(s.out, panel);
    for (int c = 0; c < s.in; c += kLanes) {
      for (int j = 0; j < kLanes; j++) {
        vec o[F][F];
        spread_kernel<Scheme>(w + (long)(k + j) * 9 * s.in + c, s.in, false, o);
#pragma GCC unroll 36
        for (int f = 0; f < F * F; f++) Format::store((typename Format::Pixel*)rows[f][j], o[f / F][f % F]);
      }
      for (int f = 0; f < F * F; f++)
        transpose<words>((const std::uint32_t*)rows[f],
                         (std::uint32_t*)(u + f * size + (long)panel * (s.in / Format::depth) +
                                          (long)c / Format::depth * width + k - panel),
                         width);
    }
  }
}

// The same for the input's gradient, with kernels w[in][3][3][out] turned by 180 degrees.
template <class Format, class Scheme>
void transform_turned_kernels(const Shape& s, const float* w, int from, int to, typename Format::Word* u) {
  constexpr int F = Scheme::frequencies, depth = Format::depth;
  const long size = kernel_size<Format>(s);
  for (int k = from; k < to; k += depth)
    for (int c = 0; c < s.out; c += kLanes) {
      const int panel = c / kPanel * kPanel, width = panel_width(s.out, panel);
      vec o[depth][F][F];
#pragma GCC unroll 2
      for (int j = 0; j < depth; j++) spread_kernel<Scheme>(w + (long)(k + j) * 9 * s.out + c, s.out, true, o[j]);
      for (int f = 0; f < F * F; f++) {
        vec together[depth];
        for (int j = 0; j < depth; j++) together[j] = o[j][f / F][f % F];
        Format::store_words(u + f * size + (long)panel * (s.in / depth) + (long)k / depth * width + c - panel, together);
      }
    }
}

template <class Format, class Scheme>
void convolve(const Shape& s, const typename Format::Pixel* x, const float* w, bool turned, typename Format::Pixel* y,
              int threads) {
  typedef typename Format::Pixel Pixel;
  typedef typename Format::Word Word;
  constexpr int kAll = Scheme::frequencies * Scheme::frequencies;
  const Tiles tiles(s, Scheme::side, Format::tiles(s, kAll));
  const int depth = s.in / Format::depth;
  const long of_input = apart<Pixel>((long)tiles.each * s.in), of_sums = apart<float>((long)tiles.each * s.out);
  const long size = kernel_size<Format>(s), room_in = kAll * of_input, room_out = kAll * of_sums;
  Buffer<Word> u(kAll * size);
  Buffer<Pixel> frequencies(threads * room_in), zero(s.in);
  Buffer<float> products(threads * room_out);
  std::memset(zero.data, 0, sizeof(Pixel) * s.in);
  const long lots = (turned ? s.in : s.out) / kLanes;  // of sixteen kernels
  share(threads, [&](int rank) {
    (turned ? transform_turned_kernels<Format, Scheme> : transform_kernels<Format, Scheme>)(
        s, w, lots * rank / threads * kLanes, lots * (rank + 1) / threads * kLanes, u.data);
  });
  share(threads, [&](int rank) {
    Pixel* input = frequencies.data + rank * room_in;
    float* sums = products.data + rank * room_out;
    tiles.each_block(threads, rank, [&](long first, int count) {
      spread_tiles<Format, Scheme>(s, tiles, x, first, count, zero.data, input);
      for (int f = 0; f < kAll; f++)
        for (int k = 0; k < s.out; k += kPanel) {
          const int width = panel_width(s.out, k);
          Matrices<Format>::product(count, width, (const Word*)(input + f * of_input), depth, 1,
                                    u.data + f * size + (long)k * depth, width, depth, sums + f * of_sums + k, s.out,
                                    false);
        }
      for (int i = 0; i < count; i++) {
        const Place at = tiles.place(first + i);
        collect<Format, Scheme>(sums + (long)i * s.out, of_sums,
                                y + (long)at.sample * s.out_height * s.out_width * s.out, s, at);
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
template <class Format, class Scheme>
struct KernelGradient {
  typedef typename Format::Pixel Pixel;
  typedef typename Format::Word Word;
  static constexpr int kAll = Scheme::frequencies * Scheme::frequencies, depth = Format::depth;

  const Shape& s;
  const Pixel *x, *dy;
  float* dw;
  int threads;
  const long in = apart<Word>(s.in), out = apart<Word>(s.out);  // from one row of channels to the next
  Buffer<Pixel> zero;

  KernelGradient(const Shape& s, const Pixel* x, const Pixel* dy, float* dw, int threads)
      : s(s), x(x), dy(dy), dw(dw), threads(threads), zero(s.in > s.out ? s.in : s.out) {
    std::memset(zero.data, 0, sizeof(Pixel) * (s.in > s.out ? s.in : s.out));
    const long words = (Tiles(s, Scheme::side, 1).count + depth - 1) / depth;
    if (words * (s.in + s.out) < (long)threads * s.in * s.out)
      at_once(words);
    else
      by_blocks(Format::words_in_gradient(s, kAll));
  }

  void spread_both(const Tiles& tiles, long first, int count, Word* input, Word* gradient) const {
    spread_words<Format, typename Scheme::Input>(tiles, {x, s.height, s.width, s.in}, (long)s.height * s.width * s.in,
                                                 s.pad, first, count, zero.data, input);
    spread_words<Format, typename Scheme::Gradient>(tiles, {dy, s.out_height, s.out_width, s.out},
                                                    (long)s.out_height * s.out_width * s.out, 0, first, count,
                                                    zero.data, gradient);
  }

  void at_once(long words) const {
    const Tiles tiles(s, Scheme::side, depth * words);
    Buffer<Word> input(kAll * words * in), gradient(kAll * words * out);
    Buffer<float> rooms(threads * kAll * kRows * kPanel);  // [rank][frequency][out][in] of one block in registers
    share(threads, [&](int rank) {
      const long from = words * rank / threads, to = words * (rank + 1) / threads;
      const long end = depth * to < tiles.count ? depth * to : tiles.count;
      spread_both(tiles, depth * from, end - depth * from, input.data + from * in, gradient.data + from * out);
    });
    share(threads, [&](int rank) {
      float* sums = rooms.data + rank * kAll * kRows * kPanel;
      const int from = (long)s.out * rank / threads, to = (long)s.out * (rank + 1) / threads;
      for (int c = 0; c < s.in; c += kPanel)
        for (int k = from; k < to; k += kRows) {
          const int rows = to - k < kRows ? to - k : kRows, width = panel_width(s.in, c);
          for (int f = 0; f < kAll; f++)
            Matrices<Format>::product(rows, width, gradient.data + f * words * out + k, 1, out,
                                      input.data + f * words * in + c, in, words, sums + f * kRows * kPanel, kPanel,
                                      false);
          for (int r = 0; r < rows; r++)
            collect_kernel<Scheme>(sums + r * kPanel, 0, 1, kRows * kPanel, width, s.in, dw + (k + r) * 9L * s.in + c);
        }
    });
  }

  void by_blocks(long words) {
    const Tiles tiles(s, Scheme::side, depth * words);
    if (threads > tiles.blocks) threads = tiles.blocks;
    const long room_in = kAll * words * in, room_out = kAll * words * out;
    const long frequency = apart<float>((long)s.out * s.in), size = kAll * frequency;
    Buffer<Word> of_input(threads * room_in), of_output(threads * room_out);
    Buffer<float> sums(threads * size);  // [rank][frequency][out][in]
    share(threads, [&](int rank) {
      Word *input = of_input.data + rank * room_in, *gradient = of_output.data + rank * room_out;
      float* sum = sums.data + rank * size;
      bool add = false;
      tiles.each_block(threads, rank, [&](long first, int count) {
        spread_both(tiles, first, count, input, gradient);
        for (int f = 0; f < kAll; f++)
          for (int c = 0; c < s.in; c += kPanel)
            Matrices<Format>::product(s.out, panel_width(s.in, c), gradient + f * words * out, 1, out,
                                      input + f * words * in + c, in, (count + depth - 1) / depth,
                                      sum + f * frequency + c, s.in, add);
        add = true;
      });
    });
    share(threads, [&](int rank) {
      for (long k = (long)s.out * rank / threads; k < (long)s.out * (rank + 1) / threads; k++)
        collect_kernel<Scheme>(sums.data + k * s.in, size, threads, frequency, s.in, s.in, dw + k * 9 * s.in);
    });
  }
};

// Whether 4x4 tiles need fewer products than 2x2 tiles.
inline bool by_four(const Shape& s) {
  const auto products = [&](int side, int frequencies) { return Tiles(s, side, 1).count * frequencies; };
  return products(By4::side, By4::frequencies * By4::frequencies) <
         products(By2::side, By2::frequencies * By2::frequencies);
}

template <class Format>
void convolve(const Shape& s, const typename Format::Pixel* x, const float* w, bool turned, typename Format::Pixel* y,
              int threads) {
  (by_four(s) ? convolve<Format, By4> : convolve<Format, By2>)(s, x, w, turned, y, threads);
}

template <class Format>
void kernel_gradient(const Shape& s, const typename Format::Pixel* x, const typename Format::Pixel* dy, float* dw,
                     int threads) {
  if (by_four(s))
    KernelGradient<Format, By4>(s, x, dy, dw, threads);
  else
    KernelGradient<Format, By2>(s, x, dy, dw, threads);
}

}  // namespace
}  // namespace sanp_training
