// Convolution of bytes on small maps: lanes are input channels, so that no lane is left without a pixel, no weight is
// gathered, and no product is one with the padding. Channels that are not live have the byte 0, whatever their weights.
//
// The input lies as [row][64 channels][column][64 bytes]. A row of output pixels and some output channels have a vector
// of sums each, whose lanes are added up at the end.
#pragma once
#include "finish.hpp"

namespace SANP_NAMESPACE {

constexpr int kSmallWidest = 8, kSmallPixels = 64;
constexpr int kSmallTogether = 24;              // output channels that are finished together
constexpr long kSmallBytes = 256 * 1024;        // of the inputs of several samples, and of weights that they share
#if SANP_REGISTERS >= 32
constexpr int kSmallChannels[kSmallWidest + 1] = {0, 8, 4, 5, 4, 3, 2, 2, 2};  // of a block, by the width of the map
#else
constexpr int kSmallChannels[kSmallWidest + 1] = {0, 4, 2, 2, 2, 1, 1, 1, 1};
#endif
constexpr int kSmallMost = 8;
constexpr int kSmallLines = kMostWeightBytes / (9 * kWeightLine);  // of weights of one of the nine taps
// What a product costs, measured in products where lanes are pixels, with adding up the lanes. Without VNNI weights are
// unpacked for each.
constexpr double kSmallProduct = SANP_REGISTERS >= 32 ? 1.12 : 2.;
#ifdef __AVX2__
constexpr double kGatherLine = 5.;  // the same for a line of weights, fetched and gathered
#else
constexpr double kGatherLine = 20.;
#endif

// Windows of 3x3 with one pixel of padding, and an output that is as wide as the input, or half as wide.
static inline bool is_small(const ByteConv& c) {
  const Window& w = c.window;
  return c.groups == 1 && c.zero == 0 && w.kernel_y == 3 && w.kernel_x == 3 && w.pad_y == 1 && w.pad_x == 1 &&
         w.dilation_y == 1 && w.dilation_x == 1 && w.stride_y == w.stride_x && w.stride_x <= 2 &&
         w.width == w.out_width * w.stride_x && w.out_width <= kSmallWidest &&
         w.out_height * w.out_width <= kSmallPixels;
}

// Products of one column or row of the window with pixels inside the map, for all outputs of a line of them.
static inline int inner_taps(int size, int out, int stride) {
  int count = 0;
  for (int i = 0; i < out; i++)
    for (int k = 0; k < 3; k++) count += i * stride + k >= 1 && i * stride + k - 1 < size;
  return count;
}

// Whether lanes of channels take less time than lanes of pixels with so many live inputs.
static inline bool pays_small(const ByteConv& c, int live) {
  const Window& w = c.window;
  const int pixels = w.out_height * w.out_width, lines = (int)(c.step / kWeightLine);
  const int taps = inner_taps(w.height, w.out_height, w.stride_y) * inner_taps(w.width, w.out_width, w.stride_x);
  const double here = taps * lines * kSmallProduct * kWeightLine / (L * 4);
  return here < w.taps() * (quads(live) * ((pixels + L - 1) / L) + lines * kGatherLine);
}

struct SmallBlock {
  const char* in;
  int height, top;
  long step;
  const char* weight[kSmallMost];
  const char* next[kSmallMost];  // of the block that follows, to be fetched if `fetch` says so
  bool fetch;
  int* sums;            // [channel][pixel], `stride` apart, from row `top` on
  long stride;
};

// Numbers of lanes in two vectors, one after the other, in parts of `Size` lanes: of the even parts, or of the odd ones.
template <int Size>
static inline vi parts_of(const vi& a, const vi& b, int odd) {
  vi lane;
  for (int i = 0; i < L; i++) lane[i] = (i / Size * 2 + odd) * Size + i % Size;
  return lanes_of(a, b, lane);
}

// Adds up the lanes of each of L vectors: lane i of the result is the sum of v[i]. The vectors stay in registers.
__attribute__((always_inline)) static inline vi add_lanes(vi (&v)[L]) {
  vi four[L / 4];
#pragma GCC unroll 4
  for (int n = 0; n < L / 4; n++) four[n] = add_in_fours(v[4 * n], v[4 * n + 1], v[4 * n + 2], v[4 * n + 3]);
#pragma GCC unroll 2
  for (int count = L / 4; count > 1; count /= 2)
#pragma GCC unroll 2
    for (int n = 0; n < count / 2; n++)
      four[n] = parts_of<4>(four[2 * n], four[2 * n + 1], 0) + parts_of<4>(four[2 * n], four[2 * n + 1], 1);
  return four[0];
}

// Asks for the weights of the block that follows, some lines with each step of this one: memory answers only so many
// requests at a time, and the products of all rows can be computed meanwhile.
class NextWeights {
 public:
  NextWeights(const SmallBlock& b, int channels, int rows)
      : row_(b.next), left_(b.fetch ? channels : 0), bytes_(9 * b.step) {
    const long steps = (3 * rows - 2) * (b.step / (L * 4));  // without those above and below the map
    each_ = (int)((channels * (bytes_ / kWeightLine) + steps - 1) / steps);
  }
  void fetch_some() {
    for (int n = 0; n < each_ && left_ > 0; n++) {
      __builtin_prefetch(*row_ + at_, 0, 2);
      if ((at_ += kWeightLine) == bytes_) row_++, left_--, at_ = 0;
    }
  }

 private:
  const char* const* row_;
  int left_, each_;
  long bytes_, at_ = 0;
};

// Rows [y, y + R) of the outputs of T channels, as far as they come before `bottom`.
template <int W, int S, int T, int R>
static inline void small_rows(const SmallBlock& b, NextWeights& next, int y, int bottom) {
  constexpr int N = R * W, G = (T * N + L - 1) / L;
  vi sum[G][L] = {};
  for (int ky = 0; ky < 3; ky++) {
    const char* row[R];
    bool inside[R], any = false;
    for (int r = 0; r < R; r++) {
      const int from = (y + r) * S + ky - 1;
      inside[r] = y + r < bottom && from >= 0 && from < b.height;
      row[r] = b.in + from * (long)(W * S) * b.step;
      any |= inside[r];
    }
    if (!any) continue;
    for (long i = 0; i < b.step; i += L * 4) {
      const long line = i / kWeightLine * (W * S * kWeightLine) + i % kWeightLine;
      next.fetch_some();
#pragma GCC unroll 3
      for (int kx = 0; kx < 3; kx++) {
        if (W == 1 && S == 1 && kx != 1) continue;
        LaneFours w[T];
#pragma GCC unroll 8
        for (int t = 0; t < T; t++) w[t] = lane_fours_at(b.weight[t] + (ky * 3 + kx) * b.step + i);
#pragma GCC unroll 2
        for (int r = 0; r < R; r++) {
          if (!inside[r]) continue;
#pragma GCC unroll 8
          for (int p = 0; p < W; p++) {
            const int column = p * S + kx - 1;
            if (column < 0 || column >= W * S) continue;
            const Pixels x = pixels_at(reinterpret_cast<const float*>(row[r] + line + column * kWeightLine));
#pragma GCC unroll 8
            for (int t = 0; t < T; t++) {
              vi& to = sum[(t * N + r * W + p) / L][(t * N + r * W + p) % L];
              to = dot(to, x, w[t]);
            }
          }
        }
      }
    }
  }
#pragma GCC unroll 2
  for (int g = 0; g < G; g++) {
    int made[L];
    const vi sums = add_lanes(sum[g]);
    __builtin_memcpy(made, &sums, sizeof sums);
    constexpr int Piece = W % 4 == 0 ? 4 : 1;
    for (int k = 0; k < L; k += Piece) {
      const int n = g * L + k;
      if (n >= T * N || y + n % N / W >= bottom) continue;
      __builtin_memcpy(b.sums + n / N * b.stride + (y - b.top) * W + n % N, made + k, Piece * sizeof(int));
    }
  }
}

template <int W, int S>
static void run_small(const SmallBlock& b, int bottom) {
  constexpr int R = W == 2 ? 2 : 1, T = kSmallChannels[W];
  NextWeights next(b, T, (bottom - b.top + R - 1) / R);
  for (int y = b.top; y < bottom; y += R) small_rows<W, S, T, R>(b, next, y, bottom);
}

typedef void (*SmallFunction)(const SmallBlock&, int bottom);
static constexpr SmallFunction kSmallRows[2][kSmallWidest + 1] = {
    {nullptr, run_small<1, 1>, run_small<2, 1>, run_small<3, 1>, run_small<4, 1>, run_small<5, 1>, run_small<6, 1>,
     run_small<7, 1>, run_small<8, 1>},
    {nullptr, run_small<1, 2>, run_small<2, 2>, run_small<3, 2>, run_small<4, 2>, run_small<5, 2>, run_small<6, 2>,
     run_small<7, 2>, run_small<8, 2>},
};

// The bytes of all channels of each pixel.
#ifdef __AVX2__
static inline void spread(const Map& in, long lines, char* compact, char* to) {
  LiveLine live[kSmallLines];
  for (int k = 0, a = 0; k < lines; k++)
    for (live[k].before = a; a < in.live && in.index[a] < (k + 1) * kWeightLine; a++)
      live[k].mark(in.index[a] % (int)kWeightLine);
  for (int y = 0, i = 0; y < in.height; y++, to += in.width * lines * kWeightLine)
    for (int x = 0; x < in.width; x++, i++) {
      for (int q = 0; q < quads(in.live); q++) __builtin_memcpy(compact + q * kQuad, in.data + q * in.stride + i, kQuad);
      for (long k = 0; k < lines; k++) spread_line(live[k], compact, to + (k * in.width + x) * kWeightLine);
    }
}
#else
static inline void spread(const Map& in, long lines, char*, char* to) {
  const long row = in.width * lines * kWeightLine;
  for (long i = 0; i < in.height * row; i++) to[i] = 0;
  for (int a = 0; a < in.live; a++) {
    const int c = in.index[a];
    const char* from = reinterpret_cast<const char*>(in.data + a / kQuad * in.stride) + a % kQuad;
    char* line = to + c / kWeightLine * in.width * kWeightLine + c % kWeightLine;
    for (int y = 0; y < in.height; y++)
      for (int x = 0; x < in.width; x++, from += kQuad) line[y * row + x * kWeightLine] = *from;
  }
}
#endif

// Memory of a thread: sums, one pixel, and the bytes of some samples.
static inline long small_input(const ByteConv& c) { return (long)c.window.height * c.window.width * c.step; }
static inline int small_samples(const ByteConv& c) {
  return at_least(1, at_most(kMostSamples, (int)(kSmallBytes / small_input(c))));
}
static inline long small_scratch(const ByteConv& c) {
  return (kSmallTogether + kSmallMost) * kSmallPixels + (c.step + 64 + small_samples(c) * small_input(c)) / 4 + 2 * L;
}

// One sample whose bytes were spread, and the output channels [next, to) that are left.
struct SmallSample {
  const ByteOutputs* out;
  const char* in;
  int next, to;

  // Computes output channels up to `limit`, in whole planes of the result, over rows [top, bottom).
  void run(const ByteConv& c, int* sums, int limit, int top, int bottom, bool fetch) {
    const Window& w = c.window;
    const int T = kSmallChannels[w.out_width], pixels = (bottom - top) * w.out_width;
    const int vectors = (pixels + L - 1) / L;
    int end = next;
    while (end < to && out->channel[end] < limit) end++;
    while (end < to && end > next && out->place[end] % kQuad) end--;
    const auto weights = [&](int j) {
      return reinterpret_cast<const char*>(c.weight + out->channel[at_most(j, to - 1)] * c.row());
    };
    while (next < end) {
      const int count = at_most(kSmallTogether, end - next);
      for (int j = 0; j < count; j += T) {
        SmallBlock b{in, w.height, top, c.step, {}, {}, fetch, sums + j * vectors * L, vectors * L};
        for (int t = 0; t < T; t++) b.weight[t] = weights(next + j + t), b.next[t] = weights(next + j + T + t);
        kSmallRows[w.stride_x - 1][w.out_width](b, bottom);
      }
      finish(c, *out, BytePlanes(c, *out, next, count), {sums, vectors, (long)top * w.out_width, pixels});
      next += count;
    }
  }
};

// Samples take turns, so that weights are fetched once for all of them.
static void small_conv(const ByteConv& c, SmallSample* samples, const Map* const* in, int count, int top, int bottom,
                       float* room) {
  int* sums = reinterpret_cast<int*>(room);
  char* compact = reinterpret_cast<char*>(sums + (kSmallTogether + kSmallMost) * kSmallPixels);
  char* spreads = compact + c.step + 64;
  const long lines = c.step / kWeightLine, input = small_input(c);
  const int together = small_samples(c), step = at_least(kQuad, (int)(kSmallBytes / c.row()));
  for (int first = 0; first < count; first += together) {
    const int last = at_most(count, first + together);
    for (int s = first; s < last; s++) {
      char* to = spreads + (s - first) * input;
      spread(*in[s], lines, compact, to);
      samples[s].in = to;
    }
    for (int limit = step; limit < c.out_channels + step; limit += step)
      for (int s = first; s < last; s++) samples[s].run(c, sums, limit, top, bottom, s == first);
  }
}

}  // namespace SANP_NAMESPACE
