// Direct convolution of bytes: lanes are pixels, and a broadcast of four weights meets four live channels at a time.
#pragma once
#include "depthwise.hpp"
#include "small.hpp"

namespace SANP_NAMESPACE {

#if SANP_REGISTERS >= 32
constexpr int kByteVectors = 4;
constexpr int kByteChannels[kByteVectors + 1] = {0, 24, 12, 8, 6};  // the most channels of a block, by its vectors
#else
constexpr int kByteVectors = 2;
constexpr int kByteChannels[kByteVectors + 1] = {0, 8, 4};
#endif
constexpr int kMostByteChannels = kByteChannels[1];
constexpr int kFinished = 8;  // vectors of sums of each channel that become bytes together
static_assert(kFinished >= kByteVectors, "a block's sums have room");
static_assert(kMostByteChannels <= kMostPlanes && kMostByteChannels <= kMostRows, "a block has room");
constexpr int kByteStarts = (kMostByteChannels + 15) / 16 * 16;
constexpr long kByteBand = 64 * 1024;  // floats of the copies of a band: half of a 512 KiB second-level cache
constexpr int kFewBytePixels = 4 * L;   // a band is not cut smaller than this

struct ByteBlock {
  const float* in;
  long in_stride;
  int quads;
  const long* tap;
  int taps;
  const char* weight;  // [channel][tap][quad][4], rows kGathered apart
  long tap_bytes;
  const int* start;  // [channel]: what the sums begin with
  int* sums;         // [channel][vector][lane], channels `sum_stride` apart
  long sum_stride;
};

template <int T, int P>
static void run_bytes(const ByteBlock& b) {
  vi sum[T][P];
#pragma GCC unroll 32
  for (int t = 0; t < T; t++)
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) sum[t][p] = splat_bits(b.start[t]);
  const char* weights = b.weight;
  for (int k = 0; k < b.taps; k++, weights += b.tap_bytes) {
    const float* pixels = b.in + b.tap[k];
    const char* w = weights;
    for (int q = 0; q < b.quads; q++, pixels += b.in_stride, w += kQuad) {
      Pixels x[P];
#pragma GCC unroll 8
      for (int p = 0; p < P; p++) x[p] = pixels_at(pixels + p * L);
#pragma GCC unroll 32
      for (int t = 0; t < T; t++) {
        const Four four = four_at(w + t * kGathered);
#pragma GCC unroll 8
        for (int p = 0; p < P; p++) sum[t][p] = dot(sum[t][p], x[p], four);
      }
    }
  }
#pragma GCC unroll 32
  for (int t = 0; t < T; t++)
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) *reinterpret_cast<vi_unaligned*>(b.sums + t * b.sum_stride + p * L) = sum[t][p];
}

typedef void (*ByteFunction)(const ByteBlock&);

struct ByteTable {
  ByteFunction at[kByteVectors + 1][kMostByteChannels + 1]{};
  template <int P, int T>
  constexpr void put() {
    at[P][T] = run_bytes<T, P>;
    if constexpr (T > 1) put<P, T - 1>();
  }
  template <int P>
  constexpr void put_all() {
    put<P, kByteChannels[P]>();
    if constexpr (P > 1) put_all<P - 1>();
  }
  constexpr ByteTable() { put_all<kByteVectors>(); }
};
static constexpr ByteTable kByteBlocks{};

// How many vectors a block should have: of each of `depth` steps t q products or t + q loads, whichever take longer; and
// then some instructions for each vector of sums, and some for each plane of bytes that it is a part of.
static inline int choose_byte_vectors(int vectors, int channels, int depth) {
  int best = 1;
  double best_cost = 1e30;
  for (int p = 1; p <= kByteVectors; p++) {
    const int blocks = (channels + kByteChannels[p] - 1) / kByteChannels[p];
    const double t = (double)channels / blocks, planes = (t + kQuad - 1) / kQuad + (kByteChannels[p] % kQuad ? 1 : 0);
    double cost = 0;
    for (int v = 0; v < vectors; v += p) {
      const int q = at_most(p, vectors - v);
      cost += (t * q > t + q ? t * q : t + q) * depth + q * (6 * t + 8 * planes);
    }
    cost *= blocks;
    if (cost < best_cost * .999) best_cost = cost, best = p;
  }
  return best;
}

// A 1x1 convolution needs no copies of its input.
static inline bool bytes_in_place(const Window& w) { return w.pointwise(); }

// How many output rows are computed together; where possible, as many as fill whole vectors. What they read should stay
// in the second-level cache from one block of channels to the next.
static inline int byte_rows(const Window& w, int planes, int share) {
  int rows = (w.out_height + share - 1) / share;
  const auto floats = [&] { return bytes_in_place(w) ? (long)rows * w.out_width : plan_copies(w, 0, rows).channel; };
  while (rows > 1 && rows * w.out_width > kFewBytePixels && floats() * planes > kByteBand) rows = (rows + 1) / 2;
  if (rows >= w.out_height) return w.out_height;
  int whole = 1;
  while (whole * w.out_width % L != 0) whole *= 2;
  return rows > whole ? rows / whole * whole : rows;
}

// A thread's scratch: how weights are gathered, sums and what they begin with, gathered weights, copies of a band; or what
// lanes of channels need.
struct ByteRoom {
  long words;  // lines of weights of a tap
  long floats_before_copies() const {
    return GatherPlan::floats(words) + kMostByteChannels * kFinished * L + kByteStarts +
           kMostByteChannels * kGathered / 4;
  }
  explicit ByteRoom(const ByteConv& c) : words(c.step / 64) {}
};

static long byte_conv_scratch(const ByteConv& c) {
  if (c.depth) return depth_scratch(c);
  const long before = ByteRoom(c).floats_before_copies() + 2 * L + (is_small(c) ? small_scratch(c) : 0);
  if (bytes_in_place(c.window)) return before;
  const int fewest = at_least(1, at_most(c.window.out_height, kFewBytePixels / c.window.out_width));
  const long smallest = plan_copies(c.window, 0, fewest).channel * quads(c.in_channels);
  return before + (smallest > kByteBand ? smallest : kByteBand);
}

// The live inputs of one group: places [from, to) in the list, which lie in the planes from `plane` on.
struct GroupInputs {
  int from, to, first_channel;
  int plane() const { return from / kQuad; }
  int planes() const { return from == to ? 0 : quads(to) - plane(); }
};

// The part of a convolution that one thread does on one sample.
struct ByteWork {
  const ByteConv& c;
  const Map& in;
  const ByteOutputs& out;
  const GatherPlan& plan;
  int* sums;
  int* start;
  char* gathered;
  float* copies;

  // Computes output channels [from, to) over rows [y, y + rows).
  void band(int y, int rows, int from, int to) const {
    const Window& w = c.window;
    ByteBlock b{};
    b.taps = w.taps();
    b.weight = gathered;
    b.start = start;
    long tap[kMostTaps];
    tap[0] = 0;
    const float* first;
    if (bytes_in_place(w)) {
      first = in.data + y * w.out_width;
      b.in_stride = in.stride;
    } else {
      const Copies copied = plan_copies(w, y, rows);
      const float edge = zero_word(c.zero);
      for (int q = 0; q < quads(in.live); q++)
        expand_plane(w, copied, in.data + q * in.stride, copies + q * copied.channel, edge);
      for (int ky = 0; ky < w.kernel_y; ky++)
        for (int kx = 0; kx < w.kernel_x; kx++) tap[ky * w.kernel_x + kx] = tap_offset(w, copied, ky, kx);
      first = copies;
      b.in_stride = copied.channel;
    }
    b.tap = tap;
    GroupInputs inputs{0, c.groups == 1 ? in.live : 0, 0};
    for (int j = from, end; j < to; j = end) {
      const int group = c.group_of(out.channel[j]);
      for (end = c.groups == 1 ? to : j; end < to && c.group_of(out.channel[end]) == group;) end++;
      if (c.groups > 1) inputs = inputs_of(group, inputs.to);
      blocks(b, inputs, first, y * w.out_width, rows * w.out_width, j, end);
    }
  }

  // The inputs of a group; those of the groups before it end at `from` or earlier.
  GroupInputs inputs_of(int group, int from) const {
    const int low = group * c.group_inputs(), high = low + c.group_inputs();
    while (from < in.live && in.index[from] < low) from++;
    int to = from;
    while (to < in.live && in.index[to] < high) to++;
    return {from, to, low};
  }

  // Computes output channels [from, to) of one group at `pixels` pixels from `at` on.
  void blocks(ByteBlock& b, const GroupInputs& inputs, const float* first, long at, int pixels, int from, int to) const {
    b.quads = inputs.planes();
    b.tap_bytes = c.groups == 1 ? GatherPlan::tap_bytes(in.live) : (long)b.quads * kQuad;
    first += inputs.plane() * b.in_stride;
    const int vectors = (pixels + L - 1) / L;
    const int per_block = choose_byte_vectors(vectors, to - from, b.taps * b.quads), most = kByteChannels[per_block];
    const int together = kFinished / per_block * per_block;
    const int blocks = (to - from + most - 1) / most;
    const int even = (to - from + blocks - 1) / blocks;
    const int each = most % kQuad == 0 ? quads(even) * kQuad : even;  // whole planes of the result
    for (int j = from, T; j < to; j += T) {
      T = whole_planes(j, at_most(each, to - j), to);
      if (c.groups == 1)
        gather(j, T, b.tap_bytes);
      else
        gather_group(inputs, j, T, b.tap_bytes);
      for (int t = 0; t < T; t++)
        start[t] = c.zero == 0 ? 0 : -c.zero * sum_bytes(gathered + t * kGathered, b.taps * b.tap_bytes);
      const BytePlanes planes(c, out, j, T);
      for (int v = 0, end; v < vectors; v = end) {
        end = at_most(v + together, vectors);
        b.sum_stride = (end - v) * L;
        b.sums = sums;
        for (int u = v, P; u < end; u += P, b.sums += P * L) {
          P = at_most(per_block, end - u);
          b.in = first + u * L;
          kByteBlocks.at[P][T](b);
        }
        finish(c, out, planes, {sums, end - v, at + v * L, at_most((end - v) * L, pixels - v * L)});
      }
    }
  }

  // So many of the T output channels from j on that the last plane of the result is whole; T if it is the only one. A
  // plane that two blocks write is read and written twice.
  int whole_planes(int j, int T, int to) const {
    if (!c.to_bytes || j + T == to) return T;
    int whole = T;
    while (whole > 0 && out.place[j + whole] / kQuad == out.place[j + whole - 1] / kQuad) whole--;
    return whole > 0 ? whole : T;
  }

  // Gathers the weights of a block, and asks for those of the next one.
  void gather(int j, int T, long tap_bytes) const {
    WeightRows rows;
    rows.count = T, rows.taps = c.window.taps(), rows.step = c.step;
    for (int t = 0; t < T; t++) {
      rows.row[t] = c.weight + out.channel[j + t] * c.row();
      const int8_t* next = c.weight + out.channel[at_most(j + T + t, out.count - 1)] * c.row();
      for (long i = 0; i < c.row(); i += kWeightLine) __builtin_prefetch(next + i, 0, 2);
    }
    gather_rows(plan, in, rows, gathered, tap_bytes);
  }

  // The same for a group. Its first and last plane may hold channels of other groups, whose weights are zero.
  void gather_group(const GroupInputs& inputs, int j, int T, long tap_bytes) const {
    for (int t = 0; t < T; t++) {
      const int8_t* from = c.weight + out.channel[j + t] * c.row();
      char* to = gathered + t * kGathered;
      for (int k = 0; k < c.window.taps(); k++, from += c.step, to += tap_bytes) {
        for (long i = 0; i < tap_bytes; i++) to[i] = 0;
        for (int a = inputs.from; a < inputs.to; a++)
          to[a - inputs.plane() * kQuad] = (char)from[in.index[a] - inputs.first_channel];
      }
    }
  }
};

// The output channels of one sample that a thread computes where threads share the channels: those of whole planes.
struct ByteShare {
  int from = 0, to;
  ByteShare(const ByteOutputs& o, Share share, bool by_rows) : to(o.count) {
    if (by_rows || share.size == 1) return;
    const int planes = quads(o.places), low = share.from(planes) * kQuad, high = share.to(planes) * kQuad;
    while (from < o.count && o.place[from] < low) from++;
    to = from;
    while (to < o.count && o.place[to] < high) to++;
  }
};

// Threads share the rows if there are enough of them; else the channels, cut where a plane of four begins.
static void byte_conv(const ByteConv& c, const Map* const* in, const ByteOutputs* out, int samples, Scratch scratch,
                      Share share) {
  const ByteRoom room(c);
  float* at = scratch.floats;
  int* sums = reinterpret_cast<int*>(at + GatherPlan::floats(room.words));
  int* start = sums + kMostByteChannels * kFinished * L;
  char* gathered = reinterpret_cast<char*>(start + kByteStarts);
  float* copies = at + room.floats_before_copies();
  const int height = c.window.out_height;
  const bool by_rows = share.size > 1 && height >= 4 * share.size;
  const int top = by_rows ? share.from(height) : 0, bottom = by_rows ? share.to(height) : height;
  SmallSample small[kMostSamples];
  const Map* small_in[kMostSamples];
  int smalls = 0;
  for (int s = 0; s < samples; s++) {
    const ByteOutputs& o = out[s];
    const ByteShare mine(o, share, by_rows);
    if (mine.from == mine.to) continue;
    if (is_small(c) && pays_small(c, in[s]->live)) {
      small_in[smalls] = in[s];
      small[smalls++] = {&o, nullptr, mine.from, mine.to};
      continue;
    }
    if (c.depth) {
      depth_sample(c, *in[s], o, mine.from, mine.to, top, bottom, scratch.floats);
      continue;
    }
    const GatherPlan plan(c.groups == 1 ? *in[s] : Map{}, at);
    const ByteWork work{c, *in[s], o, plan, sums, start, gathered, copies};
    const int rows = byte_rows(c.window, at_least(quads(in[s]->live), 1), by_rows ? share.size : 1);
    for (int y = top; y < bottom; y += rows) work.band(y, at_most(rows, bottom - y), mine.from, mine.to);
  }
  if (smalls) small_conv(c, small, small_in, smalls, top, bottom, copies);
}

}  // namespace SANP_NAMESPACE
