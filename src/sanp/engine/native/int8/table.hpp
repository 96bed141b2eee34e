// The table of int8 kernels of one instruction set. Each kernels_*.cpp compiles it with flags of its own.
#pragma once
#include "planes.hpp"

namespace sanp {
extern const ByteKernels SANP_TABLE;
const ByteKernels SANP_TABLE = {
    SANP_NAME,
    SANP_NAMESPACE::byte_conv_scratch,
    SANP_NAMESPACE::byte_conv,
    SANP_NAMESPACE::pass,
    SANP_NAMESPACE::quantise,
    SANP_NAMESPACE::dequantise,
    SANP_NAMESPACE::mean,
    SANP_NAMESPACE::pool_scratch,
    SANP_NAMESPACE::pool,
    SANP_NAMESPACE::average,
    SANP_NAMESPACE::combine,
};
}  // namespace sanp
