// Kernels that take one plane at a time: sums, products, norms, pooling.
#pragma once
#include "activate.hpp"
#include "expand.hpp"

namespace SANP_NAMESPACE {

static void add(const float* a, const float* b, float* out, int count) {
  each(out, count, [&](int i, int n) { return take(a, i, n) + take(b, i, n); });
}

static void multiply(const float* a, const float* b, float* out, int count) {
  each(out, count, [&](int i, int n) { return take(a, i, n) * take(b, i, n); });
}

static void affine(const float* a, float scale, float shift, float* out, int count) {
  each(out, count, [&](int i, int n) { return take(a, i, n) * scale + shift; });
}

// Gives the channels of each pixel a mean of 0 and a deviation of 1, then scales and shifts them. A channel that is not
// live is zero, and counts. Threads share the pixels.
static void layer_norm(const float* scale, const float* shift, float eps, const Map& in, const Map& out, Share share) {
  constexpr int P = 4;  // vectors of pixels that go through the channels together
  const int pixels = in.pixels(), blocks = (pixels + P * L - 1) / (P * L);
  const float part = 1.f / (float)in.channels, zeros = (float)(in.channels - in.live);
  for (int n = share.from(blocks); n < share.to(blocks); n++) {
    const int first = n * P * L;
    const auto here = [&](int p) { return at_least(0, at_most(L, pixels - first - p * L)); };
    vf mean[P]{}, var[P]{};
    for (int a = 0; a < in.live; a++)
      for (int p = 0; p < P; p++) mean[p] += take(in.data + a * in.stride + first, p * L, here(p));
    for (int p = 0; p < P; p++) {
      mean[p] *= part;
      var[p] = mean[p] * mean[p] * zeros;
    }
    for (int a = 0; a < in.live; a++)
      for (int p = 0; p < P; p++) {
        const vf d = take(in.data + a * in.stride + first, p * L, here(p)) - mean[p];
        var[p] += d * d;
      }
    vf factor[P];
    for (int p = 0; p < P; p++)
      for (int i = 0; i < L; i++) factor[p][i] = 1.f / __builtin_sqrtf(var[p][i] * part + eps);
    for (int c = 0, a = 0; c < in.channels; c++) {
      const bool live = a < in.live && in.index[a] == c;
      const float* from = in.data + a * in.stride + first;
      float* to = out.data + c * out.stride + first;
      for (int p = 0; p < P; p++) {
        const int count = here(p);
        const vf x = live ? take(from, p * L, count) : vf{};
        const vf y = (x - mean[p]) * factor[p] * scale[c] + shift[c];
        if (count == L)
          store(to + p * L, y);
        else if (count > 0)
          store_first(to + p * L, y, count);
      }
      a += live;
    }
  }
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

// NaN is larger than any number, as in torch.
static inline vf larger(vf a, vf b) { return choose((b > a) | (b != b), b, a); }

// The pooling that follows the first convolution of many networks: the largest of 3x3 pixels, with stride 2.
static bool is_halving(const Pool& p) {
  const Window& w = p.window;
  return p.maximum && w.kernel_y == 3 && w.kernel_x == 3 && w.stride_y == 2 && w.stride_x == 2 && w.dilation_y == 1 &&
         w.dilation_x == 1 && w.pad_y <= 1 && w.pad_x <= 1;
}

// The largest of three rows first, then of three columns. `room` has what lies around a row too.
static void halve_plane(const Window& w, const float* plane, float* room, float* out) {
  float* row = room + L;
  const int reach = 2 * ((w.out_width + L - 1) / L * L) + L + 2;
  for (int i = -L; i < at_least(reach, w.width + L); i++) row[i] = -__builtin_inff();
  for (int y = 0; y < w.out_height; y++) {
    const int top = at_least(2 * y - w.pad_y, 0), end = at_most(2 * y - w.pad_y + 3, w.height);
    for (int x = 0; x < w.width; x += L) {
      vf v = splat(-__builtin_inff());
      for (int i = top; i < end; i++) v = larger(v, load(plane + (long)i * w.width + x));
      if (x + L <= w.width)
        store(row + x, v);
      else
        store_first(row + x, v, w.width - x);
    }
    const float* from = row - w.pad_x;
    each(out + (long)y * w.out_width, w.out_width, [&](int x, int) {
      const vf a = load(from + 2 * x), b = load(from + 2 * x + L);
      const vf c = load(from + 2 * x + 2), d = load(from + 2 * x + 2 + L);
      return larger(larger(even_lanes(a, b), odd_lanes(a, b)), even_lanes(c, d));
    });
  }
}

static void pool(const Pool& p, const Map& in, const Map& out, Scratch scratch, Share share) {
  if (is_halving(p)) {
    for (int a = share.rank; a < in.live; a += share.size)
      halve_plane(p.window, in.data + a * in.stride, scratch.floats, out.data + a * out.stride);
    return;
  }
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
