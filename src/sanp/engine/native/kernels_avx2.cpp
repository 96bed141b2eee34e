// Kernels for AVX2 with FMA: eight lanes, sixteen vector registers.
#define SANP_NAMESPACE sanp_avx2
#define SANP_TABLE kernels_avx2
#define SANP_NAME "avx2"
#define SANP_LANES 8
#define SANP_REGISTERS 16
#include "kernels.hpp"
