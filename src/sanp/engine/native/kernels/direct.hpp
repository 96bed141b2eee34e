// Direct convolution of the live channels: any kernel, stride, padding, dilation and number of groups.
#pragma once
#include "ahead.hpp"
#include "block.hpp"
#include "dots.hpp"

namespace SANP_NAMESPACE {

constexpr long kBandFloats = 64 * 1024;  // of the copies of a band of rows: half of a 512 KiB second-level cache

// A 1x1 convolution needs no copies of its input.
static inline bool reads_in_place(const Window& w) { return w.pointwise(); }

constexpr int kFewPixels = 4 * L;  // a band is not cut smaller than this, for then blocks would not be full

// How many output rows are computed together, of `channels` inputs for `outputs`; where possible, as many as fill whole
// vectors. `share` threads share the rows. Pixels are read once for every block of output channels and weights once for
// every band, so a band is cut until its pixels stay in the second-level cache, where the weights are few.
static inline int band_rows(const Window& w, int channels, int outputs, int share, bool in_place) {
  int rows = w.out_height;
  if (share > 1) rows = (rows + share - 1) / share;
  const auto floats = [&] {
    return in_place ? (long)rows * w.out_width * channels : plan_copies(w, 0, rows).channel * channels;
  };
  if (!in_place || (long)channels * outputs <= kBandFloats)
    while (rows > 1 && rows * w.out_width > kFewPixels && floats() > kBandFloats) rows = (rows + 1) / 2;
  if (rows == w.out_height) return rows;
  int whole = 1;
  while (whole * w.out_width % L != 0) whole *= 2;
  return rows > whole ? rows / whole * whole : rows;
}

// Windows of one pixel that leave some out: those that they take are copied together first.
static inline bool is_sparse(const Conv& c) {
  const Window& w = c.window;
  return w.taps() == 1 && !reads_in_place(w) && w.inside() && c.groups == 1 && w.stride_x <= 2;
}

static long direct_scratch(const Conv& c) {
  if (reads_in_place(c.window)) return dots_scratch(c);
  if (is_sparse(c))
    return c.in_channels * odd_lines((long)c.window.out_height * c.window.out_width) + dots_scratch(c) + 4 * L;
  const int channels = c.in_channels / c.groups;
  const int fewest = at_least(1, at_most(c.window.out_height, kFewPixels / c.window.out_width));
  const long smallest = plan_copies(c.window, 0, fewest).channel * channels;
  return (smallest > kBandFloats ? smallest : kBandFloats) + 2 * L;
}

// Moves [begin, end) to the places of channels [low, high) in an ascending list of live channels.
static inline void group_range(const int* list, int count, int low, int high, int& begin, int& end) {
  while (begin < count && list[begin] < low) begin++;
  end = begin;
  while (end < count && list[end] < high) end++;
}

// A band of output rows, and its input: the copies of the live channels, or the channels themselves.
struct Band {
  const float* in;
  long in_stride;
  int in_count;
  const int* in_channel;
  long tap[kMostTaps];
  int first_pixel, pixels;
};

// A thread claims lines if there are so many taps in all live channels: fewer take too little time to hide the waiting.
constexpr int kManyTaps = 128;
constexpr int kFewVectors = 16;  // of pixels: with fewer, weights are read faster than they come from the cache

// Computes output channels [from, to) over one band. `dots` computes its last pixels, which do not fill a vector. The
// first band fetches the weights of what follows.
static void convolve_band(const Conv& c, const Band& band, const Outputs& out, int from, int to, bool team,
                          const Dots& dots, bool first) {
  const int taps = c.window.taps();
  const int pixels = band.pixels - dots.pixels, vectors = (pixels + L - 1) / L;
  const int per_block = choose_vectors(at_least(vectors, 1), to - from);
  const bool claims = team && band.in_count * taps >= kManyTaps;
  const auto& table = kBlocks.taps(taps);
  const float* weight[kMostChannels];
  const float* next[kMostChannels];
  float bias[kMostChannels];
  const Weights& weights = c.of(Algorithm::direct);
  const auto row = [&](int j) { return weights.data + out.channel[at_most(j, to - 1)] * weights.row; };
  Block b{};
  b.in_stride = band.in_stride;
  b.in_count = band.in_count;
  b.in_channel = band.in_channel;
  b.tap = band.tap;
  b.taps = taps;
  b.weight = weight;
  b.bias = bias;
  b.bounds = bounds_of(c.act);
  b.in_line = channels_in_line(band.in_count, c.in_channels / c.groups);
  Ahead ahead(c, first && !team);
  each_block(from, to, kMaxChannels[per_block], [&](int j, int T) {
    for (int t = 0; t < T; t++) {
      weight[t] = row(j + t);
      bias[t] = c.bias[out.channel[j + t]];
    }
    if (taps == 1 && vectors <= kFewVectors)
      for (int t = 0; t < T; t++) next[t] = row(j + T + t);
    b.out = out.plane + j;
    b.scale = out.scale + j;
    b.residual = out.residual + j;
    for (int v = 0; v < vectors; v += per_block) {
      const int P = at_most(per_block, vectors - v);
      b.in = band.in + v * L;
      b.out_offset = band.first_pixel + v * L;
      b.last = at_most(L, pixels - (v + P - 1) * L);
      b.next = taps == 1 && vectors <= kFewVectors && v + per_block >= vectors ? next : nullptr;
      b.ahead = ahead.take(band.in_count);
      const int written = (P - 1) * L + b.last;
      Claim{b.out, claims ? T : 0, b.out_offset, written}.part(0, 1);
      table[P][T](b);
      activate_written(c.act, out.channel + j, b.out, T, b.out_offset, written);
    }
    if (dots.pixels > 0) dot_pixels(c, dots, out, j, T, band.first_pixel + pixels);
  });
}

static void direct(const Conv& c, const Map& in, const Outputs& out, Scratch scratch, Share share, int* local);

// Copies the pixels that windows of one pixel take; what is left is the same without a stride.
static void direct_sparse(const Conv& c, const Map& in, const Outputs& out, Scratch scratch, Share share, int* local) {
  const Window& w = c.window;
  Map taken = in;
  taken.height = w.out_height, taken.width = w.out_width;
  taken.stride = odd_lines(taken.pixels());
  taken.data = scratch.floats;
  const auto copy = w.stride_x == 2 ? copy_strided<2> : copy_strided<1>;
  for (int a = 0; a < in.live; a++)
    for (int y = 0; y < w.out_height; y++)
      copy(in.data + a * in.stride + (long)y * w.stride_y * w.width, taken.data + a * taken.stride + y * w.out_width,
           w.out_width, w.stride_x);
  Conv plain = c;
  plain.window.height = w.out_height, plain.window.width = w.out_width;
  plain.window.stride_y = plain.window.stride_x = 1;
  const long used = c.in_channels * taken.stride + 2 * L;
  scratch.floats += used, scratch.capacity -= used;
  direct(plain, taken, out, scratch, share, local);
}

// Threads share the bands of rows if there are enough of them, and the output channels otherwise.
static void direct(const Conv& c, const Map& in, const Outputs& out, Scratch scratch, Share share, int* local) {
  const Window& w = c.window;
  if (is_sparse(c)) return direct_sparse(c, in, out, scratch, share, local);
  const int in_group = c.in_channels / c.groups, out_group = c.out_channels / c.groups;
  const bool in_place = reads_in_place(w);
  const bool by_rows = share.size > 1 && (w.out_height >= 4 * share.size || c.groups > 1);
  Band band;
  int in_begin = 0, in_end = 0, out_begin = 0, out_end = 0;
  for (int g = 0; g < c.groups; g++) {
    group_range(in.index, in.live, g * in_group, (g + 1) * in_group, in_begin, in_end);
    group_range(out.channel, out.count, g * out_group, (g + 1) * out_group, out_begin, out_end);
    const int count = out_end - out_begin;
    if (count > 0) {
      const int from = by_rows ? out_begin : out_begin + share.from(count);
      const int to = by_rows ? out_end : out_begin + share.to(count);
      for (int a = in_begin; a < in_end; a++) local[a - in_begin] = in.index[a] - g * in_group;
      band.in_count = in_end - in_begin;
      band.in_channel = local;
      const int rows = band_rows(w, at_least(band.in_count, 1), count, by_rows ? share.size : 1, in_place);
      const int top = by_rows ? share.from(w.out_height) : 0, bottom = by_rows ? share.to(w.out_height) : w.out_height;
      for (int y = top; y < bottom; y += rows) {
        const int here = at_most(rows, bottom - y);
        band.first_pixel = y * w.out_width;
        band.pixels = here * w.out_width;
        Dots dots{};
        if (in_place) {
          band.in = in.data + in_begin * in.stride + band.first_pixel;
          band.in_stride = in.stride;
          band.tap[0] = 0;
          dots = c.groups == 1 ? gather_dots(c, in, band.first_pixel, band.pixels, scratch.floats) : dots;
        } else {
          const Copies copies = plan_copies(w, y, here);
          for (int a = in_begin; a < in_end; a++)
            expand_plane(w, copies, in.data + a * in.stride, scratch.floats + (a - in_begin) * copies.channel, 0.f);
          for (int ky = 0; ky < w.kernel_y; ky++)
            for (int kx = 0; kx < w.kernel_x; kx++) band.tap[ky * w.kernel_x + kx] = tap_offset(w, copies, ky, kx);
          band.in = scratch.floats;
          band.in_stride = copies.channel;
        }
        convolve_band(c, band, out, from, to, share.size > 1, dots, y == top);
      }
    }
    in_begin = in_end;
    out_begin = out_end;
  }
}

}  // namespace SANP_NAMESPACE
