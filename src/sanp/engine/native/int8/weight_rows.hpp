// Rows of weights of some output channels, as they lie and as they are gathered.
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

}  // namespace SANP_NAMESPACE
