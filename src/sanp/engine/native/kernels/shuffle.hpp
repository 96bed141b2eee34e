// Vectors whose elements are sorted by phase, and phases that are put together again: for strides and for tiles.
#pragma once
#include "vec.hpp"

namespace SANP_NAMESPACE {

#if defined(SANP_SHUFFLE) && SANP_LANES == 8
// Within halves of a register first, then across them once: half the instructions of the plain form below.
static inline vf evens_in_halves(vf a, vf b) { return SANP_SHUFFLE(a, b, 0, 2, 8, 10, 4, 6, 12, 14); }
static inline vf odds_in_halves(vf a, vf b) { return SANP_SHUFFLE(a, b, 1, 3, 9, 11, 5, 7, 13, 15); }
static inline vf pairs_in_order(vf a) { return SANP_SHUFFLE(a, a, 0, 1, 4, 5, 2, 3, 6, 7); }
static inline vf even_lanes(vf a, vf b) { return pairs_in_order(evens_in_halves(a, b)); }
static inline vf odd_lanes(vf a, vf b) { return pairs_in_order(odds_in_halves(a, b)); }
static inline vf lanes_in_order(vf a) { return SANP_SHUFFLE(a, a, 0, 4, 1, 5, 2, 6, 3, 7); }

static inline void split_four(vf a, vf b, vf c, vf d, vf (&o)[4]) {
  const vf even0 = evens_in_halves(a, b), even1 = evens_in_halves(c, d);
  const vf odd0 = odds_in_halves(a, b), odd1 = odds_in_halves(c, d);
  o[0] = lanes_in_order(evens_in_halves(even0, even1));
  o[1] = lanes_in_order(evens_in_halves(odd0, odd1));
  o[2] = lanes_in_order(odds_in_halves(even0, even1));
  o[3] = lanes_in_order(odds_in_halves(odd0, odd1));
}

static inline vf low_in_halves(vf a, vf b) { return SANP_SHUFFLE(a, b, 0, 8, 1, 9, 4, 12, 5, 13); }
static inline vf high_in_halves(vf a, vf b) { return SANP_SHUFFLE(a, b, 2, 10, 3, 11, 6, 14, 7, 15); }
static inline vf low_halves(vf a, vf b) { return SANP_SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11); }
static inline vf high_halves(vf a, vf b) { return SANP_SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15); }

static inline void join_two(vf a, vf b, vf (&o)[2]) {
  const vf low = low_in_halves(a, b), high = high_in_halves(a, b);
  o[0] = low_halves(low, high);
  o[1] = high_halves(low, high);
}

static inline void join_four(vf a, vf b, vf c, vf d, vf (&o)[4]) {
  const vf ac0 = low_in_halves(a, c), ac1 = high_in_halves(a, c);
  const vf bd0 = low_in_halves(b, d), bd1 = high_in_halves(b, d);
  const vf first = low_in_halves(ac0, bd0), second = high_in_halves(ac0, bd0);
  const vf third = low_in_halves(ac1, bd1), fourth = high_in_halves(ac1, bd1);
  o[0] = low_halves(first, second);
  o[1] = low_halves(third, fourth);
  o[2] = high_halves(first, second);
  o[3] = high_halves(third, fourth);
}
#else
#if defined(SANP_SHUFFLE) && SANP_LANES == 4
static inline vf even_lanes(vf a, vf b) { return SANP_SHUFFLE(a, b, 0, 2, 4, 6); }
static inline vf odd_lanes(vf a, vf b) { return SANP_SHUFFLE(a, b, 1, 3, 5, 7); }
static inline vf low_lanes(vf a, vf b) { return SANP_SHUFFLE(a, b, 0, 4, 1, 5); }
static inline vf high_lanes(vf a, vf b) { return SANP_SHUFFLE(a, b, 2, 6, 3, 7); }
#elif defined(SANP_SHUFFLE) && SANP_LANES == 16
static inline vf even_lanes(vf a, vf b) {
  return SANP_SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
static inline vf odd_lanes(vf a, vf b) {
  return SANP_SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}
static inline vf low_lanes(vf a, vf b) {
  return SANP_SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
static inline vf high_lanes(vf a, vf b) {
  return SANP_SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
#else
static inline vf even_lanes(vf a, vf b) {
  vf r;
  for (int i = 0; i < L; i++) r[i] = 2 * i < L ? a[2 * i] : b[2 * i - L];
  return r;
}
static inline vf odd_lanes(vf a, vf b) {
  vf r;
  for (int i = 0; i < L; i++) r[i] = 2 * i < L ? a[2 * i + 1] : b[2 * i + 1 - L];
  return r;
}
static inline vf low_lanes(vf a, vf b) {
  vf r;
  for (int i = 0; i < L; i++) r[i] = i % 2 ? b[i / 2] : a[i / 2];
  return r;
}
static inline vf high_lanes(vf a, vf b) {
  vf r;
  for (int i = 0; i < L; i++) r[i] = i % 2 ? b[L / 2 + i / 2] : a[L / 2 + i / 2];
  return r;
}
#endif

static inline void split_four(vf a, vf b, vf c, vf d, vf (&o)[4]) {
  const vf even0 = even_lanes(a, b), even1 = even_lanes(c, d), odd0 = odd_lanes(a, b), odd1 = odd_lanes(c, d);
  o[0] = even_lanes(even0, even1);
  o[1] = even_lanes(odd0, odd1);
  o[2] = odd_lanes(even0, even1);
  o[3] = odd_lanes(odd0, odd1);
}

static inline void join_two(vf a, vf b, vf (&o)[2]) {
  o[0] = low_lanes(a, b);
  o[1] = high_lanes(a, b);
}

static inline void join_four(vf a, vf b, vf c, vf d, vf (&o)[4]) {
  const vf ac0 = low_lanes(a, c), bd0 = low_lanes(b, d), ac1 = high_lanes(a, c), bd1 = high_lanes(b, d);
  o[0] = low_lanes(ac0, bd0);
  o[1] = high_lanes(ac0, bd0);
  o[2] = low_lanes(ac1, bd1);
  o[3] = high_lanes(ac1, bd1);
}
#endif

// d[k][i] = in[i * Step + k] for a vector of i.
template <int Step>
static inline void split_phases(const float* in, vf (&d)[Step]) {
  if constexpr (Step == 1) {
    d[0] = load(in);
  } else if constexpr (Step == 2) {
    const vf a = load(in), b = load(in + L);
    d[0] = even_lanes(a, b);
    d[1] = odd_lanes(a, b);
  } else {
    split_four(load(in), load(in + L), load(in + 2 * L), load(in + 3 * L), d);
  }
}

// out[i * M + k] = in[k * distance + i], as M vectors.
template <int M>
static inline void join_phases(const float* in, long distance, vf (&v)[M]) {
  if constexpr (M == 2)
    join_two(load(in), load(in + distance), v);
  else
    join_four(load(in), load(in + distance), load(in + 2 * distance), load(in + 3 * distance), v);
}

// Columns of L rows of four: quad q of the result of quads() is the four floats at base + at[4 q].
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

// d[k][i] = base[at[i] + k] for a vector of i, k < N; N is 4 to 6. Up to 8 floats are read at each place.
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

// Tiles that follow one another by fours, at[4 q + j] = at[4 q] + j Step: lanes m L to (m + 1) L of what lies under them,
// 4 Step floats for every four.
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

// Four columns from here(0) to here(3), and some of the four after them.
template <int N, class Here, class Further>
static inline void sort_columns(const Here& here, const Further& further, vf (&d)[N]) {
  static_assert(N > 4 && N <= 8, "four columns and some of the four after them");
  vf o[4];
  split_four(here(0), here(1), here(2), here(3), o);
  for (int k = 0; k < 4; k++) d[k] = o[k];
  split_four(further(0), further(1), further(2), further(3), o);
  for (int k = 4; k < N; k++) d[k] = o[k - 4];
}

// As load_columns, for such tiles: a few whole vectors are sorted instead of many small ones put together. Up to 4 Step + 4
// floats are read at the first of every four.
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
