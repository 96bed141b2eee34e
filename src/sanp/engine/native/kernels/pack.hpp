// Vectors of N lanes, for kernels that choose N by the width of a map: loads and stores of some of the lanes.
#pragma once
#include <type_traits>

#include "vec.hpp"

namespace SANP_NAMESPACE {

// A mask has a bit for each lane, which are neighbours: [from, to).
static inline unsigned lanes_between(int from, int to, int lanes) {
  from = from < 0 ? 0 : from > lanes ? lanes : from;
  to = to > lanes ? lanes : to < from ? from : to;
  return ((1u << to) - 1) & ~((1u << from) - 1);
}

template <int N>
struct Floats;
template <>
struct Floats<4> {
  typedef float type __attribute__((vector_size(16)));
  typedef float unaligned __attribute__((vector_size(16), aligned(4), may_alias));
};
template <>
struct Floats<8> {
  typedef float type __attribute__((vector_size(32)));
  typedef float unaligned __attribute__((vector_size(32), aligned(4), may_alias));
};
template <>
struct Floats<16> {
  typedef float type __attribute__((vector_size(64)));
  typedef float unaligned __attribute__((vector_size(64), aligned(4), may_alias));
};

template <int N>
struct Pack {
  typedef typename Floats<N>::type type;
  typedef typename Floats<N>::unaligned unaligned;
  static constexpr unsigned all = (1u << N) - 1;
#if defined(__AVX512VL__)
  typedef std::conditional_t<N == 16, __mmask16, __mmask8> mask_type;
#else
  typedef unsigned mask_type;
#endif

  static inline type splat(float x) { return x - type{}; }

  // Lanes that are not in the mask are zero, and their memory is not touched.
  static inline type load(const float* p, unsigned mask) {
#if defined(__AVX512VL__)
    if constexpr (N == 16) return _mm512_maskz_loadu_ps((__mmask16)mask, p);
    if constexpr (N == 8) return _mm256_maskz_loadu_ps((__mmask8)mask, p);
#elif defined(__AVX2__)
    if constexpr (N == 8) {
      const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
      const __m256i bits = _mm256_and_si256(_mm256_set1_epi32((int)mask), bit);
      return _mm256_maskload_ps(p, _mm256_cmpeq_epi32(bits, bit));
    }
#endif
    if (mask == all) return *reinterpret_cast<const unaligned*>(p);
    type v{};
    for (int i = 0; i < N; i++)
      if (mask >> i & 1) v[i] = p[i];
    return v;
  }

  static inline void store(float* p, type v, unsigned mask) {
#if defined(__AVX512VL__)
    if constexpr (N == 16) return _mm512_mask_storeu_ps(p, (__mmask16)mask, v);
    if constexpr (N == 8) return _mm256_mask_storeu_ps(p, (__mmask8)mask, v);
#endif
    if (mask == all) {
      *reinterpret_cast<unaligned*>(p) = v;
      return;
    }
    for (int i = 0; i < N; i++)
      if (mask >> i & 1) p[i] = v[i];
  }

  static inline type clip(type x, Bounds b) {
    if constexpr (N == L) return SANP_NAMESPACE::clip(x, b.low, b.high);
#if defined(__AVX2__)
    if constexpr (N == 8) return _mm256_min_ps(splat(b.high), _mm256_max_ps(splat(b.low), x));
#endif
    x = x < b.low ? splat(b.low) : x;
    return x > b.high ? splat(b.high) : x;
  }

  // Every second element of a and b one after the other, from the First on.
  template <int First>
  static inline type every_second(type a, type b) {
#ifdef SANP_SHUFFLE
    constexpr int F = First;
    if constexpr (N == 4) return SANP_SHUFFLE(a, b, F, F + 2, F + 4, F + 6);
    if constexpr (N == 8) return SANP_SHUFFLE(a, b, F, F + 2, F + 4, F + 6, F + 8, F + 10, F + 12, F + 14);
    if constexpr (N == 16)
      return SANP_SHUFFLE(a, b, F, F + 2, F + 4, F + 6, F + 8, F + 10, F + 12, F + 14, F + 16, F + 18, F + 20, F + 22,
                          F + 24, F + 26, F + 28, F + 30);
#endif
    type r{};
    for (int i = 0; i < N; i++) r[i] = 2 * i + First < N ? a[2 * i + First] : b[2 * i + First - N];
    return r;
  }
};

}  // namespace SANP_NAMESPACE
