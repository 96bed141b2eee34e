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

// Pixels and Four are how an instruction set holds L pixels of four bytes, and four weights.
#if defined(__AVX512VNNI__) && SANP_LANES == 16
typedef vi Pixels;
typedef vi Four;
static inline Pixels pixels_at(const float* p) { return load_bytes(p); }
static inline Four four_at(const char* p) { return splat_bits(weights_at(p)); }
static inline vi dot(vi sum, const Pixels& x, const Four& w) {
  return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)x, (__m512i)w);
}
#elif defined(__AVX2__) && SANP_LANES == 8
// Bytes and weights as 16-bit numbers, even and odd ones apart. A product of pairs then fits 32 bits; that of bytes,
// which AVX2 has too, saturates at 16.
struct Pixels { __m256i even, odd; };
typedef Pixels Four;
static inline Pixels pixels_at(const float* p) {
  const __m256i x = (__m256i)load_bytes(p);
  return {_mm256_and_si256(x, _mm256_set1_epi16(255)), _mm256_srli_epi16(x, 8)};
}
static inline Four four_at(const char* p) {
  const __m256i w = _mm256_set1_epi32(weights_at(p));
  return {_mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8), _mm256_srai_epi16(w, 8)};
}
static inline vi dot(vi sum, const Pixels& x, const Four& w) {
  return sum + (vi)_mm256_madd_epi16(x.even, w.even) + (vi)_mm256_madd_epi16(x.odd, w.odd);
}
#else
struct Pixels { vi byte[kQuad]; };
struct Four { int weight[kQuad]; };
static inline Pixels pixels_at(const float* p) {
  const vi x = load_bytes(p);
  return {{x & 255, x >> 8 & 255, x >> 16 & 255, x >> 24 & 255}};
}
static inline Four four_at(const char* p) {
  const signed char* w = reinterpret_cast<const signed char*>(p);
  return {{w[0], w[1], w[2], w[3]}};
}
static inline vi dot(vi sum, const Pixels& x, const Four& w) {
  for (int i = 0; i < kQuad; i++) sum += x.byte[i] * w.weight[i];
  return sum;
}
#endif

// The nearest byte, ties to the even one, from 0 to `highest`. Adding 1.5 * 2^23 leaves no digits behind the point.
static inline vi to_byte(vf v, float highest) { return as_bits(clip(v, 0.f, highest) + 12582912.f) & 255; }

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
