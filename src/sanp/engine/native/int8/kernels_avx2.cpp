// int8 kernels for AVX2.
#define SANP_NAMESPACE sanp_int8_avx2
#define SANP_TABLE byte_kernels_avx2
#define SANP_NAME "avx2"
#define SANP_LANES 8
#define SANP_REGISTERS 16
#include "table.hpp"
