// A vector of SANP_LANES floats, by the compiler's vector extensions, and activations of one.
#pragma once
#ifdef __AVX2__
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

// Comparisons with NaN are false, so that NaN comes out of every function below, as it does in torch. So does the second
// operand of the instructions for a minimum and a maximum.
static inline vf relu(vf x) { return choose(x < 0, vf{}, x); }
#if defined(__AVX512F__) && SANP_LANES == 16
static inline vf clip(vf x, float low, float high) {
  constexpr __mmask16 all = 0xffff;  // GCC warns of the forms without a mask
  return _mm512_mask_min_ps(x, all, splat(high), _mm512_mask_max_ps(x, all, splat(low), x));
}
#elif defined(__AVX2__) && SANP_LANES == 8
static inline vf clip(vf x, float low, float high) {
  return _mm256_min_ps(splat(high), _mm256_max_ps(splat(low), x));
}
#else
static inline vf clip(vf x, float low, float high) {
  x = choose(x < low, splat(low), x);
  return choose(x > high, splat(high), x);
}
#endif

// 1 / x to the last place or so, for numbers that are neither tiny nor huge.
#if defined(__AVX512F__) && SANP_LANES == 16
static inline vf reciprocal(vf x) {  // one step of Newton's from an estimate of fourteen bits: a division is slower
  const vf estimate = _mm512_maskz_rcp14_ps((__mmask16)0xffff, x);
  return estimate * (2.f - x * estimate);
}
#else
static inline vf reciprocal(vf x) { return 1.f / x; }
#endif

// e^x between bounds, outside of which it is that of the bound: 2^k * p(r) with x = k ln 2 + r, where p is the Taylor
// polynomial to r^6. As |r| <= 0.35, its error is about one unit in the last place. Adding 1.5 * 2^23 rounds to a whole
// number k and leaves it in the lowest bits, from where it is added to the exponent of p.
static inline vf exponential(vf x) {
  const float log2e = 1.44269504088896f, ln2 = 0.6931471805599453f, whole = 12582912.f;
  x = clip(x, -87.3f, 87.3f);
  const vf shifted = x * log2e + whole;
  const vf r = x - (shifted - whole) * ln2;
  vf p = splat(1.f / 720);
  p = p * r + 1.f / 120;
  p = p * r + 1.f / 24;
  p = p * r + 1.f / 6;
  p = p * r + .5f;
  p = p * r + 1.f;
  p = p * r + 1.f;
  typedef unsigned vu __attribute__((vector_size(L * 4)));
  vu exponent, bits;
  __builtin_memcpy(&exponent, &shifted, sizeof exponent);
  __builtin_memcpy(&bits, &p, sizeof bits);
  bits += exponent << 23;
  __builtin_memcpy(&p, &bits, sizeof p);
  return p;
}

// e^x - 1 of a number that is not above zero.
static inline vf exponential_minus_one(vf x) {
  vf series = splat(1.f / 720);  // near zero, where the difference loses digits
  series = series * x + 1.f / 120;
  series = series * x + 1.f / 24;
  series = series * x + 1.f / 6;
  series = series * x + .5f;
  series = series * x + 1.f;
  return choose(x > -.3f, x * series, exponential(x) - 1.f);
}

static inline vf sigmoid(vf x) { return reciprocal(1.f + exponential(-x)); }

// x - x is zero but for infinity, where torch has NaN or infinity too: such a sample is computed again.
static inline vf silu(vf x) { return x * sigmoid(x) + (x - x); }

// x tanh(log(1 + e^x)) = x n / (n + 2) with n = e^x (e^x + 2); beyond 20 the quotient is 1. x - x as above.
static inline vf mish(vf x) {
  const vf e = exponential(clip(x, -87.3f, 20.f)), n = e * (e + 2.f);
  return x * n * reciprocal(n + 2.f) + (x - x);
}

static inline vf hyperbolic_tangent(vf x) {
  const vf series = x * (1.f + x * x * (-1.f / 3 + x * x * (2.f / 15)));  // near zero, where `closed` loses digits
  const vf closed = 1.f - 2.f * reciprocal(exponential(2.f * x) + 1.f);
  return choose((x < .05f) & (x > -.05f), series, closed);
}

// Abramowitz and Stegun 7.1.26: absolute error below 1.5e-7.
static inline vf error_function(vf x) {
  const vf magnitude = choose(x < 0, -x, x);
  const vf t = reciprocal(1.f + .3275911f * magnitude);
  vf p = splat(1.061405429f);
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - .284496736f;
  p = p * t + .254829592f;
  const vf y = 1.f - p * t * exponential(-magnitude * magnitude);
  return choose(x < 0, -y, y);
}

static inline vf hard_sigmoid(vf x) { return clip(x + 3.f, 0.f, 6.f) * (1.f / 6); }

// Calls run(f), where f is the activation of a vector of one channel. The kind is looked at once, not for every vector.
template <class Run>
static inline void with_activation(const Activation& act, int channel, const Run& run) {
  switch (act.kind) {
    case Act::relu: return run([](vf x) { return relu(x); });
    case Act::clip: return run([&](vf x) { return clip(x, act.a, act.b); });
    case Act::leaky: return run([&](vf x) { return choose(x < 0, x * act.a, x); });
    case Act::prelu: return run([&](vf x) { return choose(x < 0, x * act.slope[channel], x); });
    case Act::silu: return run([](vf x) { return silu(x); });
    case Act::sigmoid: return run([](vf x) { return sigmoid(x); });
    case Act::tanh: return run([](vf x) { return hyperbolic_tangent(x); });
    case Act::gelu: return run([](vf x) { return .5f * x * (1.f + error_function(x * .70710678f)); });
    case Act::gelu_tanh:
      return run([](vf x) { return .5f * x * (1.f + hyperbolic_tangent(.79788456f * (x + .044715f * x * x * x))); });
    case Act::hardsigmoid: return run([](vf x) { return hard_sigmoid(x); });
    case Act::hardswish: return run([](vf x) { return x * hard_sigmoid(x); });
    case Act::mish: return run([](vf x) { return mish(x); });
    case Act::elu: return run([&](vf x) { return choose(x < 0, act.a * exponential_minus_one(x), x); });
    case Act::none:
    case Act::count: break;
  }
  run([](vf x) { return x; });
}

// The activation of a single vector.
static inline vf apply(const Activation& act, int channel, vf x) {
  with_activation(act, channel, [&](auto f) { x = f(x); });
  return x;
}

// The bounds between which a convolution clips what it writes; only these activations are part of its last step.
struct Bounds {
  float low = -__builtin_inff(), high = __builtin_inff();
};
static inline Bounds bounds_of(const Activation& act) {
  if (act.kind == Act::relu) return {0.f, __builtin_inff()};
  return act.kind == Act::clip ? Bounds{act.a, act.b} : Bounds{};
}
static inline bool is_bounds(const Activation& act) {
  return act.kind == Act::none || act.kind == Act::relu || act.kind == Act::clip;
}

}  // namespace SANP_NAMESPACE
