// Operators that take the live channels one by one: activations, affine maps, sums and products.
#include "operators.hpp"

namespace sanp {

bool keeps_zero(const Activation& act) {
  switch (act.kind) {
    case Act::sigmoid:
    case Act::hardsigmoid: return false;
    case Act::clip: return act.a <= 0 && act.b >= 0;
    default: return true;
  }
}

float of_zero(const Call& call, const Activation& act, int channel, float shift) {
  float y;
  call.program.kernels->activate(act, channel, &shift, &y, 1);
  return y;
}

void Run::map_channels(const Activation& act, const float* scale, const float* shift, bool shifts) const {
  const Map& in = map(op.in[0]);
  Map& out = map(op.out);
  const bool fills = shifts || !keeps_zero(act);
  const int pixels = in.pixels();
  int slot = 0;
  merge(in.channels, in.index, in.live, nullptr, 0, [&](int c, int from, int) {
    if (from < 0 && !fills) return;
    float* to = out.data + slot * out.stride;
    if (mine(slot)) {
      if (from < 0) {
        fill_plane(to, of_zero(call, act, c, shift ? shift[c] : 0.f), pixels);
      } else {
        const float* plane = in.data + from * in.stride;
        if (scale) kernels().affine(plane, scale[c], shift[c], to, pixels), plane = to;
        if (act.kind != Act::none || plane != to) kernels().activate(act, c, plane, to, pixels);
      }
    }
    if (first_rank()) out.index[slot] = c;
    slot++;
  });
  if (first_rank()) out.live = slot;
}

void Run::operator()(const AddOp& o) const {
  const Map &a = map(op.in[0]), &b = map(op.in[1]);
  Map& out = map(op.out);
  const bool fills = !keeps_zero(o.act);
  const int pixels = a.pixels();
  int slot = 0;
  merge(a.channels, a.index, a.live, b.index, b.live, [&](int c, int i, int j) {
    if (i < 0 && j < 0 && !fills) return;
    float* to = out.data + slot * out.stride;
    if (mine(slot)) {
      const float* one = i >= 0 ? a.data + i * a.stride : j >= 0 ? b.data + j * b.stride : nullptr;
      if (i >= 0 && j >= 0) kernels().add(one, b.data + j * b.stride, to, pixels), one = to;
      if (!one)
        fill_plane(to, of_zero(call, o.act, c), pixels);
      else if (o.act.kind != Act::none || one != to)
        kernels().activate(o.act, c, one, to, pixels);
    }
    if (first_rank()) out.index[slot] = c;
    slot++;
  });
  if (first_rank()) out.live = slot;
}

void Run::operator()(const LayerNormOp& o) const {
  kernels().layer_norm(o.scale, o.shift, o.eps, map(op.in[0]), map(op.out), call.share);
  list_all(call, map(op.out));
}

void Run::operator()(const MultiplyOp&) const {
  const Map &a = map(op.in[0]), &b = map(op.in[1]);
  Map& out = map(op.out);
  const int pixels = a.pixels();
  int slot = 0;
  merge(a.channels, a.index, a.live, b.index, b.live, [&](int c, int i, int j) {
    if (i < 0 || j < 0) return;
    const float *x = a.data + i * a.stride, *y = b.data + j * b.stride;
    float* to = out.data + slot * out.stride;
    if (mine(slot)) {
      if (b.pixels() == pixels)
        kernels().multiply(x, y, to, pixels);
      else
        kernels().affine(x, *y, 0.f, to, pixels);
    }
    if (first_rank()) out.index[slot] = c;
    slot++;
  });
  if (first_rank()) out.live = slot;
}

}  // namespace sanp
