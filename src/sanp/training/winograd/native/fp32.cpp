// Winograd's F(4x4, 3x3) and its two gradients (Lavin and Gray, arXiv:1509.09308) on channels-last maps, for AVX2 with
// FMA. A map is cut into tiles of 4x4 output pixels; each tile becomes 36 frequencies, in each of which the convolution
// is a product of matrices: a quarter of the multiplications. Lanes are channels, so both channel counts are multiples
// of 16.
#include <cstring>

#include "tiles.hpp"
#include "transforms.hpp"

namespace {

using namespace sanp_training;

constexpr int kLanes = 8, kPanel = 2 * kLanes, kRows = 6, kFrequencies = 36, kSide = 4;
constexpr int kTiles = 24;  // transformed together: their frequencies stay in the second cache

typedef float vec __attribute__((vector_size(kLanes * 4)));
typedef float vec_unaligned __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

inline vec load(const float* p) { return *reinterpret_cast<const vec_unaligned*>(p); }
inline void store(float* p, vec v) { *reinterpret_cast<vec_unaligned*>(p) = v; }
inline vec splat(float x) { return x - vec{}; }

// Six input pixels to six frequencies.
struct InputTransform {
  static constexpr int size = 6;
  static inline void apply(const vec (&d)[6], vec (&o)[6]) { sanp_f4::transform_input(d, o); }
};

// A y: four output gradients to six frequencies, the transpose of the output's transform.
struct GradientTransform {
  static constexpr int size = 4;
  static inline void apply(const vec (&y)[4], vec (&o)[6]) {
    const vec a = y[0] + y[2], b = y[1] + y[3], c = y[0] + 4.f * y[2], e = 2.f * y[1] + 8.f * y[3];
    o[0] = y[0];
    o[1] = a + b;
    o[2] = a - b;
    o[3] = c + e;
    o[4] = c - e;
    o[5] = y[3];
  }
};

// G g: three taps to six frequencies.
inline void kernel_transform(const float* g, int from, float* o, int to) {
  const float a = g[0], b = g[from], c = g[2 * from];
  o[0] = a / 4;
  o[to] = -(a + b + c) / 6;
  o[2 * to] = -(a - b + c) / 6;
  o[3 * to] = a / 24 + b / 12 + c / 6;
  o[4 * to] = a / 24 - b / 12 + c / 6;
  o[5 * to] = c;
}

// G^T d: six frequencies to three taps.
inline void kernel_gradient_transform(const float* d, int from, float* o, int to) {
  const float a = d[from] + d[2 * from], b = d[from] - d[2 * from];
  const float c = d[3 * from] + d[4 * from], e = d[3 * from] - d[4 * from];
  o[0] = d[0] / 4 - a / 6 + c / 24;
  o[to] = e / 12 - b / 6;
  o[2 * to] = c / 6 - a / 6 + d[5 * from];
}

// A square of pixels, zero outside of the map, to out[frequency][tile][channel].
template <class T>
void spread(const float* map, int height, int width, int channels, int top, int left, const float* zero, float* out) {
  constexpr int S = T::size;
  const float* pixel[S][S];
  for (int y = 0; y < S; y++)
    for (int x = 0; x < S; x++) {
      const int at_y = top + y, at_x = left + x;
      const bool inside = at_y >= 0 && at_y < height && at_x >= 0 && at_x < width;
      pixel[y][x] = inside ? map + ((long)at_y * width + at_x) * channels : zero;
    }
  for (int c = 0; c < channels; c += kLanes) {
    vec half[S][6];  // [column][row frequency]
#pragma GCC unroll 6
    for (int x = 0; x < S; x++) {
      vec d[S];
#pragma GCC unroll 6
      for (int y = 0; y < S; y++) d[y] = load(pixel[y][x] + c);
      T::apply(d, half[x]);
    }
#pragma GCC unroll 6
    for (int y = 0; y < 6; y++) {
      vec d[S], o[6];
#pragma GCC unroll 6
      for (int x = 0; x < S; x++) d[x] = half[x][y];
      T::apply(d, o);
#pragma GCC unroll 6
      for (int x = 0; x < 6; x++) store(out + (long)(y * 6 + x) * kTiles * channels + c, o[x]);
    }
  }
}

// Sums [frequency][tile][channel] of one tile to its output pixels inside the map.
void collect(const float* sums, float* map, const Shape& s, const Place& at) {
  for (int c = 0; c < s.out; c += kLanes) {
    vec half[6][4];  // [column frequency][row]
#pragma GCC unroll 6
    for (int x = 0; x < 6; x++) {
      vec m[6];
#pragma GCC unroll 6
      for (int y = 0; y < 6; y++) m[y] = load(sums + (long)(y * 6 + x) * kTiles * s.out + c);
      sanp_f4::transform_output(m, half[x]);
    }
    for (int y = 0; y < 4 && at.y + y < s.out_height; y++) {
      vec m[6], o[4];
#pragma GCC unroll 6
      for (int x = 0; x < 6; x++) m[x] = half[x][y];
      sanp_f4::transform_output(m, o);
      float* row = map + ((long)(at.y + y) * s.out_width + at.x) * s.out + c;
      for (int x = 0; x < 4 && at.x + x < s.out_width; x++) store(row + x * s.out, o[x]);
    }
  }
}

// out[R][16] += a[R][depth] b[depth][16], with any distance between the rows and the columns of a.
template <int R>
void multiply(int rows, const float* a, long row, long column, const float* b, long b_row, int depth, float* out,
              long out_row, bool add) {
  if constexpr (R == 0) {
    return;
  } else {
    if (rows < R) return multiply<R - 1>(rows, a, row, column, b, b_row, depth, out, out_row, add);
    vec sum[R][2];
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
      sum[r][0] = add ? load(out + r * out_row) : vec{};
      sum[r][1] = add ? load(out + r * out_row + kLanes) : vec{};
    }
    for (int d = 0; d < depth; d++) {
      const vec low = load(b + d * b_row), high = load(b + d * b_row + kLanes);
#pragma GCC unroll 6
      for (int r = 0; r < R; r++) {
        const vec x = splat(a[r * row + d * column]);
        sum[r][0] += x * low;
        sum[r][1] += x * high;
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
      store(out + r * out_row, sum[r][0]);
      store(out + r * out_row + kLanes, sum[r][1]);
    }
  }
}

struct Rooms {  // of all threads: frequencies of the input, of the output, and a pixel of zeros
  Rooms(const Shape& s, int threads)
      : input((long)threads * kFrequencies * kTiles * s.in), output((long)threads * kFrequencies * kTiles * s.out),
        zero(s.in > s.out ? s.in : s.out) {
    std::memset(zero.data, 0, sizeof(float) * (s.in > s.out ? s.in : s.out));
  }
  Buffer<float> input, output, zero;
};

void spread_input(const Shape& s, const Tiles& tiles, const float* x, long first, int count, const float* zero,
                  float* out) {
  for (int i = 0; i < count; i++) {
    const Place at = tiles.place(first + i);
    spread<InputTransform>(x + (long)at.sample * s.height * s.width * s.in, s.height, s.width, s.in, at.y - s.pad,
                           at.x - s.pad, zero, out + (long)i * s.in);
  }
}

// w[out][in][3][3] by its strides to u[frequency][panel][in][16].
void transform_kernels(const Shape& s, const float* w, const long* stride, bool turned, float* u) {
  const int panels = s.out / kPanel;
  for (int k = 0; k < s.out; k++)
    for (int c = 0; c < s.in; c++) {
      const float* g = w + k * stride[0] + c * stride[1];
      float taps[3][3], half[6][3], o[6];
      for (int y = 0; y < 3; y++)
        for (int x = 0; x < 3; x++) taps[y][x] = g[(turned ? 2 - y : y) * stride[2] + (turned ? 2 - x : x) * stride[3]];
      for (int x = 0; x < 3; x++) kernel_transform(&taps[0][x], 3, &half[0][x], 3);
      for (int y = 0; y < 6; y++) {
        kernel_transform(half[y], 1, o, 1);
        for (int x = 0; x < 6; x++) u[(((long)(y * 6 + x) * panels + k / kPanel) * s.in + c) * kPanel + k % kPanel] = o[x];
      }
    }
}

void convolve(const Shape& s, const float* x, const float* w, const long* stride, bool turned, float* y, int threads) {
  const Tiles tiles(s, kSide, kTiles);
  Buffer<float> u((long)kFrequencies * s.in * s.out);
  Rooms rooms(s, threads);
  transform_kernels(s, w, stride, turned, u.data);
  const int panels = s.out / kPanel;
  share(threads, [&](int rank) {
    float* input = rooms.input.data + (long)rank * kFrequencies * kTiles * s.in;
    float* sums = rooms.output.data + (long)rank * kFrequencies * kTiles * s.out;
    tiles.each_block(threads, rank, [&](long first, int count) {
      spread_input(s, tiles, x, first, count, rooms.zero.data, input);
      for (int f = 0; f < kFrequencies; f++)
        for (int p = 0; p < panels; p++)
          for (int i = 0; i < count; i += kRows)
            multiply<kRows>(count - i, input + ((long)f * kTiles + i) * s.in, s.in, 1,
                            u.data + ((long)f * panels + p) * s.in * kPanel, kPanel, s.in,
                            sums + ((long)f * kTiles + i) * s.out + p * kPanel, s.out, false);
      for (int i = 0; i < count; i++) {
        const Place at = tiles.place(first + i);
        collect(sums + (long)i * s.out, y + (long)at.sample * s.out_height * s.out_width * s.out, s, at);
      }
    });
  });
}

void kernel_gradient(const Shape& s, const float* x, const float* dy, float* dw, int threads) {
  const Tiles tiles(s, kSide, kTiles);
  Rooms rooms(s, threads);
  const long size = (long)kFrequencies * s.in * s.out;
  Buffer<float> sums(threads * size);
  share(threads, [&](int rank) {
    float* input = rooms.input.data + (long)rank * kFrequencies * kTiles * s.in;
    float* gradient = rooms.output.data + (long)rank * kFrequencies * kTiles * s.out;
    float* sum = sums.data + rank * size;  // [frequency][in][out]
    std::memset(sum, 0, sizeof(float) * size);
    tiles.each_block(threads, rank, [&](long first, int count) {
      spread_input(s, tiles, x, first, count, rooms.zero.data, input);
      for (int i = 0; i < count; i++) {
        const Place at = tiles.place(first + i);
        spread<GradientTransform>(dy + (long)at.sample * s.out_height * s.out_width * s.out, s.out_height, s.out_width,
                                  s.out, at.y, at.x, rooms.zero.data, gradient + (long)i * s.out);
      }
      for (int f = 0; f < kFrequencies; f++)
        for (int k = 0; k < s.out; k += kPanel)
          for (int c = 0; c < s.in; c += kRows)
            multiply<kRows>(s.in - c, input + (long)f * kTiles * s.in + c, 1, s.in,
                            gradient + (long)f * kTiles * s.out + k, s.out, count,
                            sum + ((long)f * s.in + c) * s.out + k, s.out, true);
    });
  });
  for (int rank = 1; rank < threads; rank++)
    for (long i = 0; i < size; i++) sums.data[i] += sums.data[rank * size + i];
  for (int c = 0; c < s.in; c++)
    for (int k = 0; k < s.out; k++) {
      float d[6][6], half[3][6];
      for (int f = 0; f < kFrequencies; f++) d[f / 6][f % 6] = sums.data[((long)f * s.in + c) * s.out + k];
      for (int q = 0; q < 6; q++) kernel_gradient_transform(&d[0][q], 6, &half[0][q], 6);
      for (int q = 0; q < 3; q++) kernel_gradient_transform(half[q], 1, dw + ((long)k * s.in + c) * 9 + q * 3, 1);
    }
}

}  // namespace

// shape: samples, height, width, in, out_height, out_width, out, pad. Each gives 0, or -1 where memory ran out.
extern "C" {

int sanp_winograd_usable() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

int sanp_winograd_convolve(const int* shape, const float* x, const float* w, const long* stride, int turned, float* y,
                           int threads) {
  Shape s;
  std::memcpy(&s, shape, sizeof s);
  return guarded([&] { convolve(s, x, w, stride, turned != 0, y, threads); });
}

int sanp_winograd_kernel_gradient(const int* shape, const float* x, const float* dy, float* dw, int threads) {
  Shape s;
  std::memcpy(&s, shape, sizeof s);
  return guarded([&] { kernel_gradient(s, x, dy, dw, threads); });
}
}
