// Puts the weights of live input channels side by side, four by four as the bytes of the input lie.
#pragma once
#include "dot.hpp"

namespace SANP_NAMESPACE {

// Copies the weights of the live channels of one tap, and zeros up to the next whole line.
#ifdef __AVX512VBMI2__
static inline void gather_tap(const int8_t* from, const uint64_t* live, long words, const int*, int, char* to) {
  for (long i = 0; i < words; i++) {
    const __m512i w = _mm512_loadu_si512(from + i * 64);
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi8(live[i], w));
    to += __builtin_popcountll(live[i]);
  }
  _mm512_storeu_si512(to, _mm512_setzero_si512());
}
#else
static inline void gather_tap(const int8_t* from, const uint64_t*, long, const int* index, int count, char* to) {
  for (int a = 0; a < count; a++) to[a] = (char)from[index[a]];
  for (int a = count; a < quads(count) * kQuad; a++) to[a] = 0;
}
#endif

// The sum of gathered weights.
#ifdef __AVX512VNNI__
static inline int sum_bytes(const char* w, long count) {
  __m512i sum = _mm512_setzero_si512();
  for (long i = 0; i < count; i += 64) {
    const __mmask64 here = count - i >= 64 ? ~__mmask64{0} : (__mmask64{1} << (count - i)) - 1;
    sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), _mm512_maskz_loadu_epi8(here, w + i));
  }
  return _mm512_reduce_add_epi32(sum);
}
#else
static inline int sum_bytes(const char* w, long count) {
  int sum = 0;
  for (long i = 0; i < count; i++) sum += (signed char)w[i];
  return sum;
}
#endif

// Four bytes that stand for zero, as the bits of a float.
static inline float zero_word(int zero) {
  const unsigned bits = 0x01010101u * (unsigned)zero;
  float word;
  __builtin_memcpy(&word, &bits, sizeof word);
  return word;
}

// Bit c of the words is set for a live channel c.
static inline void mark_live(const Map& in, uint64_t* words, long count) {
  for (long i = 0; i < count; i++) words[i] = 0;
  for (int a = 0; a < in.live; a++) words[in.index[a] / 64] |= uint64_t{1} << (in.index[a] % 64);
}

}  // namespace SANP_NAMESPACE
