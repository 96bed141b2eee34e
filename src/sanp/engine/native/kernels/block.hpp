// The register block: sums of T output channels by P vectors of pixels stay in registers while the live input channels
// and the taps go by. A weight is read where it lies, at [out][in], and multiplied with whole vectors of pixels, so
// that any set of channels runs without copying weights.
#pragma once
#include "activate.hpp"
#include "ahead.hpp"
#include "expand.hpp"

namespace SANP_NAMESPACE {

#if SANP_REGISTERS >= 32
constexpr int kMaxVectors = 4;
constexpr int kMaxChannels[kMaxVectors + 1] = {0, 20, 12, 8, 6};  // the most output channels of a block, by its vectors
#else
constexpr int kMaxVectors = 4;
constexpr int kMaxChannels[kMaxVectors + 1] = {0, 12, 6, 4, 3};
#endif
constexpr int kMostChannels = kMaxChannels[1];
constexpr int kAhead = 6;  // weights are prefetched so many live channels ahead

// How many products of a block's sums follow one another with each row of weights: an address that does not fit into
// the registers is fetched once for all of them. Their pixels are in the registers that sums and a weight leave.
template <int P>
constexpr int kTogether = (SANP_REGISTERS - 1 - kMaxChannels[P] * P) / P >= 4   ? 4
                          : (SANP_REGISTERS - 1 - kMaxChannels[P] * P) / P >= 2 ? 2
                                                                                : 1;

struct Block {
  const float* in;        // the first pixel of the first live channel
  long in_stride;         // floats from one live channel to the next
  int in_count;
  const int* in_channel;  // numbers of the live channels, by which weights are found
  const long* tap;        // offsets of the taps from the first pixel
  int taps;
  const float* const* weight;  // a row for each of the T output channels
  long weight_offset;          // added to each row
  float* const* out;
  int out_offset;
  int last;               // pixels of the last vector that are written
  const float* bias;      // null: sums are stored without bias, scale, residual and bounds
  const float* scale;
  const float* const* residual;
  Bounds bounds;
  const float* const* next;  // T rows of weights that the next block will read, or null
  int in_line;               // how many live channels have their weights in one cache line, in the mean
  const float* ahead;        // a line to fetch for every channel, or null
};

// Block::in_line for so many live channels of `all`, if a row has a weight for each channel.
static inline int channels_in_line(int live, int all) { return at_least(kLine * live / at_least(all, 1), 1); }

// Writes the sums of a block, with scale, residual and bounds if it has a bias.
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
        sum[t][p] = clip(sum[t][p], b.bounds.low, b.bounds.high);
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

// Adds the products of U weights of each row, so far from its start, with the vectors of pixels at U places.
template <int U, int T, int P>
static inline void add_products(vf (&sum)[T][P], const float* const (&w)[T], const long (&weight)[U],
                                const float* const (&pixels)[U]) {
  vf x[U][P];
#pragma GCC unroll 4
  for (int u = 0; u < U; u++)
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) x[u][p] = load(pixels[u] + p * L);
#pragma GCC unroll 32
  for (int t = 0; t < T; t++) {
    const float* row = w[t];
#pragma GCC unroll 4
    for (int u = 0; u < U; u++) {
      const vf factor = splat(row[weight[u]]);
#pragma GCC unroll 8
      for (int p = 0; p < P; p++) sum[t][p] += factor * x[u][p];
    }
  }
}

// Fetches what the block and those after it will read, while U live channels from the a-th on are computed.
template <int U, int T, int P, int K>
static inline void fetch_ahead(const Block& b, const float* const (&w)[T], int a, long column) {
  if (K == 9 && P == 1 && a + kAhead < b.in_count) {  // small maps have many weights, which come from memory
    const long next = (long)b.in_channel[a + kAhead] * K;
#pragma GCC unroll 32
    for (int t = 0; t < T; t++) __builtin_prefetch(w[t] + next, 0, 3);
  }
  if (K != 1) return;
  if (b.ahead) {
#pragma GCC unroll 4
    for (int u = 0; u < U; u++) __builtin_prefetch(b.ahead + (long)(a + u) * 16, 0, 2);
  }
  if (b.next) {  // each line once: rows take turns while the channels of a line go by
    const int in_turn = at_least(b.in_line / U, 1);
    for (int t = a / U % in_turn; t < T; t += in_turn) __builtin_prefetch(b.next[t] + column, 0, 3);
  }
}

// Computes a block with K taps; K = 0 stands for as many as the block says.
template <int T, int P, int K>
static void run_block(const Block& b) {
  constexpr int U = kTogether<P>;
  vf sum[T][P];
  const float* w[T];
#pragma GCC unroll 32
  for (int t = 0; t < T; t++) {
    w[t] = b.weight[t] + b.weight_offset;
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) sum[t][p] = b.bias ? splat(b.bias[t]) : vf{};
  }
  const float* plane = b.in;
  int a = 0;
  if (K == 1) {
    for (; a + U <= b.in_count; a += U, plane += U * b.in_stride) {
      long weight[U];
      const float* pixels[U];
#pragma GCC unroll 4
      for (int u = 0; u < U; u++) weight[u] = b.in_channel[a + u], pixels[u] = plane + u * b.in_stride;
      fetch_ahead<U, T, P, K>(b, w, a, weight[0]);
      add_products<U>(sum, w, weight, pixels);
    }
  }
  const int taps = K ? K : b.taps;
  for (; a < b.in_count; a++, plane += b.in_stride) {
    const long column = (long)b.in_channel[a] * taps;
    fetch_ahead<1, T, P, K>(b, w, a, column);
    int k = 0;
#pragma GCC unroll 9
    for (; k + U <= taps; k += U) {
      long weight[U];
      const float* pixels[U];
#pragma GCC unroll 4
      for (int u = 0; u < U; u++) weight[u] = column + k + u, pixels[u] = plane + (K == 1 ? 0 : b.tap[k + u]);
      add_products<U>(sum, w, weight, pixels);
    }
#pragma GCC unroll 4
    for (; k < taps; k++) add_products<1>(sum, w, {column + k}, {plane + (K == 1 ? 0 : b.tap[k])});
  }
  finish<T, P>(b, sum);
}

typedef void (*BlockFunction)(const Block&);

// The blocks of P vectors and K taps, by number of channels.
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

// Every block by number of taps (1, 2, 4, 9, any), vectors and channels. The compiler fills the table: code that filled
// it when the library is loaded would also run on processors that lack this file's instructions.
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

// How many vectors a block should have. A block of t channels by q vectors costs, in half cycles, the largest of three:
// t q multiplications, 1.23 (t + q) loads, and 4.5 q for pixels from the second-level cache (measured on Zen 3).
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

// Takes the cache lines of output planes for this thread before it writes them: floats [first, first + count) of each
// plane. The other threads of a team have read these lines, so that the first store to each must wait until they give
// it up. A store of zero made early does that waiting while there is arithmetic to do. A prefetch for writing does not
// help: it leaves the line shared.
struct Claim {
  float* const* plane;
  int planes;  // 0 without a team
  long first, count;
  // Does the n-th of `of` parts of the planes.
  void part(int n, int of) const {
    for (int i = planes * n / of; i < planes * (n + 1) / of; i++)
      for (long k = first; k < first + count; k += 16) *const_cast<volatile float*>(plane[i] + k) = 0;
  }
};

// Cuts channels [from, to) into as few blocks of at most `most` as possible, of even size, and calls run(first,
// channels) for each.
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
