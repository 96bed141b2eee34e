// Which weights are fetched ahead. A gate or a linear layer multiplies every weight once, and waits for memory; a
// convolution with windows of one pixel multiplies each many times, and could fetch meanwhile what comes next.
#include <algorithm>

#include "program.hpp"

namespace sanp {

namespace {

constexpr long kMost = 96L << 10;  // floats: what of a second-level cache a convolution itself leaves free

// Computes for long enough to fetch something.
bool fetches(const ConvOp& op) {
  const Window& w = op.conv.window;
  return op.algorithm == Algorithm::direct && w.taps() == 1 && op.conv.groups == 1 && w.out_height * w.out_width > 1;
}

void add(std::vector<Stretch>& to, long& room, const float* data, long floats) {
  const long taken = std::min(floats, room);
  if (taken > 0) to.push_back({data, taken});
  room -= taken;
}

void add_weights(std::vector<Stretch>& to, long& room, const Op& op) {
  if (auto* c = std::get_if<ConvOp>(&op.kind)) {
    const Weights& weights = c->conv.of(c->algorithm);
    add(to, room, weights.data, c->conv.out_channels * weights.row);
  } else if (auto* g = std::get_if<GateOp>(&op.kind)) {
    add(to, room, g->gate.w1, (long)g->gate.in_channels * g->gate.hidden);
    add(to, room, g->gate.w2, (long)g->gate.hidden * g->gate.out_channels);
  } else if (auto* l = std::get_if<LinearOp>(&op.kind)) {
    add(to, room, l->linear.weight, (long)l->linear.in_features * l->linear.out_features);
  }
}

}  // namespace

void plan_ahead(Program& p) {
  p.ahead.assign(p.ops.size(), {});
  for (size_t i = 0; i < p.ops.size(); i++) {
    auto* c = std::get_if<ConvOp>(&p.ops[i].kind);
    if (!c || !fetches(*c)) continue;
    long room = kMost;
    for (size_t j = i + 1; j < p.ops.size() && room > 0; j++) {
      add_weights(p.ahead[i], room, p.ops[j]);
      auto* next = std::get_if<ConvOp>(&p.ops[j].kind);
      if (next && fetches(*next)) break;
    }
    c->conv.ahead = p.ahead[i].data();
    c->conv.stretches = (int)p.ahead[i].size();
  }
}

}  // namespace sanp
