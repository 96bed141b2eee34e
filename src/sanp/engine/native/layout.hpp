// What the kernels of all instruction sets share: feature maps of live channels, and the parameters of each operator.
#pragma once
#include "names.hpp"

namespace sanp {

// The next odd number of cache lines, in floats. Rows that are a power of two apart would share a few sets of the
// cache.
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
  const float* slope = nullptr;  // prelu: one for each channel
};

constexpr int kMostSamples = 16;  // the most samples that go through an operator together

// A window that slides over a map: that of a convolution, of a pooling, or of Winograd's input tiles.
struct Window {
  int height, width, out_height, out_width;
  int kernel_y, kernel_x, stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;
  int taps() const { return kernel_y * kernel_x; }
  // Whether every window lies in the map: padding below and on the right shows in the size of the output alone.
  bool inside() const {
    return pad_y == 0 && pad_x == 0 && (out_height - 1) * stride_y + (kernel_y - 1) * dilation_y < height &&
           (out_width - 1) * stride_x + (kernel_x - 1) * dilation_x < width;
  }
  // Whether the output reads the map pixel by pixel.
  bool pointwise() const { return taps() == 1 && stride_y == 1 && stride_x == 1 && inside(); }
};

// Rows of weights, one for each output channel, `row` floats apart.
struct Weights {
  const float* data;
  long row;
};

// Neighbouring floats.
struct Stretch {
  const float* data;
  long floats;
};

struct Conv {
  Window window;
  int in_channels, out_channels, groups;
  Activation act;
  const float* bias;  // one for each output channel
  // By algorithm; a row of no floats where one does not apply, null where it was never chosen. Direct: [out][in / groups][taps]. Lanes: [out][in][frequencies].
  // The others: [out][sum][in][taps of the sum], `step` floats for each frequency.
  Weights weights[(int)Algorithm::count];
  long step;
  const Stretch* ahead;  // weights of the operators that follow, which are fetched while this one computes
  int stretches;
  const Weights& of(Algorithm a) const { return weights[(int)a]; }
};

// Which output channels a convolution computes, and what becomes of each.
struct Outputs {
  int count;
  const int* channel;
  const float* scale;            // what each is multiplied by: the saliency, or 1
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
  bool scales;             // open channels are multiplied by their saliency,
  float most;              // but by no more than this
  int group;               // neighbouring channels that are decided together
  int top;                 // if positive, so many groups with the largest scores are open, and no others
};

// What a gate looks at: the mean of each input channel, or the mean of its absolute values.
enum class Descriptor : int { mean, absolute_mean };

// What a gate decided for one sample: `live` open channels, and what each is multiplied by.
struct Decision {
  int live;
  int* channel;
  float* scale;
  const unsigned char* forced;  // which channels to open, whatever their scores; null without such a wish
  float* score;                 // where to write the scores, one for each group; may be null
  float lift;                   // is added to the thresholds
};

struct Pool {
  Window window;
  bool maximum;
  const float* inverse;  // of an average: one over the number of elements, for each output pixel
};

struct Linear {
  int in_features, out_features;
  Activation act;
  const float* bias;
  const float* weight;  // [out / 32][in][32], the last block filled with zeros
};

constexpr int kLinearBlock = 32;  // outputs of a linear layer that are computed together

// Memory that one thread works in: `capacity` floats. `common` is that of the team's first thread, for what all of its
// threads will read.
struct Scratch {
  float* floats;
  long capacity;
  float* common;
};

class Barrier;

// The part of an operator that one thread of a team does.
struct Share {
  int rank, size;  // the thread's number, and the number of threads
  Barrier* barrier;
  // Of `count` things this thread does [from(count), to(count)).
  int from(int count) const { return (int)((long)count * rank / size); }
  int to(int count) const { return (int)((long)count * (rank + 1) / size); }
  void meet() const;  // returns when every thread of the team has called it
};

// The functions that every instruction set has. The scratch functions give the floats that a thread needs.
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
  void (*layer_norm)(const float* scale, const float* shift, float eps, const Map& in, const Map& out, Share);
  float (*sum)(const float* a, int count);
  bool (*all_finite)(const float* a, long count);
};

}  // namespace sanp
