// int8 kernels for AVX-512 with VNNI, and with VBMI and VBMI2, whose instructions put bytes in another order.
#define SANP_NAMESPACE sanp_int8_vnni_vbmi
#define SANP_TABLE byte_kernels_vnni_vbmi
#define SANP_NAME "vnni_vbmi"
#define SANP_LANES 16
#define SANP_REGISTERS 32
#include "table.hpp"
