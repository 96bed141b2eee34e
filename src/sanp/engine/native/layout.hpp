// What the kernels of every instruction set share: the compact feature map and the parameters of each operator.
#pragma once
#include "names.hpp"

namespace sanp {

// Rows of an odd number of cache lines: a power of two would put every row into the same few sets of the cache.
static inline long odd_lines(long floats) { return ((floats + 15) / 16 | 1) * 16; }

// A feature map of one sample. Only `live` of its `channels` planes exist; plane j belongs to channel index[j]
// (ascending). A channel that is not listed is zero everywhere.
struct Map {
  float* data;
  long stride;  // floats from one plane to the next
  int channels, height, width;
  int live;
  int* index;
  int pixels() const { return height * width; }
  bool dense() const { return live == channels; }
};

struct Activation {
  Act kind = Act::none;
  float a = 0, b = 0;            // clip: lowest and highest; leaky: slope; elu: alpha
  const float* slope = nullptr;  // prelu: one a channel
};

constexpr int kMostSamples = 16;  // that go through an operator together

// A window that slides over a map: convolutions, pooling and Winograd's input tiles are all of this kind.
struct Window {
  int height, width, out_height, out_width;
  int kernel_y, kernel_x, stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;
  int taps() const { return kernel_y * kernel_x; }
};

// Rows of weights, one an output channel, `row` floats apart.
struct Weights {
  const float* data;
  long row;
};

struct Conv {
  Window window;
  int in_channels, out_channels, groups;
  Activation act;
  const float* bias;       // one an output channel
  // By algorithm; null where one does not apply. Direct: [out][in / groups][taps]. The others, `step` floats a frequency:
  // [out][sum][in][taps of the sum]; but lanes: [out][in][frequencies].
  Weights weights[(int)Algorithm::count];
  long step;
  const Weights& of(Algorithm a) const { return weights[(int)a]; }
};

// Which output channels a convolution computes, and what becomes of each.
struct Outputs {
  int count;
  const int* channel;
  const float* scale;            // the saliency, or 1
  float* const* plane;           // where it is written
  const float* const* residual;  // a plane added before the activation, or null
};

struct Gate {
  int in_channels, out_channels, hidden;
  const float* w1;         // [in][hidden]
  const float* b1;         // [hidden]
  const float* w2;         // [hidden][out]
  const float* b2;         // [out]
  const float* threshold;  // [out]
  bool scales;             // the output is multiplied by the saliency,
  float most;              // or by this if that is more
  int group;               // neighbouring channels that decide together
  int top;                 // if positive: so many groups are open, whatever the threshold
};

enum class Descriptor : int { mean, absolute_mean };

// What a gate decided for one sample.
struct Decision {
  int live;
  int* channel;
  float* scale;
};

struct Pool {
  Window window;
  bool maximum;
  const float* inverse;  // average: one over the number of elements under each output pixel
};

struct Linear {
  int in_features, out_features;
  Activation act;
  const float* bias;
  const float* weight;  // [out / 32][in][32], the last block filled with zeros
};

constexpr int kLinearBlock = 32;

// Room that one thread works in. `floats` holds `capacity` of them; `common` is the first thread's, where a team puts
// what all of it will read.
struct Scratch {
  float* floats;
  long capacity;
  float* common;
};

class Barrier;

// The part of an operator that one thread of a team does.
struct Share {
  int rank, size;
  Barrier* barrier;
  // Of `count` things this thread does [from(count), to(count)).
  int from(int count) const { return (int)((long)count * rank / size); }
  int to(int count) const { return (int)((long)count * (rank + 1) / size); }
  void meet() const;  // returns when every thread of the team is here
};

// What every instruction set offers.
struct Kernels {
  const char* name;
  int lanes;
  long (*conv_scratch)(const Conv&, Algorithm);
  void (*conv)(const Conv&, Algorithm, const Map* const* in, const Outputs*, int samples, Scratch, Share);
  void (*gate)(const Gate&, Descriptor, const Map& in, Decision&, Scratch, Share);
  long (*pool_scratch)(const Pool&);
  void (*pool)(const Pool&, const Map& in, const Map& out, Scratch, Share);
  void (*linear)(const Linear&, const Map* const* in, const Map* const* out, int samples, Share);
  void (*activate)(const Activation&, int channel, const float* in, float* out, int count);
  void (*add)(const float* a, const float* b, float* out, int count);
  void (*multiply)(const float* a, const float* b, float* out, int count);
  void (*affine)(const float* a, float scale, float shift, float* out, int count);
  float (*sum)(const float* a, int count);
  bool (*all_finite)(const float* a, long count);
};

}  // namespace sanp
