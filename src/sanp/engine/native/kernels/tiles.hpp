// Tiles of Winograd's schemes: where they lie, from pixels to frequencies, and from sums to pixels. Lanes are tiles.
#pragma once
#include "../../../training/winograd/native/transforms.hpp"
#include "columns.hpp"
#include "direct.hpp"
#include "schemes.hpp"

namespace SANP_NAMESPACE {

// For each scheme, in one dimension: transform() makes frequencies of pixels, gather() makes pixels of sums.
static inline void transform(Winograd2, const vf (&d)[4], vf (&o)[4]) {
  o[0] = d[0] - d[2];
  o[1] = d[1] + d[2];
  o[2] = d[2] - d[1];
  o[3] = d[1] - d[3];
}
static inline void gather(Winograd2, const vf (&m)[4], vf (&o)[2]) {
  o[0] = m[0] + m[1] + m[2];
  o[1] = m[1] - m[2] - m[3];
}

static inline void transform(Winograd4, const vf (&d)[6], vf (&o)[6]) { sanp_f4::transform_input(d, o); }
static inline void gather(Winograd4, const vf (&m)[6], vf (&o)[4]) { sanp_f4::transform_output(m, o); }

static inline void transform(Strided2, const vf (&d)[5], vf (&o)[5]) {
  o[0] = d[0] - d[2];
  o[1] = d[2];
  o[2] = d[4] - d[2];
  o[3] = d[1];
  o[4] = d[3];
}
static inline void gather(Strided2, const vf (&m)[3], vf (&o)[2]) {
  o[0] = m[0] + m[1];
  o[1] = m[1] + m[2];
}

// F(4, 4) of seven inputs; the last frequency, that of infinity, only if there are seven.
template <int Inputs>
static inline void transform_f44(const vf* d, int step, vf* o) {
  const auto e = [&](int i) { return d[i * step]; };
  o[0] = 4.f * e(1) - 2.f * e(0) + 2.5f * e(2) - 5.f * e(3) - .5f * e(4) + e(5);
  o[1] = 2.f * e(1) - 2.f * e(2) - 4.5f * e(3) + .5f * e(4) + e(5);
  o[2] = 6.f * e(2) - 2.f * e(1) - 3.5f * e(3) - 1.5f * e(4) + e(5);
  o[3] = e(1) - 1.5f * e(2) - 2.f * e(3) + 1.5f * e(4) + e(5);
  o[4] = 2.5f * e(2) - e(1) - 2.5f * e(4) + e(5);
  o[5] = 4.f * e(1) - 5.f * e(3) + e(5);
  if constexpr (Inputs == 7) o[6] = 4.f * e(2) - 2.f * e(1) + 2.5f * e(3) - 5.f * e(4) - .5f * e(5) + e(6);
}
static inline void transform(Strided7, const vf (&d)[13], vf (&o)[13]) {
  transform_f44<7>(d, 2, o);
  transform_f44<6>(d + 1, 2, o + 7);
}
static inline void gather(Strided7, const vf (&m)[7], vf (&o)[4]) {
  const vf a = m[1] + m[2], b = m[1] - m[2], c = m[3] + m[4], d = m[3] - m[4];
  o[0] = m[0] + a + c + m[5];
  o[1] = b + 2.f * d + .5f * m[5];
  o[2] = a + 4.f * c + .25f * m[5];
  o[3] = b + 8.f * d + .125f * m[5] + m[6];
}

// The window whose outputs are the tiles of a convolution.
template <class Q>
static Window tile_window(const Window& w) {
  Window t = w;
  t.kernel_y = t.kernel_x = Q::N;
  t.stride_y = t.stride_x = Q::M * Q::stride;
  t.out_height = (w.out_height + Q::M - 1) / Q::M;
  t.out_width = (w.out_width + Q::M - 1) / Q::M;
  return t;
}

// Tiles in whole vectors.
static inline int padded(int tiles) { return (tiles + L - 1) / L * L; }

// Whether half of so many rows of tiles are fewer vectors.
static inline bool halves(const Window& t, int rows) {
  return padded((rows + 1) / 2 * t.out_width) < padded(rows * t.out_width);
}

// Floats that the frequencies of a band may take; those of a few input channels are mostly sums.
template <class Q>
constexpr long kTileFloats = (Q::K == 3 ? 2 : 3) * kBandFloats;
// Floats of the sums of one tile, where they are not fewer than its frequencies.
template <class Q>
constexpr long kSumFloats = Q::K == 3 ? 0 : (long)kMostChannels * Q::S * Q::S;

// How many rows of tiles are transformed together. `share` threads share the rows. A band is cut until its frequencies
// stay in the second-level cache, but never to less than a vector: lanes would be empty.
template <class Q>
static int tile_band(const Window& t, int channels, int share) {
  int rows = (t.out_height + share - 1) / share;
  if (kSumFloats<Q> == 0) channels = at_least(channels, kMostChannels);  // the sums need memory too
  const long each = (long)Q::N * Q::N * channels + kSumFloats<Q>;
  while (halves(t, rows) && each * padded(rows * t.out_width) > kTileFloats<Q>) rows = (rows + 1) / 2;
  if (rows == t.out_height) return rows;
  int whole = 1;
  while (whole * t.out_width % L != 0) whole *= 2;
  return rows > whole ? rows / whole * whole : rows;
}

// The size of the part of a plane that a band of tiles reads, with zeros around the plane.
struct TileInput {
  int row, rows;  // floats of a row, and rows
  long floats() const { return ((long)row * rows + 31) / 16 * 16; }  // whole cache lines, and one to read past the end
};

template <class Q>
static TileInput tile_input(const Window& t, int rows) {
  constexpr int step = Q::M * Q::stride;
  return {t.out_width * step + 8, (rows - 1) * step + Q::N};
}

// Schemes whose planes are copied once for each column of a tile, so that tiles are read by plain loads.
template <class Q>
constexpr bool kExpands = Q::N > 8;

constexpr int kRooms = 2;  // planes are copied to two places in turn, for what was just written is slow to read

// Floats of each part of the scratch.
struct TileScratch {
  long plane, places, input, sums, pixels;
  long total() const { return plane + places + input + sums + pixels; }
};

template <class Q>
static TileScratch tile_scratch(const Window& t, int channels, int rows) {
  const long tiles = padded(rows * t.out_width);
  const long plane = kExpands<Q> ? plan_copies(t, 0, rows).channel : kRooms * tile_input<Q>(t, rows).floats();
  return {plane, tiles, Q::N * Q::N * odd_lines(channels * tiles),
          (long)kMostChannels * Q::S * Q::S * tiles, Q::M * Q::M * tiles + 2 * L};
}

// Fills the places that planes will be copied to with zeros, once for each band, and notes where each tile begins in
// one. Every plane is copied to the same part of them, so that the zeros around it stay.
template <class Q>
static void place_tiles(const Window& t, const TileInput& input, int tiles, int rooms, float* room, int* at) {
  constexpr int step = Q::M * Q::stride;
  for (long i = 0; i < rooms * input.floats(); i++) room[i] = 0;
  for (int i = 0; i < tiles; i++) {
    const int y = i / t.out_width, x = i % t.out_width;
    at[i] = y * step + Q::N > input.rows ? 0 : y * step * input.row + x * step;  // past the last tile: any
  }
}

// Copies a row in whole vectors; the last store overlaps the previous one. A row shorter than a vector is followed by
// zeros, which is what lies there.
static inline void copy_row(const float* from, float* to, int count) {
  if (count < L) return store(to, first_lanes(load(from), count));
  int i = 0;
  for (; i + L <= count; i += L) store(to + i, load(from + i));
  if (i < count) store(to + count - L, load(from + count - L));
}

// Copies the rows of a plane from the top down, for the zeros after a row may reach into the next.
static inline void copy_inside(const Window& t, const TileInput& input, int first_row, const float* plane,
                               float* room) {
  const int count = at_most(t.width, input.row - t.pad_x);
  for (int j = 0; j < input.rows; j++) {
    const int y = first_row + j;
    if (y < 0 || y >= t.height) continue;
    copy_row(plane + (long)y * t.width, room + (long)j * input.row + t.pad_x, count);
  }
}

// Writes the frequencies of one vector of tiles, `frequency` floats apart; columns(y, d) gives the columns of their row
// y.
template <class Q, class Columns>
static inline void transform_vector(const Columns& columns, float* out, long frequency) {
  constexpr int N = Q::N;
  vf half[N][N];  // [row][column frequency]
#pragma GCC unroll 6
  for (int y = 0; y < N; y++) {
    vf d[N];
    columns(y, d);
    transform(Q{}, d, half[y]);
  }
#pragma GCC unroll 6
  for (int x = 0; x < N; x++) {
    vf d[N], o[N];
#pragma GCC unroll 6
    for (int y = 0; y < N; y++) d[y] = half[y][x];
    transform(Q{}, d, o);
    float* to = out + x * frequency;
#pragma GCC unroll 6
    for (int y = 0; y < N; y++, to += N * frequency) {
      store(to, o[y]);
      asm("" : "+r"(to));  // keeps one address that moves on, for all of them would not fit into the registers
    }
  }
}

// Writes the frequencies of one copied plane. `by_fours` says that a row of tiles is a multiple of four.
template <class Q>
static void transform_input(const float* room, int row, const int* at, bool by_fours, float* out, long frequency,
                            int tiles) {
  for (int v = 0; v < tiles; v += L) {
    const auto columns = [&](int y, vf(&d)[Q::N]) {
      if (by_fours)
        load_columns_by_fours<Q::N, Q::M * Q::stride>(room + y * row, at + v, d);
      else
        load_columns<Q::N>(room + y * row, at + v, d);
    };
    transform_vector<Q>(columns, out + v, frequency);
  }
}

// One row of pixels of four neighbouring tiles, where it lies in a plane: sixteen pixels, and sixteen that begin four
// further on. The masks leave out what is outside of the plane.
struct Piece {
  int offset;
  unsigned short here, further;
};

// Schemes whose tiles are read from the planes themselves if rows of tiles are a multiple of four: with AVX-512 a
// masked load costs no more than a plain one.
template <class Q>
constexpr bool kReadsPlanes = L == 16 && Q::M * Q::stride == 4;

// Finds the pieces of a band, [row in tile][four tiles].
template <class Q>
static void find_pieces(const Window& t, int first, int rows, int tiles, Piece* pieces) {
  const auto inside = [&](int left) {
    unsigned mask = 0;
    for (int i = 0; i < 16; i++)
      if (left + i >= 0 && left + i < t.width) mask |= 1u << i;
    return (unsigned short)mask;
  };
  for (int y = 0; y < Q::N; y++)
    for (int i = 0; i < tiles; i += 4) {
      const int line = (first + i / t.out_width) * 4 + y - t.pad_y, left = i % t.out_width * 4 - t.pad_x;
      const bool there = line >= 0 && line < t.height && i / t.out_width < rows;
      *pieces++ = there ? Piece{line * t.width + left, inside(left), inside(left + 4)} : Piece{};
    }
}

// Writes the frequencies of one plane from its pieces.
template <class Q>
static void transform_plane(const float* plane, const Piece* pieces, float* out, long frequency, int tiles) {
  for (int v = 0; v < tiles; v += L) {
    const auto columns = [&](int y, vf(&d)[Q::N]) {
      const Piece* p = pieces + (y * tiles + v) / 4;
      const auto here = [&](int m) { return load_lanes(plane + p[m].offset, p[m].here); };
      const auto further = [&](int m) { return load_lanes(plane + p[m].offset + 4, p[m].further); };
      sort_columns(here, further, d);
    };
    transform_vector<Q>(columns, out + v, frequency);
  }
}

// Makes pixels, [row in tile][column in tile][tile], of the sums of one output channel.
template <class Q>
static void transform_output(const float* sums, float* pixels, int tiles) {
  constexpr int M = Q::M, S = Q::S;
  for (int v = 0; v < tiles; v += L) {
    vf half[S][M];  // [column sum][row in tile]
#pragma GCC unroll 7
    for (int x = 0; x < S; x++) {
      vf m[S];
#pragma GCC unroll 7
      for (int y = 0; y < S; y++) m[y] = load(sums + (long)(y * S + x) * tiles + v);
      gather(Q{}, m, half[x]);
    }
#pragma GCC unroll 4
    for (int y = 0; y < M; y++) {
      vf m[S], o[M];
#pragma GCC unroll 7
      for (int x = 0; x < S; x++) m[x] = half[x][y];
      gather(Q{}, m, o);
#pragma GCC unroll 4
      for (int x = 0; x < M; x++) store(pixels + (long)(y * M + x) * tiles + v, o[x]);
    }
  }
}

}  // namespace SANP_NAMESPACE
