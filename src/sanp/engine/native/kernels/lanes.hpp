// F(2x2, 3x3) for maps of few tiles: the sixteen frequencies of one tile are the lanes. The weights of one pair of
// channels are one cache line, so that those of pruned channels are not fetched, and a block of weights serves every
// sample of a chunk.
#pragma once
#include "winograd.hpp"

namespace SANP_NAMESPACE {

constexpr int kTile = Winograd2::N;
constexpr int kFrequencies = kTile * kTile;

// A vector of elements of a (numbered 0 to 3) and b (4 to 7).
template <int I0, int I1, int I2, int I3>
static inline vf4 pick(vf4 a, vf4 b) {
#ifdef SANP_SHUFFLE
  return SANP_SHUFFLE(a, b, I0, I1, I2, I3);
#else
  const auto at = [&](int i) { return i < 4 ? a[i] : b[i - 4]; };
  return vf4{at(I0), at(I1), at(I2), at(I3)};
#endif
}

// The sixteen frequencies of the tile at `patch`, whose rows are `row` floats apart.
static void tile_frequencies(const float* patch, int row, float* out) {
  const vf4 d0 = quad(patch), d1 = quad(patch + row), d2 = quad(patch + 2 * row), d3 = quad(patch + 3 * row);
  const vf4 down[kTile] = {d0 - d2, d1 + d2, d2 - d1, d1 - d3};
  for (int y = 0; y < kTile; y++) {
    const vf4 d = down[y];
    store_quad(out + y * kTile, pick<0, 1, 2, 1>(d, d) + pick<2, 2, 1, 3>(d, d) * vf4{-1, 1, -1, -1});
  }
}

// The four pixels of a tile, row by row, from its sixteen sums.
static inline vf4 tile_pixels(const float* sums) {
  const vf4 m0 = quad(sums), m1 = quad(sums + 4), m2 = quad(sums + 8), m3 = quad(sums + 12);
  const vf4 top = m0 + m1 + m2, bottom = m1 - m2 - m3;
  const vf4 sign{1, -1, 1, -1};
  return pick<0, 1, 4, 5>(top, bottom) + pick<1, 2, 5, 6>(top, bottom) * sign + pick<2, 3, 6, 7>(top, bottom) * sign;
}

// Sums of T output channels by P tiles; `in` and `weight` begin at the frequencies that this call is for.
struct LaneBlock {
  const float* in;
  long in_stride;
  int in_count;
  const int* in_channel;
  const float* weight[kMostChannels];
  float* out[kMostChannels];
};

template <int T, int P>
static void run_lanes(const LaneBlock& b) {
  vf sum[T][P] = {};
  const float* w[T];
#pragma GCC unroll 32
  for (int t = 0; t < T; t++) w[t] = b.weight[t];
  const float* plane = b.in;
  for (int a = 0; a < b.in_count; a++, plane += b.in_stride) {
    const long column = (long)b.in_channel[a] * kFrequencies;
    vf x[P];
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) x[p] = load(plane + p * kFrequencies);
#pragma GCC unroll 32
    for (int t = 0; t < T; t++) {
      const vf weight = load(w[t] + column);
#pragma GCC unroll 8
      for (int p = 0; p < P; p++) sum[t][p] += weight * x[p];
    }
  }
#pragma GCC unroll 32
  for (int t = 0; t < T; t++)
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) store(b.out[t] + p * kFrequencies, sum[t][p]);
}

typedef void (*LaneFunction)(const LaneBlock&);

struct LaneTable {
  LaneFunction at[kMaxVectors + 1][kMostChannels + 1]{};
  template <int P, int T>
  constexpr void put() {
    at[P][T] = run_lanes<T, P>;
    if constexpr (T > 1) put<P, T - 1>();
  }
  constexpr LaneTable() {
    put<1, kMaxChannels[1]>();
    put<2, kMaxChannels[2]>();
    put<3, kMaxChannels[3]>();
    put<4, kMaxChannels[4]>();
  }
};
static constexpr LaneTable kLanes{};

// How a convolution is cut: `group` samples whose frequencies are kept at the same time, and `channels` neighbouring
// output channels whose weights stay in the second-level cache while those samples go by.
struct LanePlan {
  Window window;  // of tiles
  int tiles, block, group, channels;  // block: output channels in one register block
  TileInput input;
  long spectrum, sums;  // floats of one sample, and of one block
  long places() const { return padded(tiles); }
  long scratch() const { return input.floats() + places() + group * spectrum + 2 * sums + 2 * L; }
};

static LanePlan plan_lanes(const Conv& c, int samples) {
  LanePlan p;
  p.window = tile_window<Winograd2>(c.window);
  p.tiles = p.window.out_height * p.window.out_width;
  p.input = tile_input<Winograd2>(p.window, p.window.out_height);
  p.spectrum = (long)c.in_channels * p.tiles * kFrequencies;
  p.sums = (long)kMostChannels * p.tiles * kFrequencies;
  p.group = at_least(1, at_most(samples, (int)(2 * kBandFloats / p.spectrum)));
  p.block = kMaxChannels[at_most(p.tiles, kMaxVectors)];
  p.channels = at_least(1, (int)(kBandFloats / c.of(Algorithm::lanes).row) / p.block) * p.block;
  return p;
}

static long lanes_scratch(const Conv& c) { return plan_lanes(c, kMostSamples).scratch(); }

// Computes T output channels of one sample, from the j-th of its list on.
static void convolve_tiles(const Conv& c, const LanePlan& plan, const Map& in, const Outputs& out, int j, int T,
                           const float* spectrum, float* sums, float* pixels, bool team) {
  const Weights& weights = c.of(Algorithm::lanes);
  Claim{out.plane + j, team ? T : 0, 0, c.window.out_height * c.window.out_width}.part(0, 1);
  LaneBlock b{spectrum, (long)plan.tiles * kFrequencies, in.live, in.index, {}, {}};
  for (int lane = 0; lane < kFrequencies; lane += L)
    for (int p = 0; p < plan.tiles; p += kMaxVectors) {
      b.in = spectrum + p * kFrequencies + lane;
      for (int t = 0; t < T; t++) {
        b.weight[t] = weights.data + out.channel[j + t] * weights.row + lane;
        b.out[t] = sums + ((long)t * plan.tiles + p) * kFrequencies + lane;
      }
      kLanes.at[at_most(kMaxVectors, plan.tiles - p)][T](b);
    }
  const int height = c.window.out_height, width = c.window.out_width;
  const long plane = (long)plan.tiles * kFrequencies;
  for (int t = 0; t < T; t++)
    for (int p = 0; p < plan.tiles; p++) {
      const vf4 v = tile_pixels(sums + t * plane + p * kFrequencies);
      const int y = p / plan.window.out_width * 2, x = p % plan.window.out_width * 2;
      float* to = pixels + t * plane + y * width + x;
      to[0] = v[0];
      if (x + 1 < width) to[1] = v[1];
      if (y + 1 == height) continue;
      to[width] = v[2];
      if (x + 1 < width) to[width + 1] = v[3];
    }
  for (int t = 0; t < T; t++) {
    const Finish finish{c.bias[out.channel[j + t]], out.scale[j + t], bounds_of(c.act)};
    const float* residual = out.residual[j + t];
    for (int i = 0; i < height * width; i += L)
      finish_row(finish, load(pixels + t * plane + i), out.plane[j + t] + i, residual ? residual + i : nullptr,
                 height * width - i);
  }
}

static void convolve_lanes(const Conv& c, const Map* const* in, const Outputs* out, int samples, Scratch scratch,
                           Share share) {
  const LanePlan plan = plan_lanes(c, samples);
  const Window& t = plan.window;
  float* room = scratch.floats;
  int* at = reinterpret_cast<int*>(room + plan.input.floats());
  const long before = plan.input.floats() + plan.places();
  float* spectra = scratch.common + before;
  float* sums = room + before + plan.group * plan.spectrum;
  float* pixels = sums + plan.sums;
  place_tiles<Winograd2>(t, plan.input, plan.tiles, 1, room, at);
  for (int first = 0; first < samples; first += plan.group) {
    const int here = at_most(plan.group, samples - first);
    if (first > 0) share.meet();  // every thread has read the last group
    int next[kMostSamples];  // for each sample, the place in its list of the first channel that is not done
    for (int s = 0; s < here; s++) {
      const Map& map = *in[first + s];
      float* to = spectra + s * plan.spectrum + (long)share.from(map.live) * plan.tiles * kFrequencies;
      for (int a = share.from(map.live); a < share.to(map.live); a++) {
        copy_inside(t, plan.input, -t.pad_y, map.data + a * map.stride, room);
        for (int p = 0; p < plan.tiles; p++, to += kFrequencies) tile_frequencies(room + at[p], plan.input.row, to);
      }
      next[s] = share.from(out[first + s].count);
    }
    share.meet();
    const int step = here > 1 ? plan.channels : c.out_channels;
    for (int low = 0; low < c.out_channels; low += step)
      for (int s = 0; s < here; s++) {
        const Outputs& o = out[first + s];
        const int last = share.to(o.count);
        int end = next[s];
        while (end < last && o.channel[end] < low + step) end++;
        each_block(next[s], end, plan.block, [&](int j, int T) {
          convolve_tiles(c, plan, *in[first + s], o, j, T, spectra + s * plan.spectrum, sums, pixels, share.size > 1);
        });
        activate_written(c.act, o.channel + next[s], o.plane + next[s], end - next[s], 0,
                         c.window.out_height * c.window.out_width);
        next[s] = end;
      }
  }
}

}  // namespace SANP_NAMESPACE
