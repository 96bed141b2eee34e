// int8 kernels for any processor.
#define SANP_NAMESPACE sanp_int8_plain
#define SANP_TABLE byte_kernels_plain
#define SANP_NAME "plain"
#define SANP_LANES 4
#define SANP_REGISTERS 16
#include "table.hpp"
