// What the int8 kernels of all instruction sets share: maps of bytes, and the parameters of a convolution of them.
//
// A map of bytes is a Map whose planes hold four live channels each: byte b of the 32-bit number at pixel i of plane q is
// channel index[4 q + b] there. A byte is 0 to 255 and stands for (byte - zero) times the map's scale, where the map's
// zero point `zero` is 0 if nothing of it is negative. What lies behind the last live channel may be anything: its
// weights are zero. Around the map lie bytes `zero`, so that what they add to a sum of w (byte - zero) is nothing: the
// sum over a whole window is that of w byte, less `zero` times the weights of the live inputs.
#pragma once
#include <cstdint>

#include "../layout.hpp"

namespace sanp {

constexpr int kQuad = 4;               // channels whose bytes lie side by side
constexpr long kWeightLine = 64;       // weights of one tap lie on whole lines of so many bytes
constexpr long kMostWeightBytes = 16 * 1024;  // of one output channel

static inline int quads(int channels) { return (channels + kQuad - 1) / kQuad; }

// How numbers become the bytes of a result.
struct ByteRounding {
  Activation act;
  float per_scale;        // one over the scale of the result's bytes
  float out_zero;         // their zero point
  float lowest, highest;  // bytes that are written
  bool steps;  // bytes are written, and the activation only cuts, which `lowest` and `highest` do: all is in steps of bytes
};

struct ByteConv : ByteRounding {
  Window window;
  int in_channels, out_channels, groups;
  const int8_t* weight;     // [out][taps][step]: of the channels of its group, with zeros behind the last
  long step;                // bytes from one tap to the next
  const int8_t* depth;      // [out][rows][columns, in fours]: of a depthwise convolution that depthwise.hpp computes, or null
  const float* multiplier;  // [out]: the scale of the input times that of the channel's weights
  const float* bias;        // [out]
  bool scale_after;      // what a channel is multiplied by comes after the activation
  bool to_bytes;         // the result is a map of bytes; else of floats, and the residual too
  int zero;              // the zero point of the input
  float residual_scale;  // of the residual's bytes, 0 for a residual of floats
  float residual_zero;   // their zero point
  long row() const { return step * window.taps(); }
  int group_inputs() const { return in_channels / groups; }
  int group_of(int out) const { return out / (out_channels / groups); }
};

constexpr int kDepthColumns = 4;  // weights of a row of a depthwise window that lie side by side
static inline int depth_fours(const Window& w) { return (w.kernel_x + kDepthColumns - 1) / kDepthColumns; }
// Bytes of one channel's weights there.
static inline long depth_row(const Window& w) { return (long)w.kernel_y * depth_fours(w) * kDepthColumns; }
// Whether depthwise.hpp can compute it.
static inline bool is_byte_depthwise(const ByteConv& c) {
  const Window& w = c.window;
  return c.groups > 1 && c.groups == c.in_channels && c.groups == c.out_channels && w.kernel_y == w.kernel_x &&
         (w.kernel_x == 3 || w.kernel_x == 5 || w.kernel_x == 7) && w.stride_y == w.stride_x && w.stride_x <= 2 &&
         w.dilation_y == 1 && w.dilation_x == 1;
}

// How the bytes of a map are made from floats, and floats from them.
struct ByteScale {
  float scale;
  int zero;
};

// Which output channels a convolution computes for one sample, and where they go. Places are numbers in the lists of
// live channels. A channel of the result that is not computed is the residual's, or what becomes of zero.
struct ByteOutputs {
  int count;
  int places;  // of the result, those included that are not computed
  const int* channel;
  const float* scale;  // what each is multiplied by: the saliency, or 1
  const int* place;
  const int* made;  // [place]: number among those that are computed, or -1
  const int* from;  // [place]: place in the residual, or -1
  const int* at;    // [place]: channel
  const Map* out;
  const Map* residual;  // or null
};

// An average under a window: sums are whole numbers, and `inverse` has for each pixel of the result what turns a sum of
// (byte - zero) into steps of its bytes.
struct ByteAverage {
  Window window;
  int zero;
  const float* inverse;
  float out_zero;
};

// What a channel of a combination is at one sample: the activation of shift + the sum over two channels of factor byte.
// Without a second channel, or a first one, factors are zero.
constexpr int kByteTerms = 2;
struct ByteSum {
  int channel;
  float shift;
  float factor[kByteTerms];
  const float* plane[kByteTerms];
  int bits[kByteTerms];  // of a pixel's 32 below the byte
};

// The functions that every instruction set has. A scratch function gives the floats that a thread needs.
struct ByteKernels {
  const char* name;
  long (*conv_scratch)(const ByteConv&);
  void (*conv)(const ByteConv&, const Map* const* in, const ByteOutputs*, int samples, Scratch, Share);
  // Writes a channel to place `to` of the result as a convolution that gives zeros would; `from` is its place in the
  // residual, -1 for none.
  void (*pass)(const ByteConv&, int channel, const Map* residual, int from, const Map& out, int to);
  // The functions on planes do the n-th plane of bytes, and the four channels in it.
  void (*quantise)(const Map& in, ByteScale, const Map& out, int n);
  void (*dequantise)(const Map& in, ByteScale, const Map& out, int n);
  void (*mean)(const Map& in, ByteScale, const Map& out, int n);
  long (*pool_scratch)(const Window&);
  void (*pool)(const Window&, const Map& in, const Map& out, int n, float* room);  // the largest byte of each window
  void (*average)(const ByteAverage&, const Map& in, const Map& out, int n, float* room);
  // Writes a plane of `count` channels.
  void (*combine)(const ByteRounding&, const ByteSum* sums, int count, float* to, int pixels);
};

}  // namespace sanp
