// Products of four bytes by four weights, added up in each 32-bit lane without any loss, and rounding to bytes.
#pragma once
#include "../kernels/expand.hpp"
#include "bytes.hpp"

#if defined(__AVX2__) && !defined(__AVX512VNNI__)
#include <immintrin.h>
#endif

namespace SANP_NAMESPACE {

typedef int vi_unaligned __attribute__((vector_size(L * 4), aligned(4), may_alias));
typedef int int_unaligned __attribute__((aligned(1), may_alias));

static inline vi load_bytes(const float* p) { return *reinterpret_cast<const vi_unaligned*>(p); }
static inline vi as_bits(vf v) {
  vi bits;
  __builtin_memcpy(&bits, &v, sizeof bits);
  return bits;
}
static inline vf as_floats(vi v) {
  vf floats;
  __builtin_memcpy(&floats, &v, sizeof floats);
  return floats;
}
static inline vi splat_bits(int x) { return x - vi{}; }
static inline int weights_at(const char* p) { return *reinterpret_cast<const int_unaligned*>(p); }

// Pixels and Four are how an instruction set holds L pixels of four bytes, and four weights; Fours are four weights for
// each of four channels, which repeat from lane to lane; LaneFours are four weights of its own for each lane.
#if defined(__AVX512VNNI__) && SANP_LANES == 16
typedef vi Pixels;
typedef vi Four;
static inline Pixels pixels_at(const float* p) { return load_bytes(p); }
static inline Pixels pixels_of(vi bytes) { return bytes; }
static inline Four four_at(const char* p) { return splat_bits(weights_at(p)); }
typedef vi Fours;
static inline Fours fours_at(const char* p) {
  return (vi)_mm512_maskz_broadcast_i32x4((__mmask16)0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
typedef vi LaneFours;
static inline LaneFours lane_fours_at(const char* p) { return load_bytes(reinterpret_cast<const float*>(p)); }
static inline vi dot(vi sum, const Pixels& x, const Four& w) {
  return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)x, (__m512i)w);
}
#elif defined(__AVX2__) && SANP_LANES == 8
// Bytes and weights as 16-bit numbers, even and odd ones apart. A product of pairs then fits 32 bits; that of bytes,
// which AVX2 has too, saturates at 16.
struct Pixels { __m256i even, odd; };
typedef Pixels Four;
static inline Pixels pixels_of(vi bytes) {
  const __m256i x = (__m256i)bytes;
  return {_mm256_and_si256(x, _mm256_set1_epi16(255)), _mm256_srli_epi16(x, 8)};
}
static inline Pixels pixels_at(const float* p) { return pixels_of(load_bytes(p)); }
static inline Four weights_of(__m256i w) {
  return {_mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8), _mm256_srai_epi16(w, 8)};
}
static inline Four four_at(const char* p) { return weights_of(_mm256_set1_epi32(weights_at(p))); }
typedef Four Fours;
static inline Fours fours_at(const char* p) {
  return weights_of(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
typedef Four LaneFours;
static inline LaneFours lane_fours_at(const char* p) {
  return weights_of(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
static inline vi dot(vi sum, const Pixels& x, const Four& w) {
  return sum + (vi)_mm256_madd_epi16(x.even, w.even) + (vi)_mm256_madd_epi16(x.odd, w.odd);
}
#else
struct Pixels { vi byte[kQuad]; };
struct Four { int weight[kQuad]; };
static inline Pixels pixels_of(vi x) { return {{x & 255, x >> 8 & 255, x >> 16 & 255, x >> 24 & 255}}; }
static inline Pixels pixels_at(const float* p) { return pixels_of(load_bytes(p)); }
static inline Four four_at(const char* p) {
  const signed char* w = reinterpret_cast<const signed char*>(p);
  return {{w[0], w[1], w[2], w[3]}};
}
static inline vi dot(vi sum, const Pixels& x, const Four& w) {
  for (int i = 0; i < kQuad; i++) sum += x.byte[i] * w.weight[i];
  return sum;
}
struct Fours { vi weight[kQuad]; };
static inline Fours fours_at(const char* p) {
  Fours w;
  for (int i = 0; i < kQuad; i++)
    for (int lane = 0; lane < L; lane++) w.weight[i][lane] = (signed char)p[lane % kQuad * kQuad + i];
  return w;
}
typedef Fours LaneFours;
static inline LaneFours lane_fours_at(const char* p) {
  const vi bytes = load_bytes(reinterpret_cast<const float*>(p));
  return {{bytes << 24 >> 24, bytes << 16 >> 24, bytes << 8 >> 24, bytes >> 24}};
}
static inline vi dot(vi sum, const Pixels& x, const Fours& w) {
  for (int i = 0; i < kQuad; i++) sum += x.byte[i] * w.weight[i];
  return sum;
}
#endif

// Lanes of two vectors, one after the other, by their numbers.
static inline vi lanes_of(const vi& a, const vi& b, const vi& lane) {
#ifdef __clang__
  vi found;
  for (int i = 0; i < L; i++) found[i] = lane[i] < L ? a[lane[i]] : b[lane[i] - L];
  return found;
#else
  return __builtin_shuffle(a, b, lane);
#endif
}

// Adds up the lanes of four vectors in parts: lane b of every four of the result has a part of the sum of vector b.
static inline vi add_in_fours(const vi& a, const vi& b, const vi& c, const vi& d) {
  vi low, high, low_pairs, high_pairs;
  for (int i = 0; i < L; i++) {
    low[i] = i % 2 * L + i / 4 * 4 + i % 4 / 2, high[i] = low[i] + 2;
    low_pairs[i] = i / 4 * 4 + i % 2 + i % 4 / 2 * L, high_pairs[i] = low_pairs[i] + 2;
  }
  const vi ab = lanes_of(a, b, low) + lanes_of(a, b, high);
  const vi cd = lanes_of(c, d, low) + lanes_of(c, d, high);
  return lanes_of(ab, cd, low_pairs) + lanes_of(ab, cd, high_pairs);
}

typedef int Channels __attribute__((vector_size(kQuad * 4)));
static inline Channels add_four_lanes(const vi& a, const vi& b, const vi& c, const vi& d) {
  const vi parts = add_in_fours(a, b, c, d);
  Channels part[L / kQuad], sum{};
  __builtin_memcpy(part, &parts, sizeof parts);
  for (int i = 0; i < L / kQuad; i++) sum += part[i];
  return sum;
}

// The nearest byte, ties to the even one, between bounds. Adding 1.5 * 2^23 leaves no digits behind the point.
static inline vi to_byte(vf v, float lowest, float highest) {
  return as_bits(clip(v, lowest, highest) + 12582912.f) & 255;
}

// The same for four vectors: of v[b] become the bytes b of the lanes (bytes_of_channels), or of the lanes 4 n + c of
// v[r] the bytes c of lane 4 n + r (bytes_of_pixels). The instructions that pack numbers saturate at zero themselves;
// what is too large must be cut before it is a whole number.
#if (defined(__AVX512BW__) && SANP_LANES == 16) || (defined(__AVX2__) && SANP_LANES == 8)
#if SANP_LANES == 16
typedef __m512i Packed;
static inline Packed whole(vf v, float highest) {
  constexpr __mmask16 all = 0xffff;  // GCC warns of the forms without a mask
  return _mm512_maskz_cvtps_epi32(all, _mm512_maskz_min_ps(all, splat(highest), v));
}
static inline Packed pack_words(Packed a, Packed b) { return _mm512_packs_epi32(a, b); }
static inline Packed pack_bytes(Packed a, Packed b) { return _mm512_packus_epi16(a, b); }
static inline Packed larger_of(Packed a, int byte) { return _mm512_max_epu8(a, _mm512_set1_epi8((char)byte)); }
static inline Packed by_pixel(Packed a) {
  return _mm512_shuffle_epi8(a, _mm512_set4_epi32(0x0f0b0703, 0x0e0a0602, 0x0d090501, 0x0c080400));
}
#else
typedef __m256i Packed;
static inline Packed whole(vf v, float highest) { return _mm256_cvtps_epi32(_mm256_min_ps(splat(highest), v)); }
static inline Packed pack_words(Packed a, Packed b) { return _mm256_packs_epi32(a, b); }
static inline Packed pack_bytes(Packed a, Packed b) { return _mm256_packus_epi16(a, b); }
static inline Packed larger_of(Packed a, int byte) { return _mm256_max_epu8(a, _mm256_set1_epi8((char)byte)); }
static inline Packed by_pixel(Packed a) {
  const __m128i order = _mm_set_epi32(0x0f0b0703, 0x0e0a0602, 0x0d090501, 0x0c080400);
  return _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(order));
}
#endif
static inline vi bytes_of_pixels(const vf (&v)[kQuad], float lowest, float highest) {
  const Packed low = pack_words(whole(v[0], highest), whole(v[1], highest));
  const Packed high = pack_words(whole(v[2], highest), whole(v[3], highest));
  return (vi)larger_of(pack_bytes(low, high), (int)lowest);
}
static inline vi bytes_of_channels(const vf (&v)[kQuad], float lowest, float highest) {
  return (vi)by_pixel((Packed)bytes_of_pixels(v, lowest, highest));
}
#else
static inline vi bytes_of_channels(const vf (&v)[kQuad], float lowest, float highest) {
  vi bytes{};
  for (int b = 0; b < kQuad; b++) bytes |= to_byte(v[b], lowest, highest) << 8 * b;
  return bytes;
}
static inline vi bytes_of_pixels(const vf (&v)[kQuad], float lowest, float highest) {
  vi bytes;
  for (int r = 0; r < kQuad; r++) {
    const vi made = to_byte(v[r], lowest, highest);
    for (int n = 0; n < L; n += kQuad)
      bytes[n + r] = made[n] | made[n + 1] << 8 | made[n + 2] << 16 | (int)((unsigned)made[n + 3] << 24);
  }
  return bytes;
}
#endif

static inline void store_bytes(float* p, vi v, int count) {
  if (count >= L)
    store(p, as_floats(v));
  else
    store_first(p, as_floats(v), count);
}
static inline vi load_some(const float* p, int count) {
  return count >= L ? load_bytes(p) : as_bits(load_first(p, count));
}

}  // namespace SANP_NAMESPACE
