// Direct convolution of the live channels: any kernel, stride, padding, dilation and number of groups.
#pragma once
#include "block.hpp"

namespace SANP_NAMESPACE {

constexpr long kBandFloats = 64 * 1024;  // of the copies of a band of rows: half of a 512 KiB second-level cache

// A 1x1 convolution needs no copies of its input.
static inline bool reads_in_place(const Window& w) {
  return w.taps() == 1 && w.stride_y == 1 && w.stride_x == 1 && w.pad_y == 0 && w.pad_x == 0;
}

constexpr int kFewPixels = 4 * L;  // a band is not cut smaller than this, for then blocks would not be full

// How many output rows are computed together; where possible, as many as fill whole vectors. `share` threads share the
// rows.
static inline int band_rows(const Window& w, int channels, int share, bool in_place) {
  int rows = w.out_height;
  if (share > 1) rows = (rows + share - 1) / share;
  if (!in_place)
    while (rows > 1 && rows * w.out_width > kFewPixels && plan_copies(w, 0, rows).channel * channels > kBandFloats)
      rows = (rows + 1) / 2;
  if (rows == w.out_height) return rows;
  int whole = 1;
  while (whole * w.out_width % L != 0) whole *= 2;
  return rows > whole ? rows / whole * whole : rows;
}

static long direct_scratch(const Conv& c) {
  if (reads_in_place(c.window)) return 0;
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

// Computes output channels [from, to) over one band.
static void convolve_band(const Conv& c, const Band& band, const Outputs& out, int from, int to, bool team) {
  const int taps = c.window.taps();
  const int vectors = (band.pixels + L - 1) / L;
  const int per_block = choose_vectors(vectors, to - from);
  const bool claims = team && band.in_count * taps >= kManyTaps;
  const auto& table = kBlocks.taps(taps);
  const float* weight[kMostChannels];
  float bias[kMostChannels];
  const Weights& weights = c.of(Algorithm::direct);
  Block b{};
  b.in_stride = band.in_stride;
  b.in_count = band.in_count;
  b.in_channel = band.in_channel;
  b.tap = band.tap;
  b.taps = taps;
  b.weight = weight;
  b.bias = bias;
  b.relu = c.act.kind == Act::relu;
  each_block(from, to, kMaxChannels[per_block], [&](int j, int T) {
    for (int t = 0; t < T; t++) {
      weight[t] = weights.data + out.channel[j + t] * weights.row;
      bias[t] = c.bias[out.channel[j + t]];
    }
    b.out = out.plane + j;
    b.scale = out.scale + j;
    b.residual = out.residual + j;
    for (int v = 0; v < vectors; v += per_block) {
      const int P = at_most(per_block, vectors - v);
      b.in = band.in + v * L;
      b.out_offset = band.first_pixel + v * L;
      b.last = at_most(L, band.pixels - (v + P - 1) * L);
      Claim{b.out, claims ? T : 0, b.out_offset, (P - 1) * L + b.last}.part(0, 1);
      table[P][T](b);
    }
  });
}

// Applies activations other than ReLU, which the register block does itself, to what was written of a band.
static void activate_band(const Conv& c, const Band& band, const Outputs& out, int from, int to) {
  if (c.act.kind == Act::none || c.act.kind == Act::relu) return;
  for (int j = from; j < to; j++) {
    float* p = out.plane[j] + band.first_pixel;
    int i = 0;
    for (; i + L <= band.pixels; i += L) store(p + i, apply(c.act, out.channel[j], load(p + i)));
    if (i < band.pixels) {
      const vf rest = load_first(p + i, band.pixels - i);
      store_first(p + i, apply(c.act, out.channel[j], rest), band.pixels - i);
    }
  }
}

// Threads share the bands of rows if there are enough of them, and the output channels otherwise.
static void direct(const Conv& c, const Map& in, const Outputs& out, Scratch scratch, Share share, int* local) {
  const Window& w = c.window;
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
      const int rows = band_rows(w, at_least(band.in_count, 1), by_rows ? share.size : 1, in_place);
      const int top = by_rows ? share.from(w.out_height) : 0, bottom = by_rows ? share.to(w.out_height) : w.out_height;
      for (int y = top; y < bottom; y += rows) {
        const int here = at_most(rows, bottom - y);
        band.first_pixel = y * w.out_width;
        band.pixels = here * w.out_width;
        if (in_place) {
          band.in = in.data + in_begin * in.stride + band.first_pixel;
          band.in_stride = in.stride;
          band.tap[0] = 0;
        } else {
          const Copies copies = plan_copies(w, y, here);
          for (int a = in_begin; a < in_end; a++)
            expand_plane(w, copies, in.data + a * in.stride, scratch.floats + (a - in_begin) * copies.channel, 0.f);
          for (int ky = 0; ky < w.kernel_y; ky++)
            for (int kx = 0; kx < w.kernel_x; kx++) band.tap[ky * w.kernel_x + kx] = tap_offset(w, copies, ky, kx);
          band.in = scratch.floats;
          band.in_stride = copies.channel;
        }
        convolve_band(c, band, out, from, to, share.size > 1);
        activate_band(c, band, out, from, to);
      }
    }
    in_begin = in_end;
    out_begin = out_end;
  }
}

}  // namespace SANP_NAMESPACE
