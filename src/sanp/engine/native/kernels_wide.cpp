// The sixteen-lane kernels in AVX2 instructions, to test what AVX-512 runs on a machine without it.
#define SANP_NAMESPACE sanp_wide
#define SANP_TABLE kernels_wide
#define SANP_NAME "wide"
#define SANP_LANES 16
#define SANP_REGISTERS 32
#include "kernels.hpp"
