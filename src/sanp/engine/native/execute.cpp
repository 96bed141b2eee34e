// What each operator does with live channels: a rule for lists of channels, and calls of the kernels for planes.
#include "execute.hpp"

#include <algorithm>
#include <cmath>
#include <thread>

namespace sanp {

void Barrier::wait() {
  if (size_ == 1) return;
  const int round = round_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; round_.load(std::memory_order_acquire) == round; spins++) {
    if (broken_.load(std::memory_order_relaxed)) throw Error("another thread of this call has failed");
    if (spins > 20000) std::this_thread::yield();
  }
}

namespace {

bool keeps_zero(const Activation& act) {
  switch (act.kind) {
    case Act::sigmoid:
    case Act::hardsigmoid: return false;
    case Act::clip: return act.a <= 0 && act.b >= 0;
    default: return true;
  }
}

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

void fill_plane(float* plane, float value, int pixels) { std::fill(plane, plane + pixels, value); }

float of_zero(const Call& call, const Activation& act, int channel, float shift = 0) {
  float y;
  call.program.kernels->activate(act, channel, &shift, &y, 1);
  return y;
}

// Walks through every channel of `out` in order. For each, `slot_a` and `slot_b` are the positions in the lists, or -1.
template <class Visit>
void merge(int channels, const int* a, int count_a, const int* b, int count_b, Visit visit) {
  for (int c = 0, i = 0, j = 0; c < channels; c++) {
    const int slot_a = i < count_a && a[i] == c ? i++ : -1;
    const int slot_b = j < count_b && b[j] == c ? j++ : -1;
    visit(c, slot_a, slot_b);
  }
}

struct Run {
  const Call& call;
  const Op& op;
  int sample;

  Map& map(int v) const { return call.workspace.maps[sample][v]; }
  const Kernels& kernels() const { return *call.program.kernels; }
  ThreadRoom& room() const { return call.workspace.rooms[call.share.rank]; }
  Scratch scratch() const { return {room().scratch.data(), room().scratch.size()}; }
  bool mine(int n) const { return n % call.share.size == call.share.rank; }
  bool first_rank() const { return call.share.rank == 0; }
  void check_finite(const float* from, long count) const {
    if (call.notes.finite && !kernels().all_finite(from, count))
      __atomic_store_n(call.notes.finite + call.first + sample, 0, __ATOMIC_RELAXED);
  }

  void operator()(const InputOp& o) const {
    Map& m = map(op.out);
    const long pixels = m.pixels(), each = m.channels * pixels;
    const float* from = call.in[o.slot] + (call.first + sample) * each;
    if (first_rank()) check_finite(from, each);
    for (int c = 0; c < m.channels; c++)
      if (mine(c)) std::copy(from + c * pixels, from + (c + 1) * pixels, m.data + c * m.stride);
    list_all(call, m);
  }

  void operator()(const OutputOp& o) const {
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

  // A channel is computed if its gate is open, copied from the residual if only that has it, and constant if the
  // activation of zero is not zero.
  void operator()(const ConvOp& o) const {
    const Map& in = map(op.in[0]);
    Map& out = map(op.out);
    const Map* residual = op.in.size() > 1 ? &map(op.in[1]) : nullptr;
    const Decision* d = o.gate >= 0 ? &call.workspace.decided[sample][o.gate] : nullptr;
    ThreadRoom& r = room();
    const bool fills = !keeps_zero(o.conv.act);
    const int pixels = out.pixels();
    const int in_group = o.conv.in_channels / o.conv.groups, out_group = o.conv.out_channels / o.conv.groups;
    int count = 0, slot = 0, reached = 0;
    merge(out.channels, d ? d->channel : nullptr, d ? d->live : 0, residual ? residual->index : nullptr,
          residual ? residual->live : 0, [&](int c, int open, int added) {
            if (!d) open = c;
            if (o.follows) {
              const int group = c / out_group;
              while (reached < in.live && in.index[reached] < group * in_group) reached++;
              if (reached == in.live || in.index[reached] >= (group + 1) * in_group) open = -1;
            }
            if (open < 0 && added < 0 && !fills) return;
            float* plane = out.data + slot * out.stride;
            const float* more = added < 0 ? nullptr : residual->data + added * residual->stride;
            if (open >= 0) {
              r.channel[count] = c;
              r.scale[count] = d ? d->scale[open] : 1.f;
              r.plane[count] = plane;
              r.residual[count++] = more;
            } else if (mine(slot)) {
              if (more)
                kernels().activate(o.conv.act, c, more, plane, pixels);
              else
                fill_plane(plane, of_zero(call, o.conv.act, c), pixels);
            }
            if (first_rank()) out.index[slot] = c;
            slot++;
          });
    if (first_rank()) out.live = slot;
    const Outputs outputs{count, r.channel.data(), r.scale.data(), r.plane.data(), r.residual.data()};
    kernels().conv(o.conv, o.algorithm, in, outputs, scratch(), call.share);
  }

  void operator()(const GateOp& o) const {
    if (!first_rank()) return;
    Decision& d = call.workspace.decided[sample][o.id];
    kernels().gate(o.gate, o.descriptor, map(op.in[0]), d, scratch());
    if (call.notes.live) call.notes.live[(call.first + sample) * (long)call.program.gate_channels.size() + o.id] = d.live;
  }

  void operator()(const PoolOp& o) const {
    kernels().pool(o.pool, map(op.in[0]), map(op.out), scratch(), call.share);
    list_as(call, map(op.out), map(op.in[0]));
  }

  void operator()(const AdaptiveOp& o) const {
    const Map& in = map(op.in[0]);
    Map& out = map(op.out);
    for (int a = 0; a < in.live; a++)
      if (mine(a)) adapt(o.maximum, in.data + a * in.stride, in, out.data + a * out.stride, out);
    list_as(call, out, in);
  }

  void adapt(bool maximum, const float* from, const Map& in, float* to, const Map& out) const {
    if (!maximum && out.pixels() == 1) {
      *to = kernels().sum(from, in.pixels()) / (float)in.pixels();
      return;
    }
    for (int y = 0; y < out.height; y++)
      for (int x = 0; x < out.width; x++) {
        const int y0 = (int)((long)y * in.height / out.height), x0 = (int)((long)x * in.width / out.width);
        const int y1 = (int)(((long)(y + 1) * in.height + out.height - 1) / out.height);
        const int x1 = (int)(((long)(x + 1) * in.width + out.width - 1) / out.width);
        float result = maximum ? -INFINITY : 0.f;
        for (int i = y0; i < y1; i++)
          for (int j = x0; j < x1; j++) {
            const float v = from[(long)i * in.width + j];
            if (!maximum)
              result += v;
            else if (v > result || v != v)
              result = v;
          }
        to[(long)y * out.width + x] = maximum ? result : result / (float)((y1 - y0) * (x1 - x0));
      }
  }

  void operator()(const ActivationOp& o) const { map_channels(o.act, nullptr, nullptr, false); }
  void operator()(const AffineOp& o) const { map_channels(o.act, o.scale, o.shift, o.fills); }

  void map_channels(const Activation& act, const float* scale, const float* shift, bool shifts) const {
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

  void operator()(const AddOp& o) const {
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

  void operator()(const MultiplyOp&) const {
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

  void operator()(const ConcatOp&) const {
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

  void operator()(const ChannelsOp& o) const {
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

  void operator()(const FlattenOp&) const {
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

  void operator()(const LinearOp&) const {}
};

void run_linear(const Call& call, const Op& op, const LinearOp& o) {
  std::vector<const Map*> in, out;
  for (int s = 0; s < call.samples; s++) {
    in.push_back(&call.workspace.maps[s][op.in[0]]);
    out.push_back(&call.workspace.maps[s][op.out]);
    list_all(call, call.workspace.maps[s][op.out]);
  }
  call.program.kernels->linear(o.linear, in.data(), out.data(), call.samples, call.share);
}

}  // namespace

void execute(const Call& call, const Op& op) {
  if (auto* l = std::get_if<LinearOp>(&op.kind)) return run_linear(call, op, *l);
  for (int s = 0; s < call.samples; s++) std::visit(Run{call, op, s}, op.kind);
}

}  // namespace sanp
