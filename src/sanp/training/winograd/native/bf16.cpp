// Training's convolutions in bf16, for AVX-512 with its bf16 instructions: pairs of numbers are multiplied and summed in
// float32.
#include "wide.hpp"

namespace {

using namespace sanp_training;

struct Bf16 {
  typedef std::uint16_t Pixel;
  typedef std::uint32_t Word;  // a pair, the first in the lower half
  typedef __m512bh Words;
  static constexpr int depth = 2;

  // Tiles that are transformed together; in the gradient, words of them.
  static int tiles(const Shape&, int frequencies) { return frequencies == 36 ? 36 : 96; }
  static long words_in_gradient(const Shape&, int frequencies) { return frequencies == 36 ? 64 : 128; }

  static inline vec widened(const Pixel* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
  }
  static inline __m256i narrowed(vec v) { return (__m256i)_mm512_cvtneps_pbh(v); }
  static inline void store(Pixel* p, vec v) { _mm256_storeu_si256((__m256i*)p, narrowed(v)); }
  static inline void store_words(Word* p, const vec (&pair)[2]) {
    const __m512i low = _mm512_cvtepu16_epi32(narrowed(pair[0])), high = _mm512_cvtepu16_epi32(narrowed(pair[1]));
    _mm512_store_si512(p, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }

  static inline Words words(const Word* p) { return (__m512bh)_mm512_load_si512(p); }
  static inline Words splat(Word pair) { return (__m512bh)_mm512_set1_epi32((int)pair); }
  static inline vec plus_product(vec sum, Words a, Words b) { return _mm512_dpbf16_ps(sum, a, b); }
};

}  // namespace

// shape: samples, height, width, in, out_height, out_width, out, pad; kernels are channels-last. Each gives 0, or -1
// where memory ran out.
extern "C" {

int sanp_winograd_bf16_usable() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16");
}

int sanp_winograd_bf16_convolve(const int* shape, const void* x, const float* w, int turned, void* y, int threads) {
  Shape s;
  std::memcpy(&s, shape, sizeof s);
  return guarded([&] { convolve<Bf16>(s, (const Bf16::Pixel*)x, w, turned != 0, (Bf16::Pixel*)y, threads); });
}

int sanp_winograd_bf16_kernel_gradient(const int* shape, const void* x, const void* dy, float* dw, int threads) {
  Shape s;
  std::memcpy(&s, shape, sizeof s);
  return guarded([&] { kernel_gradient<Bf16>(s, (const Bf16::Pixel*)x, (const Bf16::Pixel*)dy, dw, threads); });
}
}
