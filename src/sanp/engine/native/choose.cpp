// Which kernels a program gets: the fastest that this processor can run, or those that are asked for by name.
#include <algorithm>

#include "program.hpp"

namespace sanp {

extern const Kernels kernels_plain;
extern const ByteKernels byte_kernels_plain;
#ifdef SANP_WITH_AVX2
extern const Kernels kernels_avx2;
extern const ByteKernels byte_kernels_avx2;
#endif
#ifdef SANP_WITH_AVX512
extern const Kernels kernels_avx512;
extern const ByteKernels byte_kernels_vnni, byte_kernels_vnni_vbmi;
#endif
#ifdef SANP_WITH_WIDE
extern const Kernels kernels_wide;
#endif

namespace {

// The kernels that this processor can run, the fastest first.
std::vector<ChosenKernels> usable_kernels() {
  std::vector<ChosenKernels> found;
#ifdef SANP_WITH_AVX512
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma")) {
    const bool vnni = __builtin_cpu_supports("avx512vnni");
    if (vnni && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2"))
      found.push_back({&kernels_avx512, &byte_kernels_vnni_vbmi});
    found.push_back({&kernels_avx512, vnni ? &byte_kernels_vnni : &byte_kernels_avx2});
  }
#endif
#ifdef SANP_WITH_AVX2
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    found.push_back({&kernels_avx2, &byte_kernels_avx2});
#ifdef SANP_WITH_WIDE
    found.push_back({&kernels_wide, &byte_kernels_avx2});
#endif
  }
#endif
  found.push_back({&kernels_plain, &byte_kernels_plain});
  return found;
}

}  // namespace

ChosenKernels best_kernels() { return usable_kernels().front(); }

ChosenKernels kernels_named(const std::string& name) {
  ChosenKernels chosen{};
  std::vector<std::string> names;
  int best = 0;
  for (const ChosenKernels& usable : usable_kernels()) {
    const int fits = 2 * (name == usable.floats->name) + (name == usable.bytes->name);
    if (fits > best) best = fits, chosen = usable;
    for (const std::string offered : {usable.floats->name, usable.bytes->name})
      if (std::find(names.begin(), names.end(), offered) == names.end()) names.push_back(offered);
  }
  if (best > 0) return chosen;
  std::string known;
  for (const std::string& offered : names) known += (known.empty() ? "" : ", ") + offered;
  throw Error("SANP_ISA is " + name + ": choose one of " + known);
}

}  // namespace sanp
