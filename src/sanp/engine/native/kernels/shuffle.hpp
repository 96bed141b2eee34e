// Sorts the elements of vectors by phase, element i * Step + k to vector k, and puts them together again. Strides and
// tiles are read and written so.
#pragma once
#include "vec.hpp"

namespace SANP_NAMESPACE {

#if defined(SANP_SHUFFLE) && SANP_LANES == 8
// Eight lanes are shuffled within halves of a register first and across them once: half as many instructions as below.
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

}  // namespace SANP_NAMESPACE
