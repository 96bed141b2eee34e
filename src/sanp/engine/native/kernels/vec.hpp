// A vector of SANP_LANES floats, by the compiler's vector extensions, and activations of one.
#pragma once
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "../layout.hpp"

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SANP_SHUFFLE(...) __builtin_shufflevector(__VA_ARGS__)
#endif
#endif

namespace SANP_NAMESPACE {

using namespace sanp;

constexpr int L = SANP_LANES;
typedef float vf __attribute__((vector_size(L * 4)));
typedef int vi __attribute__((vector_size(L * 4)));
typedef float vf_unaligned __attribute__((vector_size(L * 4), aligned(4), may_alias));

static inline vf load(const float* p) { return *reinterpret_cast<const vf_unaligned*>(p); }
static inline void store(float* p, vf v) { *reinterpret_cast<vf_unaligned*>(p) = v; }
static inline vf splat(float x) { return x - vf{}; }  // x in every lane
static inline vf choose(vi mask, vf yes, vf no) { return mask ? yes : no; }

// Loads or stores `count` floats, fewer than a vector, and touches no others. Lanes that are not loaded are zero.
#ifdef __AVX512F__
static inline __mmask16 first(int count) { return (__mmask16)((1u << count) - 1); }
static inline vf load_first(const float* p, int count) { return _mm512_maskz_loadu_ps(first(count), p); }
static inline void store_first(float* p, vf v, int count) { _mm512_mask_storeu_ps(p, first(count), v); }
#else
static inline vf load_first(const float* p, int count) {
  vf v{};
  for (int i = 0; i < count; i++) v[i] = p[i];
  return v;
}
static inline void store_first(float* p, vf v, int count) {
  for (int i = 0; i < count; i++) p[i] = v[i];
}
#endif

// Loads the lanes of a mask and touches no others, which are zero.
#ifdef __AVX512F__
static inline vf load_lanes(const float* p, unsigned mask) { return _mm512_maskz_loadu_ps((__mmask16)mask, p); }
#else
static inline vf load_lanes(const float* p, unsigned mask) {
  vf v{};
  for (int i = 0; i < L; i++)
    if (mask >> i & 1) v[i] = p[i];
  return v;
}
#endif

// The first `count` lanes of v, and zeros.
static inline vf first_lanes(vf v, int count) {
  vi lane;
  for (int i = 0; i < L; i++) lane[i] = i;
  return choose(lane < count, v, vf{});
}

#if defined(SANP_SHUFFLE) && SANP_LANES == 16
static inline float sum_lanes(vf v) {  // adds halves four times: a chain of sixteen additions is slower
  v += SANP_SHUFFLE(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  v += SANP_SHUFFLE(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
  v += SANP_SHUFFLE(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  v += SANP_SHUFFLE(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  return v[0];
}
#else
static inline float sum_lanes(vf v) {
  float s = 0;
  for (int i = 0; i < L; i++) s += v[i];
  return s;
}
#endif

// Comparisons with NaN are false, so that NaN comes out of every function below, as it does in torch.
static inline vf relu(vf x) { return choose(x < 0, vf{}, x); }
static inline vf clip(vf x, float low, float high) {
  x = choose(x < low, splat(low), x);
  return choose(x > high, splat(high), x);
}

// 2^k * p(r) with x = k ln 2 + r, where p is the Taylor polynomial to r^7. As |r| <= 0.35, its error is less than one
// unit in the last place.
static inline vf exponential(vf x) {
  const float log2e = 1.44269504088896f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  const vf bounded = clip(x, -87.3f, 88.3f);
  const vi not_a_number = x != x;
  const vf scaled = choose(not_a_number, vf{}, bounded * log2e);
  const vi k = __builtin_convertvector(scaled + choose(scaled < 0, splat(-.5f), splat(.5f)), vi);
  const vf kf = __builtin_convertvector(k, vf);
  const vf r = (bounded - kf * ln2_high) - kf * ln2_low;
  vf p = splat(1.f / 5040);
  p = p * r + 1.f / 720;
  p = p * r + 1.f / 120;
  p = p * r + 1.f / 24;
  p = p * r + 1.f / 6;
  p = p * r + .5f;
  p = p * r + 1.f;
  p = p * r + 1.f;
  const vi bits = (k + 127) << 23;
  vf power;
  __builtin_memcpy(&power, &bits, sizeof power);
  vf y = p * power;
  y = choose(x < -103.f, vf{}, y);
  y = choose(x > 88.72f, splat(__builtin_inff()), y);
  return choose(not_a_number, x, y);
}

static inline vf sigmoid(vf x) { return 1.f / (1.f + exponential(-x)); }

static inline vf hyperbolic_tangent(vf x) {
  const vf series = x * (1.f + x * x * (-1.f / 3 + x * x * (2.f / 15)));  // near zero, where `closed` loses digits
  const vf closed = 1.f - 2.f / (exponential(2.f * x) + 1.f);
  return choose((x < .05f) & (x > -.05f), series, closed);
}

// Abramowitz and Stegun 7.1.26: absolute error below 1.5e-7.
static inline vf error_function(vf x) {
  const vf magnitude = choose(x < 0, -x, x);
  const vf t = 1.f / (1.f + .3275911f * magnitude);
  vf p = splat(1.061405429f);
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - .284496736f;
  p = p * t + .254829592f;
  const vf y = 1.f - p * t * exponential(-magnitude * magnitude);
  return choose(x < 0, -y, y);
}

static inline vf hard_sigmoid(vf x) { return clip(x + 3.f, 0.f, 6.f) / 6.f; }

static inline vf apply(const Activation& act, int channel, vf x) {
  switch (act.kind) {
    case Act::relu: return relu(x);
    case Act::clip: return clip(x, act.a, act.b);
    case Act::leaky: return choose(x < 0, x * act.a, x);
    case Act::prelu: return choose(x < 0, x * act.slope[channel], x);
    case Act::silu: return x * sigmoid(x);
    case Act::sigmoid: return sigmoid(x);
    case Act::tanh: return hyperbolic_tangent(x);
    case Act::gelu: return .5f * x * (1.f + error_function(x * .70710678f));
    case Act::gelu_tanh: return .5f * x * (1.f + hyperbolic_tangent(.79788456f * (x + .044715f * x * x * x)));
    case Act::hardsigmoid: return hard_sigmoid(x);
    case Act::hardswish: return x * hard_sigmoid(x);
    case Act::elu: return choose(x < 0, act.a * (exponential(x) - 1.f), x);
    case Act::none:
    case Act::count: break;
  }
  return x;
}

}  // namespace SANP_NAMESPACE
