// Puts bytes in another order by the instruction that takes any bytes of sixteen to any place among these sixteen. What a
// sixteen becomes is stored where it belongs, or it was loaded from there.
#pragma once
#include "weight_rows.hpp"

namespace SANP_NAMESPACE {

constexpr int kSixteen = 16, kSixteens = (int)kWeightLine / kSixteen;
constexpr unsigned char kNoByte = 128;  // becomes 0

// Which bytes of a line of 64 channels are those of live ones, for one sample. It is the same for all taps and output
// channels.
struct GatherPiece {
  unsigned char byte[kWeightLine];  // [sixteen][n]: which of the sixteen is its n-th live channel
  int before[kSixteens];            // live channels before the sixteen
};

struct GatherPlan {
  GatherPiece* pieces;
  int count;  // of lines, up to the last live channel

  static long tap_bytes(int live) { return (long)quads(live) * kQuad; }
  static long floats(long lines) { return (lines * (long)sizeof(GatherPiece) / 4 + 15) / 16 * 16; }

  GatherPlan(const Map& in, float* room) : pieces(reinterpret_cast<GatherPiece*>(room)), count(0) {
    for (int a = 0; a < in.live;) {
      GatherPiece& piece = pieces[count++];
      __builtin_memset(piece.byte, kNoByte, sizeof piece.byte);
      for (int i = 0; i < kSixteens; i++) {
        piece.before[i] = a;
        const int first = (int)(count - 1) * (int)kWeightLine + i * kSixteen;
        for (unsigned char* to = piece.byte + i * kSixteen; a < in.live && in.index[a] < first + kSixteen; a++)
          *to++ = (unsigned char)(in.index[a] - first);
      }
    }
  }
};

static inline __m128i sixteen_at(const void* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
static inline void store_sixteen(char* to, __m128i bytes) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes); }

// Copies the weights of the live channels of all taps of some output channels, with zeros behind the last of each tap. A
// sixteen is stored whole, and the next one over what is too much of it: everything is written in the order of the copy.
// Rows are kGathered apart there, and taps `tap_bytes`.
static inline void gather_rows(const GatherPlan& plan, const Map& in, const WeightRows& rows, char* to, long tap_bytes) {
  static_assert(kGathered >= kMostWeightBytes + kSixteen, "what is too much has room behind a row");
  for (int t = 0; t < rows.count; t++, to += kGathered) {
    const int8_t* from = rows.row[t];
    char* copy = to;
    for (int k = 0; k < rows.taps; k++, from += rows.step, copy += tap_bytes) {
      for (int n = 0; n < plan.count; n++) {
        const GatherPiece& piece = plan.pieces[n];
#pragma GCC unroll 4
        for (int i = 0; i < kSixteens; i++) {
          const __m128i sixteen = sixteen_at(from + n * kWeightLine + i * kSixteen);
          store_sixteen(copy + piece.before[i], _mm_shuffle_epi8(sixteen, sixteen_at(piece.byte + i * kSixteen)));
        }
      }
      store_sixteen(copy + in.live, _mm_setzero_si128());
    }
  }
}

// Which of 64 channels are live.
struct LiveLine {
  unsigned char byte[kWeightLine];  // number of a live channel among those of its sixteen
  int count[kSixteens];             // live channels of the sixteen
  int before = 0;                   // of the lines before
  LiveLine() : count{} { __builtin_memset(byte, kNoByte, sizeof byte); }
  void mark(int channel) { byte[channel] = (unsigned char)count[channel / kSixteen]++; }
};

// Gives every live channel of a line its byte, from those of the live channels side by side; the others have 0.
static inline void spread_line(const LiveLine& line, const char* live, char* to) {
  live += line.before;
#pragma GCC unroll 4
  for (int i = 0; i < kSixteens; live += line.count[i++])
    store_sixteen(to + i * kSixteen, _mm_shuffle_epi8(sixteen_at(live), sixteen_at(line.byte + i * kSixteen)));
}

}  // namespace SANP_NAMESPACE
