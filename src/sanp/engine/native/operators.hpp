// What the operators share: rules for lists of live channels, and one operator on one sample as a visitor.
#pragma once
#include <algorithm>

#include "execute.hpp"

namespace sanp {

// An activation that leaves a pruned channel zero.
bool keeps_zero(const Activation&);
void list_all(const Call&, Map&);
void list_as(const Call&, Map& to, const Map& from);
// The activation of a constant, for a channel that is not computed.
float of_zero(const Call&, const Activation&, int channel, float shift = 0);
inline void fill_plane(float* plane, float value, int pixels) { std::fill(plane, plane + pixels, value); }

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
  Scratch scratch() const {
    return {room().scratch.data(), room().scratch.size(), call.workspace.rooms[0].scratch.data()};
  }
  bool mine(int n) const { return n % call.share.size == call.share.rank; }
  bool first_rank() const { return call.share.rank == 0; }
  void check_finite(const float* from, long count) const {
    if (call.notes.finite && !kernels().all_finite(from, count))
      __atomic_store_n(call.notes.finite + call.first + sample, 0, __ATOMIC_RELAXED);
  }

  void operator()(const InputOp&) const;
  void operator()(const OutputOp&) const;
  void operator()(const GateOp&) const;
  void operator()(const PoolOp&) const;
  void operator()(const AdaptiveOp&) const;
  void operator()(const ActivationOp& o) const { map_channels(o.act, nullptr, nullptr, false); }
  void operator()(const AffineOp& o) const { map_channels(o.act, o.scale, o.shift, o.fills); }
  void operator()(const AddOp&) const;
  void operator()(const MultiplyOp&) const;
  void operator()(const ConcatOp&) const;
  void operator()(const ChannelsOp&) const;
  void operator()(const FlattenOp&) const;
  void operator()(const ConvOp&) const {}  // these two go through a whole chunk at a time
  void operator()(const LinearOp&) const {}

  Outputs outputs(const ConvOp&) const;
  void adapt(bool maximum, const float* from, const Map& in, float* to, const Map& out) const;
  void map_channels(const Activation&, const float* scale, const float* shift, bool shifts) const;
};

}  // namespace sanp
