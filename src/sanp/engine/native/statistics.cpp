// Operators that look at many numbers of a plane: norms over its pixels, softmax over its rows, powers.
#include <cmath>

#include "operators.hpp"

namespace sanp {
namespace {

// The mean square of the distance from `mean`.
float variance(const float* plane, int pixels, float mean) {
  constexpr int lanes = 16;
  float sums[lanes] = {};
  int i = 0;
  for (; i + lanes <= pixels; i += lanes)
    for (int k = 0; k < lanes; k++) sums[k] += (plane[i + k] - mean) * (plane[i + k] - mean);
  for (; i < pixels; i++) sums[0] += (plane[i] - mean) * (plane[i] - mean);
  float sum = 0;
  for (float each : sums) sum += each;
  return sum / (float)pixels;
}

// Over the rows of one column of a plane after the other.
void softmax_rows(const float* from, float* to, int height, int width, bool logarithm) {
  for (int x = 0; x < width; x++) {
    float most = -INFINITY, sum = 0;
    for (int y = 0; y < height; y++) most = std::max(most, from[(long)y * width + x]);
    for (int y = 0; y < height; y++) sum += to[(long)y * width + x] = std::exp(from[(long)y * width + x] - most);
    const float log_sum = std::log(sum);
    for (int y = 0; y < height; y++) {
      float& made = to[(long)y * width + x];
      made = logarithm ? from[(long)y * width + x] - most - log_sum : made / sum;
    }
  }
}

}  // namespace

void Run::operator()(const InstanceNormOp& o) const {
  const Map& in = map(op.in[0]);
  Map& out = map(op.out);
  const Decision* d = o.gate >= 0 ? &call.workspace.decided[sample][o.gate] : nullptr;
  const int pixels = in.pixels();
  int slot = 0;
  merge(in.channels, in.index, in.live, d ? d->channel : nullptr, d ? d->live : 0, [&](int c, int from, int open) {
    if (d && open < 0) return;
    const float factor = d ? d->scale[open] : 1.f;
    float* to = out.data + slot * out.stride;
    if (mine(slot)) {
      if (from < 0) {
        fill_plane(to, factor * o.shift[c], pixels);
      } else {
        const float* plane = in.data + from * in.stride;
        const float mean = kernels().sum(plane, pixels) / (float)pixels;
        const float scale = o.scale[c] / std::sqrt(variance(plane, pixels, mean) + o.eps);
        for (int i = 0; i < pixels; i++) to[i] = factor * ((plane[i] - mean) * scale + o.shift[c]);
      }
    }
    if (first_rank()) out.index[slot] = c;
    slot++;
  });
  if (first_rank()) out.live = slot;
}

void Run::operator()(const SoftmaxOp& o) const {
  const Map& in = map(op.in[0]);
  Map& out = map(op.out);
  merge(in.channels, in.index, in.live, nullptr, 0, [&](int c, int from, int) {
    if (!mine(c)) return;
    float* to = out.data + c * out.stride;
    if (from < 0)
      fill_plane(to, o.logarithm ? -std::log((float)in.height) : 1.f / (float)in.height, in.pixels());
    else
      softmax_rows(in.data + from * in.stride, to, in.height, in.width, o.logarithm);
  });
  list_all(call, out);
}

void Run::operator()(const PowerOp& o) const {
  const Map& in = map(op.in[0]);
  Map& out = map(op.out);
  const int pixels = in.pixels();
  merge(in.channels, in.index, in.live, nullptr, 0, [&](int c, int from, int) {
    if (!mine(c)) return;
    float* to = out.data + c * out.stride;
    if (from < 0)
      fill_plane(to, std::pow(0.f, o.exponent), pixels);
    else
      for (int i = 0; i < pixels; i++) to[i] = std::pow(in.data[from * in.stride + i], o.exponent);
  });
  list_all(call, out);
}

}  // namespace sanp
