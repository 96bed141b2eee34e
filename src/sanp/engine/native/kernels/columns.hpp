// The columns of many small tiles at once: vector k holds element k of the same row of every tile. Lanes are tiles.
#pragma once
#include "shuffle.hpp"

namespace SANP_NAMESPACE {

// quads() puts four floats from each of L / 4 places into one vector: quad q comes from base + at[4 q].
typedef float vf4 __attribute__((vector_size(16)));
typedef float vf4_unaligned __attribute__((vector_size(16), aligned(4), may_alias));
static inline vf4 quad(const float* p) { return *reinterpret_cast<const vf4_unaligned*>(p); }
static inline void store_quad(float* p, vf4 v) { *reinterpret_cast<vf4_unaligned*>(p) = v; }

#if defined(SANP_SHUFFLE) && SANP_LANES == 4
static inline vf quads(const float* base, const int* at) { return quad(base + at[0]); }
static inline vf low_in_quads(vf a, vf b) { return SANP_SHUFFLE(a, b, 0, 4, 1, 5); }
static inline vf high_in_quads(vf a, vf b) { return SANP_SHUFFLE(a, b, 2, 6, 3, 7); }
static inline vf low_pairs(vf a, vf b) { return SANP_SHUFFLE(a, b, 0, 1, 4, 5); }
static inline vf high_pairs(vf a, vf b) { return SANP_SHUFFLE(a, b, 2, 3, 6, 7); }
#elif defined(SANP_SHUFFLE) && SANP_LANES == 8
static inline vf quads(const float* base, const int* at) {
  return SANP_SHUFFLE(quad(base + at[0]), quad(base + at[4]), 0, 1, 2, 3, 4, 5, 6, 7);
}
static inline vf low_in_quads(vf a, vf b) { return low_in_halves(a, b); }
static inline vf high_in_quads(vf a, vf b) { return high_in_halves(a, b); }
static inline vf low_pairs(vf a, vf b) { return SANP_SHUFFLE(a, b, 0, 1, 8, 9, 4, 5, 12, 13); }
static inline vf high_pairs(vf a, vf b) { return SANP_SHUFFLE(a, b, 2, 3, 10, 11, 6, 7, 14, 15); }
#else
#if defined(SANP_SHUFFLE)
static inline vf quads(const float* base, const int* at) {
  const auto low = SANP_SHUFFLE(quad(base + at[0]), quad(base + at[4]), 0, 1, 2, 3, 4, 5, 6, 7);
  const auto high = SANP_SHUFFLE(quad(base + at[8]), quad(base + at[12]), 0, 1, 2, 3, 4, 5, 6, 7);
  return SANP_SHUFFLE(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
static inline vf low_in_quads(vf a, vf b) {
  return SANP_SHUFFLE(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
}
static inline vf high_in_quads(vf a, vf b) {
  return SANP_SHUFFLE(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}
static inline vf low_pairs(vf a, vf b) {
  return SANP_SHUFFLE(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
}
static inline vf high_pairs(vf a, vf b) {
  return SANP_SHUFFLE(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}
#else
static inline vf quads(const float* base, const int* at) {
  vf r;
  for (int i = 0; i < L; i++) r[i] = base[at[i / 4 * 4] + i % 4];
  return r;
}
static inline vf low_in_quads(vf a, vf b) {
  vf r;
  for (int i = 0; i < L; i++) r[i] = (i % 2 ? b : a)[i / 4 * 4 + i % 4 / 2];
  return r;
}
static inline vf high_in_quads(vf a, vf b) {
  vf r;
  for (int i = 0; i < L; i++) r[i] = (i % 2 ? b : a)[i / 4 * 4 + 2 + i % 4 / 2];
  return r;
}
static inline vf low_pairs(vf a, vf b) {
  vf r;
  for (int i = 0; i < L; i++) r[i] = (i % 4 < 2 ? a : b)[i / 4 * 4 + i % 2];
  return r;
}
static inline vf high_pairs(vf a, vf b) {
  vf r;
  for (int i = 0; i < L; i++) r[i] = (i % 4 < 2 ? a : b)[i / 4 * 4 + 2 + i % 2];
  return r;
}
#endif
#endif

// d[k][i] = base[at[i] + k] for every lane i and k < N, where N is 4 to 6. Up to 8 floats are read at each place.
template <int N>
static inline void load_columns(const float* base, const int* at, vf (&d)[N]) {
  const vf a = quads(base, at), b = quads(base, at + 1), c = quads(base, at + 2), e = quads(base, at + 3);
  const vf ab = low_in_quads(a, b), ce = low_in_quads(c, e), AB = high_in_quads(a, b), CE = high_in_quads(c, e);
  d[0] = low_pairs(ab, ce);
  d[1] = high_pairs(ab, ce);
  d[2] = low_pairs(AB, CE);
  d[3] = high_pairs(AB, CE);
  if constexpr (N > 4) {
    const vf f = quads(base + 4, at), g = quads(base + 4, at + 1), h = quads(base + 4, at + 2);
    const vf fg = low_in_quads(f, g), hi = low_in_quads(h, quads(base + 4, at + 3));
    d[4] = low_pairs(fg, hi);
    if constexpr (N > 5) d[5] = high_pairs(fg, hi);
  }
}

// The next functions are for tiles that follow each other in groups of four, Step floats apart: at[4 q + j] = at[4 q] +
// j Step. Every group covers 4 Step floats; under_fours() loads floats m L to (m + 1) L of all of them.
#if defined(SANP_SHUFFLE) && SANP_LANES == 16
typedef float vf8 __attribute__((vector_size(32)));
typedef float vf8_unaligned __attribute__((vector_size(32), aligned(4), may_alias));
static inline vf8 eight(const float* p) { return *reinterpret_cast<const vf8_unaligned*>(p); }
static inline vf two_eights(const float* a, const float* b) {
  return SANP_SHUFFLE(eight(a), eight(b), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
#else
static inline vf two_eights(const float* a, const float* b) {
  vf r{};
  for (int i = 0; i < L; i++) r[i] = i < 8 ? a[i] : b[i - 8];
  return r;
}
#endif

template <int Step>
static inline vf under_fours(const float* base, const int* at, int m) {
  constexpr int piece = 4 * Step;
  if constexpr (L <= piece)
    return load(base + at[m * L / piece * 4] + m * L % piece);
  else
    return two_eights(base + at[8 * m], base + at[8 * m + 4]);
}

// Columns 0 to 3 of four vectors here(0) to here(3), and as many more as d has of further(0) to further(3), which lie
// four floats further on.
template <int N, class Here, class Further>
static inline void sort_columns(const Here& here, const Further& further, vf (&d)[N]) {
  static_assert(N > 4 && N <= 8, "four columns and some of the four after them");
  vf o[4];
  split_four(here(0), here(1), here(2), here(3), o);
  for (int k = 0; k < 4; k++) d[k] = o[k];
  split_four(further(0), further(1), further(2), further(3), o);
  for (int k = 4; k < N; k++) d[k] = o[k - 4];
}

// load_columns() for such tiles: whole vectors are sorted, which takes fewer instructions. Up to 4 Step + 4 floats are
// read at the first of every four.
template <int N, int Step>
static inline void load_columns_by_fours(const float* base, const int* at, vf (&d)[N]) {
  const auto under = [&](int first, int m) { return under_fours<Step>(base + first, at, m); };
  if constexpr (Step == 2) {
    static_assert(N == 4, "two columns and the two after them");
    for (int k = 0; k < N; k += 2) {
      d[k] = even_lanes(under(k, 0), under(k, 1));
      d[k + 1] = odd_lanes(under(k, 0), under(k, 1));
    }
  } else {
    static_assert(Step == 4, "four columns and some of the four after them");
    sort_columns([&](int m) { return under(0, m); }, [&](int m) { return under(4, m); }, d);
  }
}

}  // namespace SANP_NAMESPACE
