// Activations of planes.
#pragma once
#include "vec.hpp"

namespace SANP_NAMESPACE {

// Writes f(i, n) to out[i] for whole vectors of i; n is how many lanes count, all but at the end.
template <class Function>
static inline void each(float* out, int count, Function f) {
  int i = 0;
  for (; i + L <= count; i += L) store(out + i, f(i, L));
  if (i < count) store_first(out + i, f(i, count - i), count - i);
}

// A vector from p[i] on, of which `count` lanes count.
static inline vf take(const float* p, int i, int count) { return count == L ? load(p + i) : load_first(p + i, count); }

static void activate(const Activation& act, int channel, const float* in, float* out, int count) {
  with_activation(act, channel, [&](auto f) { each(out, count, [&](int i, int n) { return f(take(in, i, n)); }); });
}

// One pixel of each plane: the lanes are planes.
static void activate_one(const Activation& act, float* const* plane, int planes, long at) {
  float values[L];
  for (int j = 0; j < planes; j += L) {
    const int here = planes - j < L ? planes - j : L;
    for (int i = 0; i < here; i++) values[i] = plane[j + i][at];
    activate(act, 0, values, values, here);
    for (int i = 0; i < here; i++) plane[j + i][at] = values[i];
  }
}

// Pixels [first, first + count) of some planes that a convolution has written, if its activation is none that it has
// applied itself. They should still be in the first-level cache.
static inline void activate_written(const Activation& act, const int* channel, float* const* plane, int planes,
                                    long first, int count) {
  if (is_bounds(act)) return;
  if (count == 1 && act.kind != Act::prelu) return activate_one(act, plane, planes, first);
  for (int j = 0; j < planes; j++) activate(act, channel[j], plane[j] + first, plane[j] + first, count);
}

}  // namespace SANP_NAMESPACE
