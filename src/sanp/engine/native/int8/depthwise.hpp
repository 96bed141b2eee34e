// Depthwise convolution of bytes, four channels at a time. Four vectors of pixels, as four neighbouring columns of the
// window read them, are turned so that each 32-bit lane holds the four bytes of one channel, and meet four weights there.
// Lane 4 n + c of vector r then is channel c of pixel 4 n + r, and packing the sums of the four vectors to bytes puts
// them where the result wants them.
#pragma once
#include "finish.hpp"

namespace SANP_NAMESPACE {

constexpr long kDepthBand = 6 * 1024;  // floats of the padded rows that are read together: most of a first-level cache
constexpr int kDepthRows = SANP_REGISTERS >= 32 ? 4 : 2;  // output rows that are computed together

// Turns four vectors of four bytes in each lane, and back four vectors of numbers.
#if SANP_LANES == 16 && defined(__AVX512BW__)
#define SANP_UNPACK(half, bits, a, b) (vi)_mm512_unpack##half##_epi##bits((__m512i)(a), (__m512i)(b))
#elif SANP_LANES == 8 && defined(__AVX2__)
#define SANP_UNPACK(half, bits, a, b) (vi)_mm256_unpack##half##_epi##bits((__m256i)(a), (__m256i)(b))
#endif
#ifdef SANP_UNPACK
static inline void turn_bytes(const vi (&x)[kQuad], vi (&turned)[kQuad]) {
  const vi low = SANP_UNPACK(lo, 8, x[0], x[1]), more_low = SANP_UNPACK(lo, 8, x[2], x[3]);
  const vi high = SANP_UNPACK(hi, 8, x[0], x[1]), more_high = SANP_UNPACK(hi, 8, x[2], x[3]);
  turned[0] = SANP_UNPACK(lo, 16, low, more_low);
  turned[1] = SANP_UNPACK(hi, 16, low, more_low);
  turned[2] = SANP_UNPACK(lo, 16, high, more_high);
  turned[3] = SANP_UNPACK(hi, 16, high, more_high);
}
static inline void turn_lanes(const vi (&x)[kQuad], vi (&turned)[kQuad]) {
  const vi low = SANP_UNPACK(lo, 32, x[0], x[1]), more_low = SANP_UNPACK(lo, 32, x[2], x[3]);
  const vi high = SANP_UNPACK(hi, 32, x[0], x[1]), more_high = SANP_UNPACK(hi, 32, x[2], x[3]);
  turned[0] = SANP_UNPACK(lo, 64, low, more_low);
  turned[1] = SANP_UNPACK(hi, 64, low, more_low);
  turned[2] = SANP_UNPACK(lo, 64, high, more_high);
  turned[3] = SANP_UNPACK(hi, 64, high, more_high);
}
#undef SANP_UNPACK
#else
static inline void turn_bytes(const vi (&x)[kQuad], vi (&turned)[kQuad]) {
  for (int r = 0; r < kQuad; r++)
    for (int lane = 0; lane < L; lane++) {
      unsigned bytes = 0;
      const int pixel = lane / kQuad * kQuad + r, shift = 8 * (lane % kQuad);
      for (int k = 0; k < kQuad; k++) bytes |= ((unsigned)x[k][pixel] >> shift & 255u) << 8 * k;
      turned[r][lane] = (int)bytes;
    }
}
static inline void turn_lanes(const vi (&x)[kQuad], vi (&turned)[kQuad]) {
  for (int c = 0; c < kQuad; c++)
    for (int lane = 0; lane < L; lane++) turned[c][lane] = x[lane % kQuad][lane / kQuad * kQuad + c];
}
#endif

// Four numbers that repeat from lane to lane.
static inline vi in_fours(const int (&number)[kQuad]) {
#if SANP_LANES == 16 && defined(__AVX512BW__)
  return (vi)_mm512_maskz_broadcast_i32x4((__mmask16)0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(number)));
#elif SANP_LANES == 8 && defined(__AVX2__)
  return (vi)_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(number)));
#else
  vi v;
  for (int i = 0; i < L; i++) v[i] = number[i % kQuad];
  return v;
#endif
}
static inline vf in_fours(const float (&number)[kQuad]) {
  int bits[kQuad];
  __builtin_memcpy(bits, number, sizeof bits);
  return as_floats(in_fours(bits));
}

// Four channels: rows of the input with what lies around the map, gathered weights, and what their sums begin with.
struct DepthQuad {
  const float* rows;
  long pitch;    // floats from row to row
  const char* weight;  // [row][column / 4][channel][4]
  vi start;
};

// The sums of R output rows, L pixels of each; `at` is the first float under the window of the first of them.
template <int K, int S, int R>
static inline void depth_sums(const DepthQuad& d, const float* at, vi (&sum)[R][kQuad]) {
  constexpr int fours = (K + kDepthColumns - 1) / kDepthColumns;
#pragma GCC unroll 4
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int n = 0; n < kQuad; n++) sum[r][n] = d.start;
#pragma GCC unroll 16
  for (int i = 0; i < (R - 1) * S + K; i++, at += d.pitch) {
#pragma GCC unroll 2
    for (int f = 0; f < fours; f++) {
      vi x[kQuad], turned[kQuad];
      const int columns = K - f * kDepthColumns < kDepthColumns ? K - f * kDepthColumns : kDepthColumns;
      if constexpr (S == 1) {
#pragma GCC unroll 4
        for (int k = 0; k < kQuad; k++) x[k] = k < columns ? load_bytes(at + f * kDepthColumns + k) : x[k - 1];
      } else {
        vf even_odd[2];
#pragma GCC unroll 2
        for (int k = 0; k < kQuad; k += 2) {
          if (k < columns) split_phases<2>(at + f * kDepthColumns + k, even_odd);
          x[k] = as_bits(even_odd[0]);
          x[k + 1] = as_bits(even_odd[1]);
        }
      }
      turn_bytes(x, turned);
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) {
        const int row = i - r * S;
        if (row < 0 || row >= K) continue;
        const Fours w = fours_at(d.weight + (row * fours + f) * kQuad * kDepthColumns);
#pragma GCC unroll 4
        for (int n = 0; n < kQuad; n++) sum[r][n] = dot(sum[r][n], pixels_of(turned[n]), w);
      }
    }
  }
}

// What four channels become: numbers in steps of bytes, where every one of the plane is computed and nothing is added.
struct DepthFinish {
  vf factor, shift, after;
};

// The result of one plane of four channels.
struct DepthResult {
  const ByteConv& c;
  const ByteOutputs& out;
  int from, to;  // outputs
  const BytePlanes& planes;
  DepthFinish finish;
  bool direct;  // bytes are made of sums as they are
  int* sums;    // [channel][lane]
  float* plane;

  void write(const vi (&sum)[kQuad], long first, int count) {
    if (direct) {
      vf v[kQuad];
#pragma GCC unroll 4
      for (int n = 0; n < kQuad; n++) {
        v[n] = __builtin_convertvector(sum[n], vf) * finish.factor + finish.shift;
        if (!c.steps) v[n] = apply(c.act, 0, v[n]) * finish.after + c.out_zero;
      }
      return store_bytes(plane + first, bytes_of_pixels(v, c.lowest, c.highest), count);
    }
    vi turned[kQuad];
    turn_lanes(sum, turned);
    for (int j = from; j < to; j++)
      *reinterpret_cast<vi_unaligned*>(sums + (j - from) * L) = turned[out.place[j] % kQuad];
    SANP_NAMESPACE::finish(c, out, planes, {sums, 1, first, count});
  }
};

// Output rows [y, bottom) from rows of the input whose first is under the window of output row `top`.
template <int K, int S, int R>
static int depth_band(const Window& w, const DepthQuad& d, DepthResult& result, int top, int y, int bottom) {
  for (; y + R <= bottom; y += R)
    for (int x = 0; x < w.out_width; x += L) {
      vi sum[R][kQuad];
      depth_sums<K, S, R>(d, d.rows + (long)(y - top) * S * d.pitch + x * S, sum);
      const int count = at_most(L, w.out_width - x);
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) result.write(sum[r], (long)(y + r) * w.out_width + x, count);
    }
  return y;
}

template <int K, int S>
static void depth_rows(const Window& w, const DepthQuad& d, DepthResult& result, int top, int bottom) {
  int y = depth_band<K, S, kDepthRows>(w, d, result, top, top, bottom);
  if constexpr (kDepthRows > 2) y = depth_band<K, S, 2>(w, d, result, top, y, bottom);
  depth_band<K, S, 1>(w, d, result, top, y, bottom);
}

typedef void (*DepthFunction)(const Window&, const DepthQuad&, DepthResult&, int, int);
static DepthFunction depth_function(const Window& w) {
  switch (w.kernel_x * 10 + w.stride_x) {
    case 31: return depth_rows<3, 1>;
    case 32: return depth_rows<3, 2>;
    case 51: return depth_rows<5, 1>;
    case 52: return depth_rows<5, 2>;
    case 71: return depth_rows<7, 1>;
    default: return depth_rows<7, 2>;
  }
}

// A thread's scratch: gathered weights and sums, the plane of four channels that lie apart, padded rows.
struct DepthRoom {
  long pitch, plane, rows;  // floats of a padded row, of a plane, of all padded rows
  int together;             // output rows whose padded rows fit
  static constexpr long kWeights = 7 * 2 * kQuad * kDepthColumns / 4;
  static constexpr long kBefore = (kWeights + kQuad * L + 15) / 16 * 16;
  explicit DepthRoom(const Window& w) {
    pitch = (long)(w.out_width - 1) * w.stride_x + w.kernel_x;
    plane = ((long)w.height * w.width + L + 15) / 16 * 16;
    const long fit = (kDepthBand / pitch - w.kernel_y) / w.stride_y + 1;
    together = fit < kDepthRows ? kDepthRows : (int)(fit > w.out_height ? w.out_height : fit);
    rows = ((long)(together - 1) * w.stride_y + w.kernel_y) * pitch;
  }
  long floats() const { return kBefore + plane + rows + 4 * L + 16; }
};

static long depth_scratch(const ByteConv& c) { return DepthRoom(c.window).floats(); }

// Copies the rows under the windows of output rows [top, bottom), and writes `edge` around the map. A vector may be
// written past the end of a row, which the next row overwrites.
static void pad_rows(const Window& w, const float* plane, int top, int bottom, long pitch, float edge, float* to) {
  const int left = at_most(w.pad_x, (int)pitch), inside = at_most(w.width, (int)pitch - left);
  const int last = (bottom - 1) * w.stride_y + w.kernel_y - w.pad_y;
  for (int y = top * w.stride_y - w.pad_y; y < last; y++, to += pitch) {
    if (y < 0 || y >= w.height) {
      for (int x = 0; x < pitch; x += L) store(to + x, splat(edge));
      continue;
    }
    const float* from = plane + (long)y * w.width;
    for (int x = 0; x < inside; x += L) store(to + left + x, load(from + x));
    fill(to, left, edge);
    fill(to + left + inside, (int)pitch - left - inside, edge);
  }
}

// The place of the input of every channel of a plane, -1 where it is not live or not computed.
struct DepthSources {
  int place[kQuad];
  // Whether they are one plane of the input as it is.
  bool in_order() const {
    int plane = -1;
    for (int b = 0; b < kQuad; b++) {
      if (place[b] < 0) continue;
      if (place[b] % kQuad != b || (plane >= 0 && plane != place[b] / kQuad)) return false;
      plane = place[b] / kQuad;
    }
    return plane >= 0;
  }
  const float* gathered(const Map& in, float* room) const {
    for (int i = 0; i < in.pixels(); i += L) {
      vi bytes{};
      for (int b = 0; b < kQuad; b++)
        if (place[b] >= 0) bytes |= byte_of(load_bytes(in.data + place[b] / kQuad * in.stride + i), place[b]) << 8 * b;
      store(room + i, as_floats(bytes));
    }
    return room;
  }
};

// Output channels [from, to) of one sample at output rows [top, bottom).
static void depth_sample(const ByteConv& c, const Map& in, const ByteOutputs& out, int from, int to, int top, int bottom,
                         float* scratch) {
  const Window& w = c.window;
  const DepthRoom room(w);
  int* weight = reinterpret_cast<int*>(scratch);
  int* sums = reinterpret_cast<int*>(scratch + DepthRoom::kWeights);
  float *apart = scratch + DepthRoom::kBefore, *rows = apart + room.plane;
  const DepthFunction function = depth_function(w);
  const int words = (int)depth_row(w) / kDepthColumns;
  const float edge = zero_word(c.zero);
  for (int j = from, next, a = 0; j < to; j = next) {
    for (next = j; next < to && out.place[next] / kQuad == out.place[j] / kQuad;) next++;
    const BytePlanes planes(c, out, j, next - j);
    const ByteQuad& quad = planes.quad[0];
    DepthResult result{c, out, j, next, planes, {}, false, sums, nullptr};
    DepthSources source;
    int start[kQuad] = {};
    float factor[kQuad], shift[kQuad], after[kQuad];
    for (int b = 0; b < kQuad; b++) {
      const int slot = quad.slot[b], channel = slot < 0 ? 0 : out.channel[slot];
      while (slot >= 0 && a < in.live && in.index[a] < channel) a++;
      source.place[b] = slot >= 0 && a < in.live && in.index[a] == channel ? a : -1;
      const char* own = reinterpret_cast<const char*>(c.depth) + channel * depth_row(w);
      for (int k = 0; k < words; k++) weight[k * kQuad + b] = source.place[b] < 0 ? 0 : weights_at(own + k * kDepthColumns);
      if (c.zero != 0 && source.place[b] >= 0) start[b] = -c.zero * sum_bytes(own, depth_row(w));
      const ByteFinish f = quad.finish[b];
      factor[b] = f.factor, shift[b] = f.shift, after[b] = f.after;
    }
    result.finish = {in_fours(factor), in_fours(shift), in_fours(after)};
    result.direct = c.to_bytes && !out.residual && quad.written == ~0u && c.act.kind != Act::prelu;
    result.plane = c.to_bytes ? out.out->data + out.place[j] / kQuad * out.out->stride : nullptr;
    int first = 0;
    for (int b = 0; b < kQuad; b++)
      if (source.place[b] >= 0) first = source.place[b] / kQuad;
    const float* plane = source.in_order() ? in.data + first * in.stride : source.gathered(in, apart);
    const DepthQuad d{rows, room.pitch, reinterpret_cast<const char*>(weight), in_fours(start)};
    for (int y = top; y < bottom; y += room.together) {
      const int end = at_most(bottom, y + room.together);
      pad_rows(w, plane, y, end, room.pitch, edge, rows);
      function(w, d, result, y, end);
    }
  }
}

}  // namespace SANP_NAMESPACE
