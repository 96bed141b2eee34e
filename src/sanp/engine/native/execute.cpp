// Convolutions, gates, pooling and linear layers: decides which channels to compute, and calls the kernels for them.
#include <cmath>
#include <numeric>

#include "cap.hpp"
#include "operators.hpp"

namespace sanp {

// Whether what the channels are multiplied by can be applied before the activation: s · act(y) is act(s · y) where the
// activation has no other corner than at zero and s is not negative.
static bool scales_inside(const ConvOp& o, const Decision& d) {
  if (!o.scale_after) return true;
  const Act kind = o.conv.act.kind;
  if (kind != Act::none && kind != Act::relu && kind != Act::leaky && kind != Act::prelu) return false;
  return std::all_of(d.scale, d.scale + d.live, [](float s) { return s >= 0; });
}

// The channels that a convolution computes for one sample. A channel that is not open is the residual's where that has
// it, and else constant where the activation of zero is not zero; both are written here.
Outputs Run::outputs(const ConvOp& o) const {
  const Map& in = map(op.in[0]);
  Map& out = map(op.out);
  const Map* residual = op.in.size() > 1 ? &map(op.in[1]) : nullptr;
  const Decision* d = o.gate >= 0 ? &call.workspace.decided[sample][o.gate] : nullptr;
  ChannelRoom& r = room().channels[sample];
  const bool fills = !keeps_zero(o.conv.act) && !o.scale_after;
  const bool inside = d && scales_inside(o, *d);
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
            r.scale[count] = inside ? d->scale[open] : 1.f;
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
  return {count, r.channel.data(), r.scale.data(), r.plane.data(), r.residual.data()};
}

void Run::operator()(const GateOp& o) const {
  Decision& d = call.workspace.decided[sample][o.id];
  if (first_rank()) {
    const std::vector<int>& channels = call.program.gate_channels;
    const long before = std::accumulate(channels.begin(), channels.begin() + o.id, 0L);
    const long all = std::accumulate(channels.begin() + o.id, channels.end(), before);
    const long at = (call.first + sample) * all + before;
    d.forced = call.notes.forced ? call.notes.forced + at : nullptr;
    d.score = call.notes.scores ? call.notes.scores + at : call.notes.cap ? call.workspace.ranked.data() : nullptr;
    d.lift = call.notes.lift + (call.notes.lifts ? call.notes.lifts[call.first + sample] : 0);
  }
  kernels().gate(o.gate, o.descriptor, map(op.in[0]), d, scratch(), call.share);
  if (first_rank() && call.notes.cap && !d.forced) cap_open(o, d);
  if (first_rank() && call.notes.live)
    call.notes.live[(call.first + sample) * (long)call.program.gate_channels.size() + o.id] = d.live;
}

// Closes what the cap does not allow, and counts what stays open.
void Run::cap_open(const GateOp& o, Decision& d) const {
  const Cap& cap = *call.notes.cap;
  int* counts = call.notes.counts + (call.first + sample) * cap.gates();
  const int gate = call.notes.places[o.id], most = most_open(cap, counts, gate, d.live);
  if (most < d.live) keep_best(d, d.score, o.gate.group, most);
  counts[gate] = d.live;
}

void Run::operator()(const PoolOp& o) const {
  kernels().pool(o.pool, map(op.in[0]), map(op.out), scratch(), call.share);
  list_as(call, map(op.out), map(op.in[0]));
}

void Run::operator()(const AdaptiveOp& o) const {
  const Map& in = map(op.in[0]);
  Map& out = map(op.out);
  for (int a = 0; a < in.live; a++)
    if (mine(a)) adapt(o.maximum, in.data + a * in.stride, in, out.data + a * out.stride, out);
  list_as(call, out, in);
}

void Run::adapt(bool maximum, const float* from, const Map& in, float* to, const Map& out) const {
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

namespace {

// Multiplies the channels of one sample by what its gate says, after the activation.
void scale_channels(const Call& call, const Op& op, const ConvOp& o, int sample) {
  const Run run{call, op, sample};
  const Map& out = run.map(op.out);
  const Decision& d = call.workspace.decided[sample][o.gate];
  if (scales_inside(o, d)) return;
  for (int slot = 0; slot < out.live; slot++) {
    float* plane = out.data + slot * out.stride;
    if (run.mine(slot) && d.scale[slot] != 1.f) run.kernels().affine(plane, d.scale[slot], 0.f, plane, out.pixels());
  }
}

void run_conv(const Call& call, const Op& op, const ConvOp& o) {
  const Map* in[kMostSamples];
  Outputs outputs[kMostSamples];
  for (int s = 0; s < call.samples; s++) {
    in[s] = &call.workspace.maps[s][op.in[0]];
    outputs[s] = Run{call, op, s}.outputs(o);
  }
  call.program.kernels->conv(o.conv, o.algorithm, in, outputs, call.samples, Run{call, op, 0}.scratch(), call.share);
  if (!o.scale_after || o.gate < 0) return;
  call.share.meet();  // threads may have shared the rows of a channel
  for (int s = 0; s < call.samples; s++) scale_channels(call, op, o, s);
}

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
  if (auto* c = std::get_if<ConvOp>(&op.kind)) return run_conv(call, op, *c);
  if (auto* c = std::get_if<ByteConvOp>(&op.kind)) return run_byte_conv(call, op, *c);
  if (auto* l = std::get_if<LinearOp>(&op.kind)) return run_linear(call, op, *l);
  for (int s = 0; s < call.samples; s++) std::visit(Run{call, op, s}, op.kind);
}

}  // namespace sanp
