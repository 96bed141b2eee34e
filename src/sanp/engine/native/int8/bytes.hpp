// What the int8 kernels of all instruction sets share: maps of bytes, and the parameters of a convolution of them.
//
// A map of bytes is a Map whose planes hold four live channels each: byte b of the 32-bit number at pixel i of plane q is
// channel index[4 q + b] there. A byte is 0 to 255 and stands for itself times the map's scale. What lies behind the
// last live channel may be anything: its weights are zero.
#pragma once
#include <cstdint>

#include "../layout.hpp"

namespace sanp {

constexpr int kQuad = 4;               // channels whose bytes lie side by side
constexpr long kWeightLine = 64;       // weights of one tap lie on whole lines of so many bytes
constexpr long kMostWeightBytes = 16 * 1024;  // of one output channel

static inline int quads(int channels) { return (channels + kQuad - 1) / kQuad; }

struct ByteConv {
  Window window;
  int in_channels, out_channels;
  const int8_t* weight;     // [out][taps][step], zeros behind the last channel
  long step;                // bytes from one tap to the next
  const float* multiplier;  // [out]: the scale of the input times that of the channel's weights
  const float* bias;        // [out]
  Activation act;           // none, relu, or clip from 0 on where bytes are written
  bool to_bytes;            // the result is a map of bytes; else of floats, and the residual too
  float per_scale;          // one over the scale of the result's bytes
  float residual_scale;     // of the residual's bytes, 0 for a residual of floats
  float highest;            // byte that is written: 255, or less under a clip
  long row() const { return step * window.taps(); }
};

// Which output channels a convolution computes for one sample, and where they go. Places are numbers in the lists of
// live channels; -1 stands for a channel that the residual does not have.
struct ByteOutputs {
  int count;
  int places;  // of the result, those included that are not computed
  const int* channel;
  const float* scale;  // what each is multiplied by: the saliency, or 1
  const int* place;
  const int* residual_place;
  const Map* out;
  const Map* residual;  // or null
};

// The functions that every instruction set has. A scratch function gives the floats that a thread needs.
struct ByteKernels {
  const char* name;
  long (*conv_scratch)(const ByteConv&);
  void (*conv)(const ByteConv&, const Map* const* in, const ByteOutputs*, int samples, Scratch, Share);
  // Writes a channel of the residual to a place of the result, as a convolution that gives zeros would.
  void (*pass)(const ByteConv&, const Map& residual, int from, const Map& out, int to);
  // The functions on planes do the n-th plane of bytes, and the four channels in it.
  void (*quantise)(const Map& in, float per_scale, const Map& out, int n);
  void (*dequantise)(const Map& in, float scale, const Map& out, int n);
  void (*mean)(const Map& in, float scale, const Map& out, int n);
  long (*pool_scratch)(const Window&);
  void (*pool)(const Window&, const Map& in, const Map& out, int n, float* room);  // the largest byte of each window
};

// The fastest int8 kernels that this processor can run beside the others.
const ByteKernels* byte_kernels_beside(const Kernels&);

}  // namespace sanp
