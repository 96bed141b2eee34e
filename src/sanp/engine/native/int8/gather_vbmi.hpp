// Puts bytes in another order by VBMI, whose instruction takes any bytes of a line to any place, and VBMI2, whose
// instruction spreads bytes over the places of a mask.
#pragma once
#include "weight_rows.hpp"

namespace SANP_NAMESPACE {

// How the weights of one tap are gathered for one sample: every line of the copy has some bytes of each of a few lines. It
// is the same for all taps and output channels.
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

// Which of 64 channels are live.
struct LiveLine {
  uint64_t mask = 0;
  int before = 0;  // live channels of the lines before
  void mark(int channel) { mask |= uint64_t{1} << channel; }
};

// Gives every live channel of a line its byte, from those of the live channels side by side; the others have 0.
static inline void spread_line(const LiveLine& line, const char* live, char* to) {
  _mm512_storeu_si512(to, _mm512_maskz_expand_epi8(line.mask, _mm512_loadu_si512(live + line.before)));
}

}  // namespace SANP_NAMESPACE
