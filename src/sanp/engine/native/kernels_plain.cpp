// Kernels for any machine: four lanes, which SSE2 and NEON have.
#define SANP_NAMESPACE sanp_plain
#define SANP_TABLE kernels_plain
#define SANP_NAME "plain"
#define SANP_LANES 4
#define SANP_REGISTERS 16
#include "kernels.hpp"
