// Copies of a plane from which every tap of the window is a plain load. There is one copy for each column of the
// window, with rows sorted by phase under the stride: tap (y, x) of output pixel i is at tap_offset(y, x) + i.
#pragma once
#include "shuffle.hpp"

namespace SANP_NAMESPACE {

static inline int at_most(int a, int b) { return a < b ? a : b; }
static inline int at_least(int a, int b) { return a > b ? a : b; }

// How the copies for output rows [first, first + rows) lie in memory.
struct Copies {
  int first, rows, phases, phase_rows;  // phases of rows under the stride, and rows of each phase
  long copy, channel;  // floats from one copy to the next, and from one channel to the next
};

static inline Copies plan_copies(const Window& w, int first, int rows) {
  const int reach = (w.kernel_y - 1) * w.dilation_y;
  Copies c;
  c.first = first;
  c.rows = rows;
  c.phases = at_most(w.stride_y, reach + 1);
  c.phase_rows = rows + reach / w.stride_y;
  // A vector may be written past the last row. Odd numbers of cache lines spread copies and channels over the sets of
  // the first-level cache.
  c.copy = (((long)c.phases * c.phase_rows * w.out_width + 2 * L + 15) / 16 | 1) * 16;
  c.channel = (c.copy * w.kernel_x / 16 | 1) * 16;
  return c;
}

static inline long tap_offset(const Window& w, const Copies& c, int y, int x) {
  const int down = y * w.dilation_y;
  return x * c.copy + ((long)(down % w.stride_y) * c.phase_rows + down / w.stride_y) * w.out_width;
}

static inline vf every_fourth(const float* p) {
  return even_lanes(even_lanes(load(p), load(p + L)), even_lanes(load(p + 2 * L), load(p + 3 * L)));
}

// out[i] = in[i * step] for i < count. Up to a vector more is written, and up to `step` vectors more are read.
template <int Step>
static inline void copy_strided(const float* in, float* out, int count, int step) {
  if constexpr (Step == 1) {
    for (int i = 0; i < count; i += L) store(out + i, load(in + i));
  } else if constexpr (Step == 2) {
    for (int i = 0; i < count; i += L) store(out + i, even_lanes(load(in + 2 * i), load(in + 2 * i + L)));
  } else if constexpr (Step == 4) {
    for (int i = 0; i < count; i += L) store(out + i, every_fourth(in + 4 * i));
  } else if constexpr (Step == 8) {
    for (int i = 0; i < count; i += L)
      store(out + i, even_lanes(every_fourth(in + 8 * i), every_fourth(in + 8 * i + 4 * L)));
  } else {
    for (int i = 0; i < count; i++) out[i] = in[(long)i * step];
  }
}

// Fills a few elements, mostly one or two: the empty statement keeps the compiler from using vectors.
static inline void fill(float* out, int count, float value) {
  for (int i = 0; i < count; i++) {
    out[i] = value;
    asm volatile("");
  }
}

constexpr int kMostTaps = 1024;

// For one column of the window: output columns [low, high) read inside the map, the first of them column `start`.
struct Column {
  int low, high;
  long start;
};

// Rows are written in rising order of address, so that the next row overwrites what a vector writes past its end. Taps
// outside of the map read `edge`.
template <int Step>
static void expand_rows(const Window& w, const Copies& c, const Column* columns, const float* plane, float* out,
                        float edge) {
  for (int phase = 0; phase < c.phases; phase++)
    for (int j = 0; j < c.phase_rows; j++, out += w.out_width) {
      const int y = (c.first + j) * w.stride_y + phase - w.pad_y;
      const bool inside = y >= 0 && y < w.height;
      const float* from = plane + (long)y * w.width;
      float* to = out;
      for (int x = 0; x < w.kernel_x; x++, to += c.copy) {
        const Column& col = columns[x];
        if (!inside || col.low >= col.high) {
          for (int i = 0; i < w.out_width; i += L) store(to + i, splat(edge));
          continue;
        }
        copy_strided<Step>(from + col.start, to + col.low, col.high - col.low, w.stride_x);
        fill(to, col.low, edge);
        fill(to + col.high, w.out_width - col.high, edge);
      }
    }
}

// The same for common windows, with all numbers known to the compiler: a row is sorted into phases once, and every
// column of the window takes its phase.
template <int Step, int Columns, int Pad>
static void expand_common(const Window& w, const Copies& c, const Column* columns, const float* plane, float* out,
                          float edge) {
  int most = 0;
  for (int x = 0; x < Columns; x++)  // one more where a column takes its phase from the next stride
    most = at_least(most, columns[x].high - columns[x].low + (Step > 1 && columns[x].start >= Step ? 1 : 0));
  for (int phase = 0; phase < c.phases; phase++)
    for (int j = 0; j < c.phase_rows; j++, out += w.out_width) {
      const int y = (c.first + j) * w.stride_y + phase - w.pad_y;
      if (y < 0 || y >= w.height) {
        for (int x = 0; x < Columns; x++)
          for (int i = 0; i < w.out_width; i += L) store(out + x * c.copy + i, splat(edge));
        continue;
      }
      const float* from = plane + (long)y * w.width;
      for (int i = 0; i < most; i += L) {
        vf d[Step];
        split_phases<Step>(from + i * Step, d);
#pragma GCC unroll 8
        for (int x = 0; x < Columns; x++) {
          const int low = x < Pad ? (Pad - x + Step - 1) / Step : 0, start = low * Step + x - Pad;
          float* to = out + x * c.copy + low + i;
          if (start < Step) {
            store(to, d[start]);
          } else if (Step > 1 && start < 2 * Step) {  // one float further; the float before the row is put back
            const float before = to[-1];
            store(to - 1, d[start % Step]);
            if (i == 0) to[-1] = before;
          } else {
            copy_strided<Step>(from + i * Step + start, to, 1, Step);
          }
        }
      }
#pragma GCC unroll 8
      for (int x = 0; x < Columns; x++) {
        float* to = out + x * c.copy;
        if (x < Pad) fill(to, columns[x].low, edge);
        fill(to + columns[x].high, w.out_width - columns[x].high, edge);
      }
    }
}

// No dilation, numbers of one digit, and every column of the window reads inside the map somewhere.
static bool is_common(const Window& w, const Column* columns) {
  if (w.dilation_x != 1 || w.kernel_x > 9 || w.pad_x > 9) return false;
  for (int x = 0; x < w.kernel_x; x++)
    if (columns[x].low >= columns[x].high) return false;
  return true;
}

// Writes the copies of one plane.
static void expand_plane(const Window& w, const Copies& c, const float* plane, float* out, float edge) {
  Column columns[kMostTaps];
  for (int x = 0; x < w.kernel_x; x++) {
    const int shift = x * w.dilation_x - w.pad_x;  // input column of output column 0
    const int past = shift >= w.width ? 0 : (w.width - 1 - shift) / w.stride_x + 1;
    columns[x].low = shift < 0 ? (-shift + w.stride_x - 1) / w.stride_x : 0;
    columns[x].high = at_most(past, w.out_width);
    columns[x].start = (long)columns[x].low * w.stride_x + shift;
  }
  if (is_common(w, columns)) {
    switch (w.stride_x * 100 + w.kernel_x * 10 + w.pad_x) {
      case 131: return expand_common<1, 3, 1>(w, c, columns, plane, out, edge);
      case 152: return expand_common<1, 5, 2>(w, c, columns, plane, out, edge);
      case 231: return expand_common<2, 3, 1>(w, c, columns, plane, out, edge);
      case 240: return expand_common<2, 4, 0>(w, c, columns, plane, out, edge);
      case 241: return expand_common<2, 4, 1>(w, c, columns, plane, out, edge);
      case 273: return expand_common<2, 7, 3>(w, c, columns, plane, out, edge);
    }
  }
  switch (w.stride_x) {
    case 1: return expand_rows<1>(w, c, columns, plane, out, edge);
    case 2: return expand_rows<2>(w, c, columns, plane, out, edge);
    case 4: return expand_rows<4>(w, c, columns, plane, out, edge);
    case 8: return expand_rows<8>(w, c, columns, plane, out, edge);
    default: return expand_rows<0>(w, c, columns, plane, out, edge);
  }
}

// The most floats that copy_strided() reads past the end of a plane.
constexpr int kReadPast = 8 * L + 16;

}  // namespace SANP_NAMESPACE
