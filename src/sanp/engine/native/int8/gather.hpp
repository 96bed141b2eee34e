// Puts the weights of live input channels side by side, four by four as the bytes of the input lie.
#pragma once
#include "dot.hpp"

namespace SANP_NAMESPACE {

constexpr int kMostRows = 24;  // output channels of a block
// Rows of gathered weights are a constant apart, so that one register finds them all, and by an odd number of lines.
constexpr long kGathered = kMostWeightBytes + 2 * kWeightLine + 64;
static_assert(kGathered / 64 % 2 == 1, "rows spread over the sets of the cache");

// Rows of weights of some output channels: where each begins, and how far the taps of a row are apart.
struct WeightRows {
  const int8_t* row[kMostRows];
  int count, taps;
  long step;
};

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

// Line `to` of the copies of all taps of all rows, from N lines of each.
template <int N>
static inline void gather_line(const GatherPiece* piece, const WeightRows& rows, char* to, long tap_bytes) {
  __m512i byte[N];
  __mmask64 mask[N];
  long line[N];
#pragma GCC unroll 4
  for (int n = 0; n < N; n++) {
    byte[n] = _mm512_loadu_si512(piece[n].byte);
    mask[n] = piece[n].mask;
    line[n] = piece[n].line * kWeightLine;
  }
  for (int t = 0; t < rows.count; t++, to += kGathered) {
    const int8_t* from = rows.row[t];
    char* copy = to;
    for (int k = 0; k < rows.taps; k++, from += rows.step, copy += tap_bytes) {
      __m512i w = _mm512_maskz_permutexvar_epi8(mask[0], byte[0], _mm512_loadu_si512(from + line[0]));
#pragma GCC unroll 4
      for (int n = 1; n < N; n++)
        w = _mm512_mask_permutexvar_epi8(w, mask[n], byte[n], _mm512_loadu_si512(from + line[n]));
      _mm512_storeu_si512(copy, w);
    }
  }
}

static inline void gather_line_of_many(const GatherPiece* piece, int pieces, const WeightRows& rows, char* to,
                                       long tap_bytes) {
  for (int t = 0; t < rows.count; t++, to += kGathered)
    for (int k = 0; k < rows.taps; k++) {
      __m512i w = _mm512_setzero_si512();
      for (int n = 0; n < pieces; n++)
        w = _mm512_mask_permutexvar_epi8(w, piece[n].mask, _mm512_loadu_si512(piece[n].byte),
                                         _mm512_loadu_si512(rows.row[t] + k * rows.step + piece[n].line * kWeightLine));
      _mm512_storeu_si512(to + k * tap_bytes, w);
    }
}

// Copies the weights of the live channels of all taps of some output channels, with zeros behind the last of each tap.
// Rows are kGathered apart in the copy, and taps `tap_bytes`.
static inline void gather_rows(const GatherPlan& plan, const Map&, const WeightRows& rows, char* to, long tap_bytes) {
  for (int first = 0, last; first < plan.count; first = last, to += kWeightLine) {
    const GatherPiece* piece = plan.pieces + first;
    for (last = first + 1; last < plan.count && !(plan.pieces[last].mask & 1);) last++;
    switch (last - first) {
      case 1: gather_line<1>(piece, rows, to, tap_bytes); break;
      case 2: gather_line<2>(piece, rows, to, tap_bytes); break;
      case 3: gather_line<3>(piece, rows, to, tap_bytes); break;
      default: gather_line_of_many(piece, last - first, rows, to, tap_bytes);
    }
  }
}
#else
struct GatherPlan {
  static long tap_bytes(int live) { return (long)quads(live) * kQuad; }
  static long floats(long) { return 0; }
  GatherPlan(const Map&, float*) {}
};

static inline void gather_rows(const GatherPlan&, const Map& in, const WeightRows& rows, char* to, long tap_bytes) {
  for (int t = 0; t < rows.count; t++, to += kGathered) {
    const int8_t* from = rows.row[t];
    char* copy = to;
    for (int k = 0; k < rows.taps; k++, from += rows.step, copy += tap_bytes) {
      for (int a = 0; a < in.live; a++) copy[a] = (char)from[in.index[a]];
      for (int a = in.live; a < tap_bytes; a++) copy[a] = 0;
    }
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
