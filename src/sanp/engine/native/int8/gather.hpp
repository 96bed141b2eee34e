// Puts the weights of live input channels side by side, four by four as the bytes of the input lie.
#pragma once
#include "dot.hpp"

namespace SANP_NAMESPACE {

// How the weights of one tap are gathered for one sample: every line of the copy has some bytes of each of a few lines. It
// is the same for all taps and output channels. With other instructions the list of live channels says it all.
#ifdef __AVX512VBMI__
struct GatherPiece {
  uint64_t mask;  // which bytes of the copy's line
  long line;      // where they come from
  long pad[6];
  unsigned char byte[kWeightLine];  // which of its bytes each is
};

struct GatherPlan {
  GatherPiece* pieces;  // in the order of the copy's lines
  int count;

  // Bytes from one tap to the next in the copy.
  static long tap_bytes(int live) { return (live + kWeightLine - 1) / kWeightLine * kWeightLine; }
  static long floats(long lines) { return 2 * lines * (long)sizeof(GatherPiece) / 4; }

  GatherPlan(const Map& in, float* room) : pieces(reinterpret_cast<GatherPiece*>(room)), count(0) {
    for (int a = 0; a < in.live; a++) {
      const long line = in.index[a] / kWeightLine;
      if (a % kWeightLine == 0 || pieces[count - 1].line != line) pieces[count].mask = 0, pieces[count++].line = line;
      pieces[count - 1].mask |= uint64_t{1} << (a % kWeightLine);
      pieces[count - 1].byte[a % kWeightLine] = (unsigned char)(in.index[a] % kWeightLine);
    }
  }
};

// Line `to` of the copies of all taps, from N lines of each.
template <int N>
static inline void gather_line(const GatherPiece* piece, const int8_t* from, long step, int taps, char* to,
                               long tap_bytes) {
  __m512i byte[N];
  __mmask64 mask[N];
  long line[N];
#pragma GCC unroll 4
  for (int n = 0; n < N; n++) {
    byte[n] = _mm512_loadu_si512(piece[n].byte);
    mask[n] = piece[n].mask;
    line[n] = piece[n].line * kWeightLine;
  }
  for (int k = 0; k < taps; k++, from += step, to += tap_bytes) {
    __m512i w = _mm512_maskz_permutexvar_epi8(mask[0], byte[0], _mm512_loadu_si512(from + line[0]));
#pragma GCC unroll 4
    for (int n = 1; n < N; n++)
      w = _mm512_mask_permutexvar_epi8(w, mask[n], byte[n], _mm512_loadu_si512(from + line[n]));
    _mm512_storeu_si512(to, w);
  }
}

// Copies the weights of the live channels of all taps of one output channel, with zeros behind the last of each tap.
// Taps lie `step` bytes apart, and `tap_bytes` in the copy.
static inline void gather_taps(const GatherPlan& plan, const Map&, const int8_t* from, long step, int taps, char* to,
                               long tap_bytes) {
  for (int first = 0, last; first < plan.count; first = last, to += kWeightLine) {
    const GatherPiece* piece = plan.pieces + first;
    for (last = first + 1; last < plan.count && !(plan.pieces[last].mask & 1);) last++;
    switch (last - first) {
      case 1: gather_line<1>(piece, from, step, taps, to, tap_bytes); continue;
      case 2: gather_line<2>(piece, from, step, taps, to, tap_bytes); continue;
      case 3: gather_line<3>(piece, from, step, taps, to, tap_bytes); continue;
    }
    for (int k = 0; k < taps; k++) {
      __m512i w = _mm512_setzero_si512();
      for (int n = 0; n < last - first; n++)
        w = _mm512_mask_permutexvar_epi8(w, piece[n].mask, _mm512_loadu_si512(piece[n].byte),
                                         _mm512_loadu_si512(from + k * step + piece[n].line * kWeightLine));
      _mm512_storeu_si512(to + k * tap_bytes, w);
    }
  }
}
#else
struct GatherPlan {
  static long tap_bytes(int live) { return (long)quads(live) * kQuad; }
  static long floats(long) { return 0; }
  GatherPlan(const Map&, float*) {}
};

static inline void gather_taps(const GatherPlan&, const Map& in, const int8_t* from, long step, int taps, char* to,
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
