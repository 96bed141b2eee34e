// Puts the weights of live input channels side by side, four by four as the bytes of the input lie.
#pragma once
#include "dot.hpp"

namespace SANP_NAMESPACE {

// Copies the weights of the live channels of all taps of one output channel, with zeros behind the last of each tap up
// to a whole four. Taps lie `step` bytes apart, and `tap_bytes` in the copy.
#ifdef __AVX512VBMI2__
// Which of the channels of some lines are live, in registers, and where the copies of each line begin.
template <int Lines>
static void gather_lines(const int8_t* from, long step, int taps, const uint64_t* live, char* to, long tap_bytes) {
  __mmask64 mask[Lines];
  long at[Lines + 1];
  at[0] = 0;
#pragma GCC unroll 8
  for (int i = 0; i < Lines; i++) mask[i] = live[i], at[i + 1] = at[i] + __builtin_popcountll(live[i]);
  const bool full = at[Lines] - at[Lines - 1] > kWeightLine - kQuad;
  for (int k = 0; k < taps; k++, from += step, to += tap_bytes) {
#pragma GCC unroll 8
    for (int i = 0; i < Lines; i++)
      _mm512_storeu_si512(to + at[i], _mm512_maskz_compress_epi8(mask[i], _mm512_loadu_si512(from + i * kWeightLine)));
    if (full) _mm512_storeu_si512(to + at[Lines], _mm512_setzero_si512());
  }
}

static inline void gather_taps(const int8_t* from, long step, int taps, const uint64_t* live, const Map&, char* to,
                               long tap_bytes) {
  switch (step / kWeightLine) {
    case 1: return gather_lines<1>(from, step, taps, live, to, tap_bytes);
    case 2: return gather_lines<2>(from, step, taps, live, to, tap_bytes);
    case 3: return gather_lines<3>(from, step, taps, live, to, tap_bytes);
    case 4: return gather_lines<4>(from, step, taps, live, to, tap_bytes);
    case 6: return gather_lines<6>(from, step, taps, live, to, tap_bytes);
    case 8: return gather_lines<8>(from, step, taps, live, to, tap_bytes);
  }
  for (int k = 0; k < taps; k++, from += step, to += tap_bytes) {
    char* next = to;
    for (long i = 0; i * kWeightLine < step; i++) {
      const __m512i w = _mm512_loadu_si512(from + i * kWeightLine);
      _mm512_storeu_si512(next, _mm512_maskz_compress_epi8(live[i], w));
      next += __builtin_popcountll(live[i]);
    }
    _mm512_storeu_si512(next, _mm512_setzero_si512());
  }
}
#else
static inline void gather_taps(const int8_t* from, long step, int taps, const uint64_t*, const Map& in, char* to,
                               long tap_bytes) {
  for (int k = 0; k < taps; k++, from += step, to += tap_bytes) {
    for (int a = 0; a < in.live; a++) to[a] = (char)from[in.index[a]];
    for (int a = in.live; a < tap_bytes; a++) to[a] = 0;
  }
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
