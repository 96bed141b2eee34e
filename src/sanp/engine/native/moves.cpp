// Operators that only move numbers: inputs, outputs, concatenation, choices of channels, flattening.
#include "operators.hpp"

namespace sanp {

void list_all(const Call& call, Map& m) {
  if (call.share.rank != 0) return;
  m.live = m.channels;
  for (int c = 0; c < m.channels; c++) m.index[c] = c;
}

void list_as(const Call& call, Map& to, const Map& from) {
  if (call.share.rank != 0) return;
  to.live = from.live;
  std::copy(from.index, from.index + from.live, to.index);
}

void Run::operator()(const InputOp& o) const {
  Map& m = map(op.out);
  const long pixels = m.pixels(), each = m.channels * pixels;
  const float* from = call.in[o.slot] + (call.first + sample) * each;
  if (first_rank()) check_finite(from, each);
  for (int c = 0; c < m.channels; c++)
    if (mine(c)) std::copy(from + c * pixels, from + (c + 1) * pixels, m.data + c * m.stride);
  list_all(call, m);
}

void Run::operator()(const OutputOp& o) const {
  const Map& m = map(op.in[0]);
  const long pixels = m.pixels();
  float* to = call.out[o.slot] + (call.first + sample) * m.channels * pixels;
  merge(m.channels, m.index, m.live, nullptr, 0, [&](int c, int slot, int) {
    if (!mine(c)) return;
    if (slot < 0)
      fill_plane(to + c * pixels, 0, (int)pixels);
    else
      std::copy(m.data + slot * m.stride, m.data + slot * m.stride + pixels, to + c * pixels);
    if (slot >= 0) check_finite(to + c * pixels, pixels);
  });
}

void Run::operator()(const ConcatOp&) const {
  Map& out = map(op.out);
  int slot = 0, base = 0;
  for (int v : op.in) {
    const Map& m = map(v);
    for (int a = 0; a < m.live; a++, slot++) {
      if (mine(slot)) std::copy_n(m.data + a * m.stride, m.pixels(), out.data + slot * out.stride);
      if (first_rank()) out.index[slot] = base + m.index[a];
    }
    base += m.channels;
  }
  if (first_rank()) out.live = slot;
}

void Run::operator()(const ChannelsOp& o) const {
  const Map& in = map(op.in[0]);
  Map& out = map(op.out);
  std::vector<int> slot_of(in.channels, -1);
  for (int a = 0; a < in.live; a++) slot_of[in.index[a]] = a;
  int slot = 0;
  for (int c = 0; c < out.channels; c++) {
    const int from = slot_of[o.source[c]];
    if (from < 0) continue;
    if (mine(slot)) std::copy_n(in.data + from * in.stride, in.pixels(), out.data + slot * out.stride);
    if (first_rank()) out.index[slot] = c;
    slot++;
  }
  if (first_rank()) out.live = slot;
}

void Run::operator()(const FlattenOp&) const {
  if (!first_rank()) return;
  const Map& in = map(op.in[0]);
  Map& out = map(op.out);
  const int pixels = in.pixels();
  for (int a = 0; a < in.live; a++)
    for (int i = 0; i < pixels; i++) {
      out.data[a * pixels + i] = in.data[a * in.stride + i];
      out.index[a * pixels + i] = in.index[a] * pixels + i;
    }
  out.live = in.live * pixels;
}

}  // namespace sanp
