// int8 kernels for AVX-512 with VNNI, whose instruction adds four products of bytes.
#define SANP_NAMESPACE sanp_int8_vnni
#define SANP_TABLE byte_kernels_vnni
#define SANP_NAME "vnni"
#define SANP_LANES 16
#define SANP_REGISTERS 32
#include "table.hpp"
