// Runs the operators on bytes: lists the channels that a convolution computes, and calls the kernels for them.
#include <algorithm>

#include "../operators.hpp"

namespace sanp {

// The channels that a convolution computes for one sample. A channel that is not open is the residual's where that has
// it, and else constant where the activation of zero is not zero.
ByteOutputs Run::byte_outputs(const ByteConvOp& o) const {
  Map& out = map(op.out);
  const Map* residual = op.in.size() > 1 ? &map(op.in[1]) : nullptr;
  const Decision* d = o.gate >= 0 ? &call.workspace.decided[sample][o.gate] : nullptr;
  const Map& in = map(op.in[0]);
  ChannelRoom& r = room().channels[sample];
  const bool fills = !keeps_zero(o.conv.act) && !o.conv.scale_after;
  int count = 0, place = 0, reached = 0;
  r.passed.clear();
  merge(out.channels, d ? d->channel : nullptr, d ? d->live : 0, residual ? residual->index : nullptr,
        residual ? residual->live : 0, [&](int c, int open, int added) {
          if (!d) open = c;
          if (o.follows) {
            const int low = o.conv.group_of(c) * o.conv.group_inputs();
            while (reached < in.live && in.index[reached] < low) reached++;
            if (reached == in.live || in.index[reached] >= low + o.conv.group_inputs()) open = -1;
          }
          if (open < 0 && added < 0 && !fills) return;
          r.made[place] = open >= 0 ? count : -1;
          r.from[place] = added;
          r.at[place] = c;
          if (open >= 0) {
            r.channel[count] = c;
            r.scale[count] = d ? d->scale[open] : 1.f;
            r.place[count++] = place;
          } else {
            r.passed.push_back({c, added, place});
          }
          if (first_rank()) out.index[place] = c;
          place++;
        });
  if (first_rank()) out.live = place;
  return {count,          place,         r.channel.data(), r.scale.data(), r.place.data(),
          r.made.data(),  r.from.data(), r.at.data(),      &out,           residual};
}

// Whether one of the channels in the plane of a place is computed.
static bool is_made(const ByteOutputs& out, int place) {
  const int first = place / kQuad * kQuad, last = std::min(first + kQuad, out.places);
  return std::any_of(out.made + first, out.made + last, [](int number) { return number >= 0; });
}

// Writes the channels that are not computed. A plane of bytes belongs to one thread; where one of its channels is
// computed, the kernel has written all of them.
void Run::pass_closed(const ByteConvOp& o, const ByteOutputs& made) const {
  for (const Passed& p : room().channels[sample].passed) {
    if (!mine(p.place / kQuad) || (o.conv.to_bytes && is_made(made, p.place))) continue;
    float* plane = made.out->data + p.place * made.out->stride;
    if (o.conv.to_bytes)
      call.program.byte_kernels->pass(o.conv, p.channel, made.residual, p.from, *made.out, p.place);
    else if (p.from >= 0)
      kernels().activate(o.conv.act, p.channel, made.residual->data + p.from * made.residual->stride, plane,
                         made.out->pixels());
    else
      fill_plane(plane, of_zero(call, o.conv.act, p.channel), made.out->pixels());
  }
}

void run_byte_conv(const Call& call, const Op& op, const ByteConvOp& o) {
  const Map* in[kMostSamples];
  ByteOutputs outputs[kMostSamples];
  for (int s = 0; s < call.samples; s++) {
    in[s] = &call.workspace.maps[s][op.in[0]];
    outputs[s] = Run{call, op, s}.byte_outputs(o);
  }
  call.program.byte_kernels->conv(o.conv, in, outputs, call.samples, Run{call, op, 0}.scratch(), call.share);
  for (int s = 0; s < call.samples; s++) Run{call, op, s}.pass_closed(o, outputs[s]);
}

void Run::operator()(const QuantiseOp& o) const {
  const Map& in = map(op.in[0]);
  for (int n = 0; n < quads(in.live); n++)
    if (mine(n)) call.program.byte_kernels->quantise(in, o.scale, map(op.out), n);
  list_as(call, map(op.out), in);
}

void Run::operator()(const DequantiseOp& o) const {
  const Map& in = map(op.in[0]);
  for (int n = 0; n < quads(in.live); n++)
    if (mine(n)) call.program.byte_kernels->dequantise(in, o.scale, map(op.out), n);
  list_as(call, map(op.out), in);
}

void Run::operator()(const ByteMeanOp& o) const {
  const Map& in = map(op.in[0]);
  for (int n = 0; n < quads(in.live); n++)
    if (mine(n)) call.program.byte_kernels->mean(in, o.scale, map(op.out), n);
  list_as(call, map(op.out), in);
}

void Run::operator()(const BytePoolOp& o) const {
  const Map& in = map(op.in[0]);
  for (int n = 0; n < quads(in.live); n++)
    if (mine(n)) call.program.byte_kernels->pool(o.window, in, map(op.out), n, room().scratch.data());
  list_as(call, map(op.out), in);
}

}  // namespace sanp
