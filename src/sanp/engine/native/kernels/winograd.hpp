// Convolution of the live channels by Winograd's schemes: for each frequency weights are multiplied with vectors of
// tiles, in the same register block that computes convolutions directly.
#pragma once
#include "tiles.hpp"

namespace SANP_NAMESPACE {

// What becomes of the pixels of one output channel.
struct Finish {
  float bias, scale;
  Bounds bounds;
};

// Writes one vector of pixels, but no more than `room` of them.
static inline void finish_row(const Finish& f, vf v, float* out, const float* residual, int room) {
  if (room <= 0) return;
  v = (v + f.bias) * f.scale;
  if (residual) v = v + load(residual);
  v = clip(v, f.bounds.low, f.bounds.high);
  if (room >= L)
    store(out, v);
  else
    store_first(out, v, room);
}

// Writes one row of output pixels. `room` is how many pixels may be written from its start on, at least the row's own.
template <int M>
static void write_row(const Finish& f, const float* pixels, int tiles, int across, float* out, const float* residual,
                      int width, int room) {
  for (int i = 0; i < across && i * M < width; i += L) {
    vf v[M];
    join_phases<M>(pixels + i, tiles, v);
#pragma GCC unroll 4
    for (int m = 0; m < M; m++) {
      const int x = i * M + m * L;
      if (x < width) finish_row(f, v[m], out + x, residual ? residual + x : nullptr, room - x);
    }
  }
}

// A band of rows of tiles, [first, first + rows). Its frequencies are `frequency` floats apart.
struct TileBand {
  int first, rows, tiles;
  long frequency;
};

// Writes the frequencies of every live channel over a band, from copies of its planes.
template <class Q>
static void expand_band(const Window& t, const Map& in, const TileBand& band, float* room, float* spectrum) {
  const Copies copies = plan_copies(t, band.first, band.rows);
  long down[Q::N];
  for (int y = 0; y < Q::N; y++) down[y] = tap_offset(t, copies, y, 0);
  for (int k = 0; k < in.live; k++) {
    expand_plane(t, copies, in.data + k * in.stride, room, 0.f);
    for (int v = 0; v < band.tiles; v += L) {
      const auto columns = [&](int y, vf(&d)[Q::N]) {
        const float* from = room + down[y] + v;
#pragma GCC unroll 13
        for (int x = 0; x < Q::N; x++, from += copies.copy) d[x] = load(from);
      };
      transform_vector<Q>(columns, spectrum + (long)k * band.tiles + v, band.frequency);
    }
  }
}

// Writes the frequencies of every live channel over a band. A thread begins with the channels that it has probably
// written itself, and meanwhile prefetches those that are in the caches of other cores.
template <class Q>
static void prepare_band(const Window& t, const Map& in, const TileBand& band, float* room, int* at, float* spectrum,
                         Share share) {
  const int own = share.from(in.live), ahead = at_least(1, in.live / share.size);
  const auto nth = [&](int k) { return (own + k) % in.live; };
  const auto plane = [&](int k) { return in.data + nth(k) * in.stride; };
  const auto frequencies = [&](int k) { return spectrum + (long)nth(k) * band.tiles; };
  const auto fetch = [&](int k) {
    if (share.size == 1 || k >= in.live) return;
    for (int i = 0; i < in.pixels(); i += 16) __builtin_prefetch(plane(k) + i);
  };
  const bool by_fours = t.out_width % 4 == 0;
  if constexpr (kReadsPlanes<Q>)
    if (by_fours) {
      Piece* pieces = reinterpret_cast<Piece*>(room);
      find_pieces<Q>(t, band.first, band.rows, band.tiles, pieces);
      for (int k = 0; k < in.live; k++) {
        fetch(k + ahead);
        transform_plane<Q>(plane(k), pieces, frequencies(k), band.frequency, band.tiles);
      }
      return;
    }
  const TileInput input = tile_input<Q>(t, band.rows);
  place_tiles<Q>(t, input, band.tiles, kRooms, room, at);
  const auto room_of = [&](int k) { return room + k % kRooms * input.floats(); };
  const auto copy = [&](int k) { copy_inside(t, input, band.first * t.stride_y - t.pad_y, plane(k), room_of(k)); };
  if (in.live > 0) copy(0);
  for (int k = 0; k < in.live; k++) {
    fetch(k + ahead);
    if (k + 1 < in.live) copy(k + 1);
    transform_input<Q>(room_of(k), input.row, at, by_fours, frequencies(k), band.frequency, band.tiles);
  }
}

// The weights of the next frequency are fetched where there are so many that they come from memory, and few vectors of
// tiles: then all rows of a block reach a new cache line at the same time, and wait for it.
constexpr int kFewestVectors = 2;
constexpr long kManyWeights = 1L << 19;  // floats

// Computes the sums of T output channels from the j-th on, [channel][sum][tile].
template <class Q>
static void sum_tiles(const Conv& c, const Map& in, const Outputs& out, const TileBand& band, const float* spectrum,
                      float* sums, int j, int T, int per_block, const Claim& claim) {
  static constexpr Sums<Q> plan{};
  const Weights& weights = c.of(Q::algorithm);
  const long step = frequency_step<Q>(c);
  const int vectors = band.tiles / L;
  const float* weight[kMostChannels];
  const float* next[kMostChannels];
  float* target[kMostChannels];
  for (int i = 0; i < T; i++) {
    weight[i] = weights.data + out.channel[j + i] * weights.row;
    target[i] = sums + (long)i * plan.count * band.tiles;
  }
  const bool fetches = vectors <= kFewestVectors && Q::stride == 1 && (long)out.count * weights.row >= kManyWeights;
  long tap[4];
  Block b{};
  b.in_stride = band.tiles;
  b.in_count = in.live;
  b.in_channel = in.index;
  b.in_line = channels_in_line(in.live, c.in_channels);
  b.tap = tap;
  b.last = L;
  b.weight = weight;
  b.out = target;
  for (int s = 0; s < plan.count; s++) {
    const int* taken = plan.frequency + plan.before[s];
    for (int k = 0; k < plan.taps[s]; k++) tap[k] = (taken[k] - taken[0]) * band.frequency;
    b.taps = plan.taps[s];
    b.weight_offset = plan.before[s] * step;
    if (fetches) {
      const bool last = s + 1 == plan.count;
      for (int i = 0; i < T; i++) {
        const int which = at_most((last ? j + T : j) + i, out.count - 1);
        next[i] = weights.data + out.channel[which] * weights.row + (last ? 0 : plan.before[s + 1] * step);
      }
    }
    const auto& table = kBlocks.taps(b.taps);
    claim.part(s, plan.count);
    for (int v = 0; v < vectors; v += per_block) {
      b.in = spectrum + taken[0] * band.frequency + v * L;
      b.out_offset = s * band.tiles + v * L;
      b.next = fetches && v + per_block >= vectors ? next : nullptr;
      table[at_most(per_block, vectors - v)][T](b);
    }
  }
}

// Writes the pixels of the j-th output channel over a band.
template <class Q>
static void write_tiles(const Conv& c, const Window& t, const TileBand& band, const Outputs& out, int j,
                        const float* sums, float* pixels) {
  constexpr int M = Q::M;
  const int width = c.window.out_width;
  transform_output<Q>(sums, pixels, band.tiles);
  const Finish finish{c.bias[out.channel[j]], out.scale[j], bounds_of(c.act)};
  const int last = at_most((band.first + band.rows) * M, c.window.out_height) - 1;
  const float* residual = out.residual[j];
  for (int y = band.first * M; y <= last; y++)
    write_row<M>(finish, pixels + (long)(y % M) * M * band.tiles + (y / M - band.first) * t.out_width, band.tiles,
                 t.out_width, out.plane[j] + y * width, residual ? residual + y * width : nullptr, width,
                 (last - y + 1) * width);
}

template <class Q>
static void winograd(const Conv& c, const Map& in, const Outputs& out, Scratch scratch, Share share) {
  const Window t = tile_window<Q>(c.window);
  // Threads share rows of tiles where each gets a whole vector of them, and output channels elsewhere. A thread that
  // shares rows reads all weights, one that shares channels prepares all frequencies; with stride 2 the latter is
  // cheaper until maps are large.
  constexpr int enough = Q::stride == 1 ? L : 4 * L;
  const bool by_rows = share.size > 1 && t.out_height / share.size * t.out_width >= enough;
  const int rows = tile_band<Q>(t, at_least(in.live, 1), by_rows ? share.size : 1);
  const TileScratch plan = tile_scratch<Q>(t, at_least(in.live, 1), rows);
  float* room = scratch.floats;
  int* at = reinterpret_cast<int*>(room + plan.plane);
  float* spectrum = room + plan.plane + plan.places;
  float* sums = spectrum + plan.input;
  float* pixels = sums + plan.sums;
  const int from = by_rows ? 0 : share.from(out.count), to = by_rows ? out.count : share.to(out.count);
  const int top = by_rows ? share.from(t.out_height) : 0, bottom = by_rows ? share.to(t.out_height) : t.out_height;
  // Every second thread goes backwards, so that neighbours do not write next to each other at the same time: a
  // processor that writes rows in order also fetches some rows after the last.
  const bool backwards = by_rows && share.rank % 2 == 1;
  for (int first = top; first < bottom; first += rows) {
    const int here = at_most(rows, bottom - first), tiles = padded(here * t.out_width);
    const TileBand band{first, here, tiles, odd_lines((long)in.live * tiles)};
    if constexpr (kExpands<Q>)
      expand_band<Q>(t, in, band, room, spectrum);
    else
      prepare_band<Q>(t, in, band, room, at, spectrum, share);
    Band written;
    written.first_pixel = first * Q::M * c.window.out_width;
    written.pixels = (at_most((first + here) * Q::M, c.window.out_height) - first * Q::M) * c.window.out_width;
    const int per_block = choose_vectors(tiles / L, to - from);
    const auto convolve = [&](int j, int T) {
      const Claim claim{out.plane + j, share.size > 1 ? T : 0, written.first_pixel, written.pixels};
      sum_tiles<Q>(c, in, out, band, spectrum, sums, j, T, per_block, claim);
      for (int i = 0; i < T; i++)
        write_tiles<Q>(c, t, band, out, j + i, sums + (long)i * Q::S * Q::S * tiles, pixels);
    };
    each_block(from, to, kMaxChannels[per_block], convolve, backwards);
    activate_written(c.act, out.channel + from, out.plane + from, to - from, written.first_pixel, written.pixels);
  }
}

template <class Q>
static long winograd_scratch(const Conv& c) {
  const Window t = tile_window<Q>(c.window);
  long most = 0;  // over all numbers of rows, for fewer live channels allow more rows at a time
  for (int rows = 1; rows <= t.out_height; rows++) {
    const long tiles = padded(rows * t.out_width);
    long channels = c.in_channels;
    if (halves(t, rows)) channels = at_most(c.in_channels, (kTileFloats<Q> / tiles - kSumFloats<Q>) / (Q::N * Q::N));
    const long need = tile_scratch<Q>(t, at_least(channels, 1), rows).total();
    if (need > most) most = need;
  }
  return most + 2 * L;
}

}  // namespace SANP_NAMESPACE
