// The register block: T output channels by P vectors of pixels, summed over the live input channels and the taps.
// A weight is read where it lies, at [out][in], and multiplied with whole vectors of pixels.
#pragma once
#include "expand.hpp"

namespace SANP_NAMESPACE {

#if SANP_REGISTERS >= 32
constexpr int kMaxVectors = 4;
constexpr int kMaxChannels[kMaxVectors + 1] = {0, 20, 12, 8, 6};
#else
constexpr int kMaxVectors = 4;
constexpr int kMaxChannels[kMaxVectors + 1] = {0, 12, 6, 4, 3};
#endif
constexpr int kMostChannels = kMaxChannels[1];
constexpr int kAhead = 6;  // live channels

struct Block {
  const float* in;        // the first pixel of the first live channel
  long in_stride;         // floats from one live channel to the next
  int in_count;
  const int* in_channel;  // the channel numbers that the weights know
  const long* tap;        // offsets of the taps
  int taps;
  const float* const* weight;  // a row for each of the T output channels
  long weight_offset;          // added to each
  float* const* out;
  int out_offset;
  int last;               // pixels in the last vector
  const float* bias;      // null: sums are stored as they are
  const float* scale;
  const float* const* residual;
  bool relu;
};

template <int T, int P>
static inline void finish(const Block& b, vf (&sum)[T][P]) {
#pragma GCC unroll 32
  for (int t = 0; t < T; t++) {
    float* out = b.out[t] + b.out_offset;
    if (b.bias) {
      const vf scale = splat(b.scale[t]);
      const float* residual = b.residual[t];
#pragma GCC unroll 8
      for (int p = 0; p < P; p++) {
        sum[t][p] *= scale;
        if (residual) sum[t][p] += load(residual + b.out_offset + p * L);
        if (b.relu) sum[t][p] = relu(sum[t][p]);
      }
    }
#pragma GCC unroll 8
    for (int p = 0; p + 1 < P; p++) store(out + p * L, sum[t][p]);
    if (b.last == L)
      store(out + (P - 1) * L, sum[t][P - 1]);
    else
      store_first(out + (P - 1) * L, sum[t][P - 1], b.last);
  }
}

// K taps; 0: as many as the block says.
template <int T, int P, int K>
static void run_block(const Block& b) {
  vf sum[T][P];
  const float* w[T];
#pragma GCC unroll 32
  for (int t = 0; t < T; t++) {
    w[t] = b.weight[t] + b.weight_offset;
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) sum[t][p] = b.bias ? splat(b.bias[t]) : vf{};
  }
  const int taps = K ? K : b.taps;
  const float* plane = b.in;
  for (int a = 0; a < b.in_count; a++, plane += b.in_stride) {
    const long column = (long)b.in_channel[a] * taps;
    if (K == 9 && P == 1 && a + kAhead < b.in_count) {  // small maps have large weights: from memory, T rows at a time
      const long next = (long)b.in_channel[a + kAhead] * taps;
#pragma GCC unroll 32
      for (int t = 0; t < T; t++) __builtin_prefetch(w[t] + next, 0, 3);
    }
#pragma GCC unroll 9
    for (int k = 0; k < taps; k++) {
      const float* pixels = plane + (K == 1 ? 0 : b.tap[k]);
      vf x[P];
#pragma GCC unroll 8
      for (int p = 0; p < P; p++) x[p] = load(pixels + p * L);
#pragma GCC unroll 32
      for (int t = 0; t < T; t++) {
        const vf weight = splat(w[t][column + k]);
#pragma GCC unroll 8
        for (int p = 0; p < P; p++) sum[t][p] += weight * x[p];
      }
    }
  }
  finish<T, P>(b, sum);
}

typedef void (*BlockFunction)(const Block&);

template <int P, int K, int T = kMaxChannels[P]>
struct Row {
  static constexpr void put(BlockFunction* f) {
    f[T] = run_block<T, P, K>;
    Row<P, K, T - 1>::put(f);
  }
};
template <int P, int K>
struct Row<P, K, 0> {
  static constexpr void put(BlockFunction*) {}
};

// By number of taps (1, 2, 4, 9, any), vectors and channels. Filled when compiled: code that ran when the library is loaded
// would run on processors that lack this file's instructions.
struct BlockTable {
  BlockFunction at[5][kMaxVectors + 1][kMostChannels + 1]{};
  template <int K>
  constexpr void put(int k) {
    Row<1, K>::put(at[k][1]);
    Row<2, K>::put(at[k][2]);
    Row<3, K>::put(at[k][3]);
    Row<4, K>::put(at[k][4]);
  }
  constexpr BlockTable() {
    put<1>(0);
    put<2>(1);
    put<4>(2);
    put<9>(3);
    put<0>(4);
  }
  const auto& taps(int n) const { return at[n == 1 ? 0 : n == 2 ? 1 : n == 4 ? 2 : n == 9 ? 3 : 4]; }
};
static constexpr BlockTable kBlocks{};

// Vectors in a block. A block of t channels by q vectors costs, in half cycles, its multiplications, its loads, or what
// the second-level cache needs for the pixels: measured on Zen 3, whichever is the most.
static inline int choose_vectors(int vectors, int channels) {
  int best = 1;
  double best_cost = 1e30;
  for (int p = 1; p <= kMaxVectors; p++) {
    const int blocks = (channels + kMaxChannels[p] - 1) / kMaxChannels[p];
    const double t = (double)channels / blocks;
    double cost = 0;
    for (int v = 0; v < vectors; v += p) {
      const int q = at_most(p, vectors - v);
      double most = t * q;
      if (1.23 * (t + q) > most) most = 1.23 * (t + q);
      if (4.5 * q > most) most = 4.5 * q;
      cost += most;
    }
    cost *= blocks;
    if (cost < best_cost * .999) best_cost = cost, best = p;
  }
  return best;
}

// The part [first, first + count) of output planes that one thread is about to write. What lay there before was read by every
// thread of a team, and to take lines away from the others holds up whoever writes them: stores ahead of time, while
// there is arithmetic to do, take them for nothing. (A prefetch for writing leaves a line with those who share it.)
struct Claim {
  float* const* plane;
  int planes;  // none: there is no team
  long first, count;
  // The n-th part, `of` so many.
  void part(int n, int of) const {
    for (int i = planes * n / of; i < planes * (n + 1) / of; i++)
      for (long k = first; k < first + count; k += 16) *const_cast<volatile float*>(plane[i] + k) = 0;
  }
};

// run(j, T) for T channels from j on, over all of [from, to): as few blocks of at most `most` as it takes, of even size.
template <class Run>
static inline void each_block(int from, int to, int most, const Run& run, bool backwards = false) {
  const int blocks = (to - from + most - 1) / most;
  const auto start = [&](int n) { return from + (int)((long)(to - from) * n / blocks); };
  for (int i = 0; i < blocks; i++) {
    const int n = backwards ? blocks - 1 - i : i;
    run(start(n), start(n + 1) - start(n));
  }
}

}  // namespace SANP_NAMESPACE
