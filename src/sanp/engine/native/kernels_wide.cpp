// The sixteen-lane kernels in AVX2 instructions: for testing the logic of AVX-512 on a machine that has none.
#define SANP_NAMESPACE sanp_wide
#define SANP_TABLE kernels_wide
#define SANP_NAME "wide"
#define SANP_LANES 16
#define SANP_REGISTERS 32
#include "kernels.hpp"
