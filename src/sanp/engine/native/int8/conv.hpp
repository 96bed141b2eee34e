// Direct convolution of bytes: lanes are pixels, and a broadcast of four weights meets four live channels at a time.
#pragma once
#include "gather.hpp"

namespace SANP_NAMESPACE {

#if SANP_REGISTERS >= 32
constexpr int kByteVectors = 4;
constexpr int kByteChannels[kByteVectors + 1] = {0, 24, 12, 8, 6};  // the most channels of a block, by its vectors
#else
constexpr int kByteVectors = 2;
constexpr int kByteChannels[kByteVectors + 1] = {0, 8, 4};
#endif
constexpr int kMostByteChannels = kByteChannels[1];
constexpr long kByteBand = 64 * 1024;  // floats of the copies of a band: half of a 512 KiB second-level cache
constexpr int kFewBytePixels = 4 * L;   // a band is not cut smaller than this
// Rows of gathered weights are a constant apart, so that one register finds them all, and by an odd number of lines.
constexpr long kGathered = kMostWeightBytes + 2 * kWeightLine + 64;
static_assert(kGathered / 64 % 2 == 1, "rows spread over the sets of the cache");

struct ByteBlock {
  const float* in;
  long in_stride;
  int quads;
  const long* tap;
  int taps;
  const char* weight;  // [channel][tap][quad][4], rows kGathered apart
  long tap_bytes;
  int* sums;  // [channel][vector][lane]
};

template <int T, int P>
static void run_bytes(const ByteBlock& b) {
  vi sum[T][P] = {};
  const char* weights = b.weight;
  for (int k = 0; k < b.taps; k++, weights += b.tap_bytes) {
    const float* pixels = b.in + b.tap[k];
    const char* w = weights;
    for (int q = 0; q < b.quads; q++, pixels += b.in_stride, w += kQuad) {
      Pixels x[P];
#pragma GCC unroll 8
      for (int p = 0; p < P; p++) x[p] = pixels_at(pixels + p * L);
#pragma GCC unroll 32
      for (int t = 0; t < T; t++) {
        const Four four = four_at(w + t * kGathered);
#pragma GCC unroll 8
        for (int p = 0; p < P; p++) sum[t][p] = dot(sum[t][p], x[p], four);
      }
    }
  }
#pragma GCC unroll 32
  for (int t = 0; t < T; t++)
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) *reinterpret_cast<vi_unaligned*>(b.sums + (t * P + p) * L) = sum[t][p];
}

typedef void (*ByteFunction)(const ByteBlock&);

struct ByteTable {
  ByteFunction at[kByteVectors + 1][kMostByteChannels + 1]{};
  template <int P, int T>
  constexpr void put() {
    at[P][T] = run_bytes<T, P>;
    if constexpr (T > 1) put<P, T - 1>();
  }
  template <int P>
  constexpr void put_all() {
    put<P, kByteChannels[P]>();
    if constexpr (P > 1) put_all<P - 1>();
  }
  constexpr ByteTable() { put_all<kByteVectors>(); }
};
static constexpr ByteTable kByteBlocks{};

// How many vectors a block should have: t q products or t + q loads, whichever take longer.
static inline int choose_byte_vectors(int vectors, int channels) {
  int best = 1;
  double best_cost = 1e30;
  for (int p = 1; p <= kByteVectors; p++) {
    const int blocks = (channels + kByteChannels[p] - 1) / kByteChannels[p];
    const double t = (double)channels / blocks;
    double cost = 0;
    for (int v = 0; v < vectors; v += p) {
      const int q = at_most(p, vectors - v);
      cost += t * q > t + q ? t * q : t + q;
    }
    cost *= blocks;
    if (cost < best_cost * .999) best_cost = cost, best = p;
  }
  return best;
}

// What becomes of the sums of one output channel: v = sum * factor + shift, in steps of the result's bytes if it has.
struct ByteFinish {
  float factor, shift;
};

static inline ByteFinish finish_of(const ByteConv& c, int channel, float scale) {
  const float unit = c.to_bytes ? scale * c.per_scale : scale;
  return {c.multiplier[channel] * unit, c.bias[channel] * unit};
}

static inline vf finished(const ByteFinish& f, const int* sums) {
  const vi sum = *reinterpret_cast<const vi_unaligned*>(sums);
  return __builtin_convertvector(sum, vf) * f.factor + f.shift;
}

// Byte `place` % 4 of every pixel, as floats.
static inline vf byte_of(vi quad, int place) { return __builtin_convertvector(quad >> 8 * (place % kQuad) & 255, vf); }

// What a channel of the residual adds at `count` pixels from `first` on, in steps of the result's bytes.
static inline vf residual_steps(const ByteConv& c, const Map& residual, int from, long first, int count) {
  if (c.residual_scale == 0) return as_floats(load_some(residual.data + from * residual.stride + first, count)) * c.per_scale;
  const float* plane = residual.data + from / kQuad * residual.stride + first;
  return byte_of(load_some(plane, count), from) * (c.residual_scale * c.per_scale);
}

// Puts the bytes of one channel at its place in a plane, and leaves the others.
static inline void put_byte(float* to, vi byte, int place, int count) {
  const int shift = 8 * (place % kQuad);
  store_bytes(to, (load_some(to, count) & (int)~(255u << shift)) | byte << shift, count);
}

static void pass(const ByteConv& c, const Map& residual, int from, const Map& out, int to) {
  float* plane = out.data + to / kQuad * out.stride;
  for (int i = 0; i < out.pixels(); i += L) {
    const int count = at_most(L, out.pixels() - i);
    put_byte(plane + i, to_byte(residual_steps(c, residual, from, i, count), c.highest), to, count);
  }
}

// A block's sums, and the pixels [first, first + pixels) of the map that they are for.
struct ByteSums {
  const int* sums;
  int vectors, first, pixels;
};

// Writes output channels [j, j + T) as bytes. Planes whose four channels are not all written keep the others.
static void finish_bytes(const ByteConv& c, const ByteOutputs& out, int j, int T, const ByteSums& s) {
  for (int t = 0, end; t < T; t = end) {
    const int quad = out.place[j + t] / kQuad;
    for (end = t; end < T && out.place[j + end] / kQuad == quad;) end++;
    ByteFinish finish[kQuad];
    unsigned written = 0;
    for (int i = t; i < end; i++) {
      finish[i - t] = finish_of(c, out.channel[j + i], out.scale[j + i]);
      written |= 255u << 8 * (out.place[j + i] % kQuad);
    }
    float* to = out.out->data + quad * out.out->stride + s.first;
    for (int p = 0; p * L < s.pixels; p++) {
      const int count = at_most(L, s.pixels - p * L);
      vi bytes = written == ~0u ? vi{} : load_some(to + p * L, count) & (int)~written;
      for (int i = t; i < end; i++) {
        vf v = finished(finish[i - t], s.sums + (i * s.vectors + p) * L);
        const int from = out.residual_place[j + i];
        if (from >= 0) {
          v += residual_steps(c, *out.residual, from, s.first + p * L, count);
        }
        bytes |= to_byte(v, c.highest) << 8 * (out.place[j + i] % kQuad);
      }
      store_bytes(to + p * L, bytes, count);
    }
  }
}

// Writes output channels [j, j + T) as floats.
static void finish_floats(const ByteConv& c, const ByteOutputs& out, int j, int T, const ByteSums& s) {
  for (int t = 0; t < T; t++) {
    const ByteFinish finish = finish_of(c, out.channel[j + t], out.scale[j + t]);
    const int from = out.residual_place[j + t];
    const float* more = from < 0 ? nullptr : out.residual->data + from * out.residual->stride + s.first;
    float* to = out.out->data + out.place[j + t] * out.out->stride + s.first;
    for (int p = 0; p * L < s.pixels; p++) {
      const int count = at_most(L, s.pixels - p * L);
      vf v = finished(finish, s.sums + (t * s.vectors + p) * L);
      if (more) v += count == L ? load(more + p * L) : load_first(more + p * L, count);
      v = apply(c.act, out.channel[j + t], v);
      if (count == L)
        store(to + p * L, v);
      else
        store_first(to + p * L, v, count);
    }
  }
}

// A 1x1 convolution needs no copies of its input.
static inline bool bytes_in_place(const Window& w) {
  return w.taps() == 1 && w.stride_y == 1 && w.stride_x == 1 && w.pad_y == 0 && w.pad_x == 0;
}

// How many output rows are computed together; where possible, as many as fill whole vectors.
static inline int byte_rows(const Window& w, int planes, int share) {
  int rows = (w.out_height + share - 1) / share;
  if (!bytes_in_place(w))
    while (rows > 1 && rows * w.out_width > kFewBytePixels && plan_copies(w, 0, rows).channel * planes > kByteBand)
      rows = (rows + 1) / 2;
  if (rows >= w.out_height) return w.out_height;
  int whole = 1;
  while (whole * w.out_width % L != 0) whole *= 2;
  return rows > whole ? rows / whole * whole : rows;
}

// A thread's scratch: marks of live channels, sums, gathered weights, copies of a band.
struct ByteRoom {
  long words;  // 64-bit
  long floats_before_copies() const {
    return (2 * words + 15) / 16 * 16 + kMostByteChannels * kByteVectors * L + kMostByteChannels * kGathered / 4;
  }
  explicit ByteRoom(const ByteConv& c) : words(c.step / 64) {}
};

static long byte_conv_scratch(const ByteConv& c) {
  const long before = ByteRoom(c).floats_before_copies() + 2 * L;
  if (bytes_in_place(c.window)) return before;
  const int fewest = at_least(1, at_most(c.window.out_height, kFewBytePixels / c.window.out_width));
  const long smallest = plan_copies(c.window, 0, fewest).channel * quads(c.in_channels);
  return before + (smallest > kByteBand ? smallest : kByteBand);
}

// The part of a convolution that one thread does on one sample.
struct ByteWork {
  const ByteConv& c;
  const Map& in;
  const ByteOutputs& out;
  uint64_t* live;
  long words;
  int* sums;
  char* gathered;
  float* copies;

  // Computes output channels [from, to) over rows [y, y + rows).
  void band(int y, int rows, int from, int to) const {
    const Window& w = c.window;
    ByteBlock b{};
    b.quads = quads(in.live);
    b.taps = w.taps();
    b.tap_bytes = (long)b.quads * kQuad;
    b.weight = gathered;
    b.sums = sums;
    long tap[kMostTaps];
    tap[0] = 0;
    const float* first;
    if (bytes_in_place(w)) {
      first = in.data + y * w.out_width;
      b.in_stride = in.stride;
    } else {
      const Copies copied = plan_copies(w, y, rows);
      for (int q = 0; q < b.quads; q++)
        expand_plane(w, copied, in.data + q * in.stride, copies + q * copied.channel, 0.f);
      for (int ky = 0; ky < w.kernel_y; ky++)
        for (int kx = 0; kx < w.kernel_x; kx++) tap[ky * w.kernel_x + kx] = tap_offset(w, copied, ky, kx);
      first = copies;
      b.in_stride = copied.channel;
    }
    b.tap = tap;
    const int pixels = rows * w.out_width, vectors = (pixels + L - 1) / L;
    const int per_block = choose_byte_vectors(vectors, to - from), most = kByteChannels[per_block];
    const int blocks = (to - from + most - 1) / most;
    for (int n = 0; n < blocks; n++) {
      const int j = from + (int)((long)(to - from) * n / blocks);
      const int T = from + (int)((long)(to - from) * (n + 1) / blocks) - j;
      gather(j, T, b.tap_bytes);
      for (int v = 0; v < vectors; v += per_block) {
        const int P = at_most(per_block, vectors - v);
        b.in = first + v * L;
        kByteBlocks.at[P][T](b);
        const ByteSums made{sums, P, y * w.out_width + v * L, at_most(P * L, pixels - v * L)};
        if (c.to_bytes)
          finish_bytes(c, out, j, T, made);
        else
          finish_floats(c, out, j, T, made);
      }
    }
  }

  // Gathers the weights of a block, and asks for those of the next one.
  void gather(int j, int T, long tap_bytes) const {
    for (int t = 0; t < T; t++) {
      const int8_t* from = c.weight + out.channel[j + t] * c.row();
      const int8_t* next = c.weight + out.channel[at_most(j + T + t, out.count - 1)] * c.row();
      char* to = gathered + t * kGathered;
      for (long i = 0; i < c.row(); i += kWeightLine) __builtin_prefetch(next + i, 0, 2);
      for (int k = 0; k < c.window.taps(); k++)
        gather_tap(from + k * c.step, live, words, in.index, in.live, to + k * tap_bytes);
    }
  }
};

// Threads share the rows if there are enough of them; else the channels, cut where a plane of four begins.
static void byte_conv(const ByteConv& c, const Map* const* in, const ByteOutputs* out, int samples, Scratch scratch,
                      Share share) {
  const ByteRoom room(c);
  float* at = scratch.floats;
  uint64_t* live = reinterpret_cast<uint64_t*>(at);
  int* sums = reinterpret_cast<int*>(at + (2 * room.words + 15) / 16 * 16);
  char* gathered = reinterpret_cast<char*>(sums + kMostByteChannels * kByteVectors * L);
  float* copies = at + room.floats_before_copies();
  const int height = c.window.out_height;
  const bool by_rows = share.size > 1 && height >= 4 * share.size;
  for (int s = 0; s < samples; s++) {
    const ByteOutputs& o = out[s];
    int from = 0, to = o.count;
    if (!by_rows && share.size > 1) {
      const int planes = quads(o.places), low = share.from(planes) * kQuad, high = share.to(planes) * kQuad;
      while (from < o.count && o.place[from] < low) from++;
      to = from;
      while (to < o.count && o.place[to] < high) to++;
    }
    if (from == to) continue;
    mark_live(*in[s], live, room.words);
    const ByteWork work{c, *in[s], o, live, room.words, sums, gathered, copies};
    const int top = by_rows ? share.from(height) : 0, bottom = by_rows ? share.to(height) : height;
    const int rows = byte_rows(c.window, at_least(quads(in[s]->live), 1), by_rows ? share.size : 1);
    for (int y = top; y < bottom; y += rows) work.band(y, at_most(rows, bottom - y), from, to);
  }
}

}  // namespace SANP_NAMESPACE
