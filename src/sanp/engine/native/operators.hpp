// What the operators share: lists of live channels, and a visitor that runs one operator on one sample.
#pragma once
#include <algorithm>

#include "execute.hpp"

namespace sanp {

// Whether an activation of zero is zero, so that a pruned channel stays pruned.
bool keeps_zero(const Activation&);
// Lists all channels of a map as live.
void list_all(const Call&, Map&);
// Lists the same channels as live as in another map.
void list_as(const Call&, Map& to, const Map& from);
// The activation of `shift`, which fills a channel that is not computed.
float of_zero(const Call&, const Activation&, int channel, float shift = 0);
inline void fill_plane(float* plane, float value, int pixels) { std::fill(plane, plane + pixels, value); }

// Calls visit(c, i, j) for every channel c in order: i and j are its places in the lists a and b, -1 where it is not
// listed.
template <class Visit>
void merge(int channels, const int* a, int count_a, const int* b, int count_b, Visit visit) {
  for (int c = 0, i = 0, j = 0; c < channels; c++) {
    const int slot_a = i < count_a && a[i] == c ? i++ : -1;
    const int slot_b = j < count_b && b[j] == c ? j++ : -1;
    visit(c, slot_a, slot_b);
  }
}

// Channels of a convolution of bytes: those that are computed, all places of the result, and those only passed on.
struct ByteCounts { int open, places, passed; };

// A convolution of bytes on all samples of a chunk.
void run_byte_conv(const Call&, const Op&, const ByteConvOp&);

// One operator on one sample, as one thread does it.
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
  // Whether this thread does the n-th plane.
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
  void operator()(const LayerNormOp&) const;
  void operator()(const ConvOp&) const {}  // convolutions and linear layers take all samples of a chunk at once
  void operator()(const LinearOp&) const {}
  void operator()(const ByteConvOp&) const {}
  void operator()(const QuantiseOp&) const;
  void operator()(const DequantiseOp&) const;
  void operator()(const ByteMeanOp&) const;
  void operator()(const BytePoolOp&) const;
  void operator()(const ByteAverageOp&) const;
  void operator()(const ByteCombineOp&) const;
  void operator()(const GatherOp&) const;
  void operator()(const InstanceNormOp&) const;
  void operator()(const SoftmaxOp&) const;
  void operator()(const ResizeOp&) const;
  void operator()(const UnpoolOp&) const;
  void operator()(const PowerOp&) const;

  Outputs outputs(const ConvOp&) const;
  void cap_open(const GateOp&, Decision&) const;
  ByteOutputs byte_outputs(const ByteConvOp&) const;
  static ByteCounts list_open(int channels, const Decision*, ChannelRoom&);
  ByteCounts list_mixed(const ByteConvOp&, const Decision*, const Map* residual, bool fills, ChannelRoom&) const;
  bool reaches(const ByteConv&, int channel, int& reached) const;
  void pass_closed(const ByteConvOp&, const ByteOutputs&) const;
  void adapt(bool maximum, const float* from, const Map& in, float* to, const Map& out) const;
  void map_channels(const Activation&, const float* scale, const float* shift, bool shifts) const;
};

}  // namespace sanp
