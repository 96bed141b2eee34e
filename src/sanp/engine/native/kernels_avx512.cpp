// Kernels for AVX-512: sixteen lanes, thirty-two vector registers.
#define SANP_NAMESPACE sanp_avx512
#define SANP_TABLE kernels_avx512
#define SANP_NAME "avx512"
#define SANP_LANES 16
#define SANP_REGISTERS 32
#include "kernels.hpp"
