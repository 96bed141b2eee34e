// Puts the weights of live input channels side by side, four by four as the bytes of the input lie. Without
// instructions for it, byte by byte.
#pragma once
#if defined(__AVX512VBMI__) && defined(__AVX512VBMI2__)
#include "gather_vbmi.hpp"
#elif defined(__AVX2__)
#include "gather_sixteens.hpp"
#else
#include "weight_rows.hpp"

namespace SANP_NAMESPACE {

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

}  // namespace SANP_NAMESPACE
#endif

namespace SANP_NAMESPACE {

// Four bytes that stand for zero, as the bits of a float.
static inline float zero_word(int zero) {
  const unsigned bits = 0x01010101u * (unsigned)zero;
  float word;
  __builtin_memcpy(&word, &bits, sizeof word);
  return word;
}

}  // namespace SANP_NAMESPACE
