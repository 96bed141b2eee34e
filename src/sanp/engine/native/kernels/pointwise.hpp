// Kernels that take one plane at a time: activations, sums, products, pooling.
#pragma once
#include "expand.hpp"

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
  each(out, count, [&](int i, int n) { return apply(act, channel, take(in, i, n)); });
}

static void add(const float* a, const float* b, float* out, int count) {
  each(out, count, [&](int i, int n) { return take(a, i, n) + take(b, i, n); });
}

static void multiply(const float* a, const float* b, float* out, int count) {
  each(out, count, [&](int i, int n) { return take(a, i, n) * take(b, i, n); });
}

static void affine(const float* a, float scale, float shift, float* out, int count) {
  each(out, count, [&](int i, int n) { return take(a, i, n) * scale + shift; });
}

static float sum(const float* a, int count) {
  vf s0{}, s1{}, s2{}, s3{};
  int i = 0;
  for (; i + 4 * L <= count; i += 4 * L) {
    s0 += load(a + i);
    s1 += load(a + i + L);
    s2 += load(a + i + 2 * L);
    s3 += load(a + i + 3 * L);
  }
  for (; i + L <= count; i += L) s0 += load(a + i);
  if (i < count) s1 += load_first(a + i, count - i);
  return sum_lanes((s0 + s1) + (s2 + s3));
}

static float sum_absolute(const float* a, int count) {
  vf s{};
  for (int i = 0; i < count; i += L) {
    const vf x = take(a, i, at_most(L, count - i));
    s += choose(x < 0, -x, x);
  }
  return sum_lanes(s);
}

// x - x is zero for a finite x and NaN for all others, so that the sum is zero only if every number is finite.
static bool all_finite(const float* a, long count) {
  vf s{};
  long i = 0;
  for (; i + L <= count; i += L) {
    const vf x = load(a + i);
    s += x - x;
  }
  float rest = sum_lanes(s);
  for (; i < count; i++) rest += a[i] - a[i];
  return rest == 0;
}

static long pool_scratch(const Pool& p) {
  const Window& w = p.window;
  return plan_copies(w, 0, w.out_height).channel + 4 * L;
}

template <bool Maximum>
static void pool_plane(const Pool& p, const Copies& copies, const float* room, float* out) {
  const Window& w = p.window;
  each(out, w.out_height * w.out_width, [&](int i, int n) {
    vf result = Maximum ? splat(-__builtin_inff()) : vf{};
    for (int y = 0; y < w.kernel_y; y++)
      for (int x = 0; x < w.kernel_x; x++) {
        const vf v = load(room + tap_offset(w, copies, y, x) + i);
        result = Maximum ? choose((v > result) | (v != v), v, result) : result + v;
      }
    return Maximum ? result : result * take(p.inverse, i, n);
  });
}

static void pool(const Pool& p, const Map& in, const Map& out, Scratch scratch, Share share) {
  const Copies copies = plan_copies(p.window, 0, p.window.out_height);
  for (int a = share.rank; a < in.live; a += share.size) {
    expand_plane(p.window, copies, in.data + a * in.stride, scratch.floats, p.maximum ? -__builtin_inff() : 0.f);
    float* to = out.data + a * out.stride;
    if (p.maximum)
      pool_plane<true>(p, copies, scratch.floats, to);
    else
      pool_plane<false>(p, copies, scratch.floats, to);
  }
}

}  // namespace SANP_NAMESPACE
