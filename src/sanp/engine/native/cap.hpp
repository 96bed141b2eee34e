// The cap on what an image may cost: the rule of gating/cap.py, on the numbers of open channels.
#pragma once
#include <memory>
#include <vector>

#include "program.hpp"

namespace sanp {

// What one gate can make live on one side of a convolution.
struct GateReach { int gate; int64_t each, most; };
// The inputs or the outputs of a convolution.
struct LayerSide { int64_t fixed, width; std::vector<GateReach> parts; };
struct ConvBound { int64_t positions, taps, most_inputs; LayerSide inputs, outputs; };

struct Cap {
  int64_t limit;              // multiply-adds
  std::vector<int> reserve;   // [gate of the network]
  std::vector<ConvBound> convs;
  int gates() const { return (int)reserve.size(); }
};

// Reads a cap from numbers; throws Error for one that is not sound.
std::unique_ptr<Cap> read_cap(const int64_t* code, long count);

// How many of `wanted` channels the gate `gate` may open; `counts` has the open channels of the gates before it, and the
// reserves of the others.
int most_open(const Cap&, const int* counts, int gate, int wanted);

// Closes the channels with the lowest scores, of equal ones the last, until no more than `most` are open. Channels are
// decided in groups of `group`, with a score each.
void keep_best(Decision&, const float* score, int group, int most);

}  // namespace sanp
