// The table of kernels of one instruction set. Each kernels_*.cpp compiles it with flags of its own.
#pragma once
#include "kernels/depthwise.hpp"
#include "kernels/gate.hpp"
#include "kernels/lanes.hpp"

namespace SANP_NAMESPACE {

static long conv_scratch(const Conv& c, Algorithm algorithm) {
  const long index = c.in_channels + 16;
  switch (algorithm) {
    case Algorithm::winograd2: return index + winograd_scratch<Winograd2>(c);
    case Algorithm::winograd4: return index + winograd_scratch<Winograd4>(c);
    case Algorithm::strided2: return index + winograd_scratch<Strided2>(c);
    case Algorithm::strided7: return index + winograd_scratch<Strided7>(c);
    case Algorithm::lanes: return index + lanes_scratch(c);
    default: return index + (is_depthwise(c) ? 0 : direct_scratch(c));
  }
}

// The first floats of the scratch are a list of channels; what the algorithm itself needs follows.
static void conv(const Conv& c, Algorithm algorithm, const Map* const* in, const Outputs* out, int samples,
                 Scratch scratch, Share share) {
  int* local = reinterpret_cast<int*>(scratch.floats);
  const long index = (c.in_channels + 15) / 16 * 16;
  scratch.floats += index;
  scratch.capacity -= index;
  scratch.common += index;
  if (algorithm == Algorithm::lanes) return convolve_lanes(c, in, out, samples, scratch, share);
  for (int s = 0; s < samples; s++) switch (algorithm) {
      case Algorithm::winograd2: winograd<Winograd2>(c, *in[s], out[s], scratch, share); break;
      case Algorithm::winograd4: winograd<Winograd4>(c, *in[s], out[s], scratch, share); break;
      case Algorithm::strided2: winograd<Strided2>(c, *in[s], out[s], scratch, share); break;
      case Algorithm::strided7: winograd<Strided7>(c, *in[s], out[s], scratch, share); break;
      default:
        if (is_depthwise(c))
          depthwise(c, *in[s], out[s], share);
        else
          direct(c, *in[s], out[s], scratch, share, local);
    }
}

}  // namespace SANP_NAMESPACE

namespace sanp {
extern const Kernels SANP_TABLE;
const Kernels SANP_TABLE = {
    SANP_NAME,
    SANP_LANES,
    SANP_NAMESPACE::conv_scratch,
    SANP_NAMESPACE::conv,
    SANP_NAMESPACE::gate,
    SANP_NAMESPACE::pool_scratch,
    SANP_NAMESPACE::pool,
    SANP_NAMESPACE::linear,
    SANP_NAMESPACE::activate,
    SANP_NAMESPACE::add,
    SANP_NAMESPACE::multiply,
    SANP_NAMESPACE::affine,
    SANP_NAMESPACE::layer_norm,
    SANP_NAMESPACE::sum,
    SANP_NAMESPACE::all_finite,
};
}  // namespace sanp
