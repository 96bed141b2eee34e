// Which int8 kernels run beside the other kernels of a program.
#include <string>

#include "bytes.hpp"

namespace sanp {

extern const ByteKernels byte_kernels_plain;
#ifdef SANP_WITH_AVX2
extern const ByteKernels byte_kernels_avx2;
#endif
#ifdef SANP_WITH_AVX512
extern const ByteKernels byte_kernels_vnni;
#endif

const ByteKernels* byte_kernels_beside(const Kernels& kernels) {
  const std::string name = kernels.name;
#ifdef SANP_WITH_AVX512
  if (name == "avx512" && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi") &&
      __builtin_cpu_supports("avx512vbmi2"))
    return &byte_kernels_vnni;
#endif
#ifdef SANP_WITH_AVX2
  if (name != "plain") return &byte_kernels_avx2;
#endif
  return &byte_kernels_plain;
}

}  // namespace sanp
