// Training's convolutions in float32, for AVX-512.
#include "wide.hpp"

namespace {

using namespace sanp_training;

struct Fp32 {
  typedef float Pixel, Word;
  typedef vec Words;
  static constexpr int depth = 1;

  // Tiles that are transformed together: few, which stay in the second-level cache, or more where kernels are so many that
  // fetching them takes longer.
  static int tiles(const Shape& s, int) { return s.in + s.out < 512 ? 36 : 126; }
  static long words_in_gradient(const Shape& s, int) {
    const long few = (s.in + s.out) / 4;
    return few < 32 ? 32 : few > 128 ? 128 : few;
  }

  static inline vec widened(const float* p) { return _mm512_loadu_ps(p); }
  static inline void store(float* p, vec v) { _mm512_storeu_ps(p, v); }
  static inline void store_words(float* p, const vec (&one)[1]) { _mm512_store_ps(p, one[0]); }

  static inline vec words(const float* p) { return _mm512_load_ps(p); }
  static inline vec splat(float x) { return _mm512_set1_ps(x); }
  static inline vec plus_product(vec sum, vec a, vec b) { return _mm512_fmadd_ps(a, b, sum); }
};

}  // namespace

// shape: samples, height, width, in, out_height, out_width, out, pad; kernels are channels-last. Each gives 0, or -1
// where memory ran out.
extern "C" {

int sanp_winograd_fp32_wide_usable() { return __builtin_cpu_supports("avx512f"); }

int sanp_winograd_fp32_wide_convolve(const int* shape, const float* x, const float* w, int turned, float* y, int threads) {
  Shape s;
  std::memcpy(&s, shape, sizeof s);
  return guarded([&] { convolve<Fp32>(s, x, w, turned != 0, y, threads); });
}

int sanp_winograd_fp32_wide_kernel_gradient(const int* shape, const float* x, const float* dy, float* dw, int threads) {
  Shape s;
  std::memcpy(&s, shape, sizeof s);
  return guarded([&] { kernel_gradient<Fp32>(s, x, dy, dw, threads); });
}
}
