// Runs the operators on bytes: lists the channels that a convolution computes, and calls the kernels for them.
#include <algorithm>
#include <numeric>

#include "../operators.hpp"

namespace sanp {

// The channels that a convolution computes for one sample. A channel that is not open is the residual's where that has
// it, and else constant where the activation of zero is not zero.
ByteOutputs Run::byte_outputs(const ByteConvOp& o) const {
  Map& out = map(op.out);
  const Map* residual = op.in.size() > 1 ? &map(op.in[1]) : nullptr;
  const Decision* d = o.gate >= 0 ? &call.workspace.decided[sample][o.gate] : nullptr;
  ChannelRoom& r = room().channels[sample];
  const bool fills = !keeps_zero(o.conv.act) && !o.conv.scale_after;
  const ByteCounts counts =
      residual || fills || o.follows ? list_mixed(o, d, residual, fills, r) : list_open(out.channels, d, r);
  r.passes = counts.passed;
  if (first_rank()) {
    std::copy_n(r.at.data(), counts.places, out.index);
    out.live = counts.places;
  }
  return {counts.open,    counts.places, r.channel.data(), r.scale.data(), r.place.data(),
          r.made.data(),  r.from.data(), r.at.data(),      &out,           residual};
}

// Where there is nothing but the open channels, they are all places.
ByteCounts Run::list_open(int channels, const Decision* d, ChannelRoom& r) {
  const int open = d ? d->live : channels;
  std::iota(r.place.data(), r.place.data() + open, 0);
  std::copy_n(r.place.data(), open, r.made.data());
  std::copy_n(d ? d->channel : r.place.data(), open, r.channel.data());
  std::copy_n(r.channel.data(), open, r.at.data());
  std::fill_n(r.from.data(), open, -1);
  if (d)
    std::copy_n(d->scale, open, r.scale.data());
  else
    std::fill_n(r.scale.data(), open, 1.f);
  return {open, open, 0};
}

// Masks have no pattern that a processor could foresee, so every channel is written to all lists, and the next one over it
// where it does not belong there.
ByteCounts Run::list_mixed(const ByteConvOp& o, const Decision* d, const Map* residual, bool fills, ChannelRoom& r) const {
  static constexpr int none = -1;
  static constexpr float one = 1;
  const int channels = o.conv.out_channels, decided = d ? d->live : 0, others = residual ? residual->live : 0;
  const int *opened = d ? d->channel : &none, *listed = residual ? residual->index : &none;
  const float* scales = d ? d->scale : &one;
  const int gated = d ? 1 : 0, adds = residual ? 1 : 0;  // steps through the lists, which may have one number
  int *__restrict channel = r.channel.data(), *__restrict place_of = r.place.data(), *__restrict made = r.made.data();
  int *__restrict from = r.from.data(), *__restrict at = r.at.data();
  float* __restrict scale = r.scale.data();
  Passed* __restrict passes = r.passed.data();
  int count = 0, place = 0, passed = 0, reached = 0;
  for (int c = 0, i = 0, j = 0; c < channels; c++) {
    const int chosen = (i < decided) & (opened[i * gated] == c), added = (j < others) & (listed[j * adds] == c);
    int open = chosen | (1 - gated);
    if (o.follows) open &= reaches(o.conv, c, reached);
    made[place] = open ? count : -1;
    from[place] = added ? j : -1;
    at[place] = c;
    channel[count] = c;
    scale[count] = scales[i * gated];
    place_of[count] = place;
    passes[passed] = {c, added ? j : -1, place};
    const int exists = open | added | (int)fills;
    count += open, place += exists, passed += exists & ~open;
    i += chosen, j += added;
  }
  return {count, place, passed};
}

// Whether one of the inputs of output channel c is live; those of the channels before it end at `reached` or earlier.
bool Run::reaches(const ByteConv& conv, int c, int& reached) const {
  const Map& in = map(op.in[0]);
  const int low = conv.group_of(c) * conv.group_inputs();
  while (reached < in.live && in.index[reached] < low) reached++;
  return reached < in.live && in.index[reached] < low + conv.group_inputs();
}

// Whether one of the channels in the plane of a place is computed.
static bool is_made(const ByteOutputs& out, int place) {
  const int first = place / kQuad * kQuad, last = std::min(first + kQuad, out.places);
  return std::any_of(out.made + first, out.made + last, [](int number) { return number >= 0; });
}

// Writes the channels that are not computed. A plane of bytes belongs to one thread; where one of its channels is
// computed, the kernel has written all of them.
void Run::pass_closed(const ByteConvOp& o, const ByteOutputs& made) const {
  const ChannelRoom& r = room().channels[sample];
  for (int n = 0; n < r.passes; n++) {
    const Passed& p = r.passed[n];
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

void Run::operator()(const ByteAverageOp& o) const {
  const Map& in = map(op.in[0]);
  for (int n = 0; n < quads(in.live); n++)
    if (mine(n)) call.program.byte_kernels->average(o.average, in, map(op.out), n, room().scratch.data());
  list_as(call, map(op.out), in);
}

// Where a channel of a combination reads at one sample; whether any of its inputs is live. `places` has of every input
// the places of its channels, -1 for those that are not live.
static bool byte_sum(const ByteCombineOp& o, int channel, const std::vector<std::vector<int>>& places,
                     const Map* const* in, const float* nowhere, ByteSum& sum) {
  bool any = false;
  sum.channel = channel;
  sum.shift = o.rounding.steps ? o.rounding.out_zero : 0.f;
  for (int t = 0; t < kByteTerms; t++) {
    const ByteTerm& term = o.terms[channel * kByteTerms + t];
    const int place = term.input < 0 ? -1 : places[term.input][term.channel];
    sum.factor[t] = place < 0 ? 0.f : o.units[term.input];
    sum.plane[t] = place < 0 ? nowhere : in[term.input]->data + place / kQuad * in[term.input]->stride;
    sum.bits[t] = 8 * (std::max(place, 0) % kQuad);
    if (place >= 0) sum.shift -= (float)o.zeros[term.input] * o.units[term.input];
    any |= place >= 0;
  }
  return any;
}

void Run::operator()(const ByteCombineOp& o) const {
  Map& out = map(op.out);
  const bool fills = !keeps_zero(o.rounding.act);
  std::vector<const Map*> in;
  std::vector<std::vector<int>> places;
  for (int v : op.in) {
    in.push_back(&map(v));
    places.emplace_back(in.back()->channels, -1);
    for (int a = 0; a < in.back()->live; a++) places.back()[in.back()->index[a]] = a;
  }
  ByteSum sums[kQuad];
  int place = 0;
  const auto write = [&](int count) {  // the channels of the last plane
    const int plane = (place - 1) / kQuad;
    if (mine(plane)) call.program.byte_kernels->combine(o.rounding, sums, count, out.data + plane * out.stride, out.pixels());
  };
  for (int c = 0; c < out.channels; c++) {
    const float* nowhere = out.data + place / kQuad * out.stride;  // bytes that no factor lets through
    if (!byte_sum(o, c, places, in.data(), nowhere, sums[place % kQuad]) && !fills) continue;
    if (first_rank()) out.index[place] = c;
    if (++place % kQuad == 0) write(kQuad);
  }
  if (place % kQuad) write(place % kQuad);
  if (first_rank()) out.live = place;
}

}  // namespace sanp
