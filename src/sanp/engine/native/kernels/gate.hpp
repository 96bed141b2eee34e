// The Saliency-and-Pruning Module (section 3.2 of the paper, equations 5 and 6) and fully connected layers. Lanes are
// outputs.
#pragma once
#include "planes.hpp"

namespace SANP_NAMESPACE {

constexpr int kRowsAhead = 8;  // rows are prefetched so far ahead: the lists of live channels skip some

// V vectors of to[i] = start[i] + sum over a of rows[index[a]][i] * by[a]. Rows are `count` long.
template <int V>
static inline void add_columns(const float* start, const float* rows, const int* index, const float* by, int many,
                               float* to, long count) {
  vf even[V], odd[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; v++) even[v] = load(start + v * L), odd[v] = vf{};
  int a = 0;
  for (; a + 2 <= many; a += 2) {
    const float *first = rows + index[a] * count, *second = rows + index[a + 1] * count;
    if (V > 1 && a + kRowsAhead + 1 < many)
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) {
        __builtin_prefetch(rows + index[a + kRowsAhead] * count + v * L);
        __builtin_prefetch(rows + index[a + kRowsAhead + 1] * count + v * L);
      }
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
      even[v] += load(first + v * L) * by[a];
      odd[v] += load(second + v * L) * by[a + 1];
    }
  }
  if (a < many)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) even[v] += load(rows + index[a] * count + v * L) * by[a];
#pragma GCC unroll 8
  for (int v = 0; v < V; v++) store(to + v * L, even[v] + odd[v]);
}

// All of to[0] to to[count - 1]. Rows are followed by room for a vector. Eight cache lines of a row are read together:
// with fewer, the processor does not see the order in which it is read.
static void add_rows(const float* start, const float* rows, const int* index, const float* by, int many, float* to,
                     int count, Share share) {
  constexpr int wide = SANP_REGISTERS >= 32 ? 8 : 4;
  const int vectors = (count + L - 1) / L, last = share.to(vectors);
  int v = share.from(vectors);
  for (; v + wide <= last; v += wide)
    add_columns<wide>(start + v * L, rows + v * L, index, by, many, to + v * L, count);
  for (; v < last; v++) add_columns<1>(start + v * L, rows + v * L, index, by, many, to + v * L, count);
}

static int largest(const float* v, int count) {
  int best = 0;
  for (int i = 1; i < count; i++)
    if (v[i] > v[best]) best = i;
  return best;
}

// Marks the `top` largest scores, of equal ones the first.
static void mark_top(const float* score, int count, int top, float* open) {
  for (int j = 0; j < count; j++) open[j] = 0;
  for (int n = 0; n < top; n++) {
    int best = -1;
    for (int j = 0; j < count; j++)
      if (open[j] == 0 && (best < 0 || score[j] > score[best])) best = j;
    open[best] = 1;
  }
}

// Marks the positive scores, or the largest if none is positive.
static void mark_positive(const float* score, int count, float* open) {
  int marked = 0;
  for (int j = 0; j < count; j++) {
    open[j] = score[j] > 0 ? 1.f : 0.f;
    marked += score[j] > 0 ? 1 : 0;
  }
  if (marked == 0) open[largest(score, count)] = 1;  // without any channel nothing would come through the layer
}

static inline float bounded(float s, float most) { return s > most ? most : s; }  // NaN stays NaN

// The scores of groups of neighbouring channels: the mean of saliency minus threshold, which is `lift` higher.
static void score_groups(const Gate& g, const float* saliency, float lift, float* score) {
  const int count = g.out_channels / g.group;
  if (g.group == 1) {
    for (int j = 0; j < count; j++) score[j] = saliency[j] - (g.threshold[j] + lift);
    return;
  }
  for (int j = 0; j < count; j++) {
    float total = 0;
    for (int i = j * g.group; i < (j + 1) * g.group; i++) total += saliency[i] - (g.threshold[i] + lift);
    score[j] = total / (float)g.group;
  }
}

// Lists the open channels. `g` and `list` are copies, so that the compiler knows that no store changes them.
static void decide(const Gate g, const float* saliency, float* room, Decision& d) {
  const int count = g.out_channels / g.group;
  float* score = room;
  float* open = room + count;
  score_groups(g, saliency, d.lift, score);
  if (d.score)
    for (int j = 0; j < count; j++) d.score[j] = score[j];
  if (d.forced)
    for (int j = 0; j < count; j++) open[j] = d.forced[j * g.group] ? 1.f : 0.f;
  else if (g.top > 0)
    mark_top(score, count, g.top, open);
  else
    mark_positive(score, count, open);
  const Decision list = d;
  int live = 0;
  const auto keep = [&](int c, bool kept) {  // writes in any case, which is faster than a branch
    list.channel[live] = c;
    list.scale[live] = g.scales ? bounded(saliency[c], g.most) : 1.f;
    live += kept;
  };
  for (int j = 0; j < count; j++) {
    if (g.group == 1)
      keep(j, open[j] != 0);
    else
      for (int c = j * g.group; c < (j + 1) * g.group; c++) keep(c, open[j] != 0);
  }
  d.live = live;
}

static inline float* aligned(float* room, long used) { return room + (used + 15) / 16 * 16; }

constexpr long kWorthSharing = 1 << 14;  // multiplications of a gate: with fewer, threads would wait longer

// A team shares the means of the inputs, and the hidden units and saliencies if they are many. Its first thread
// decides.
static void gate(const Gate& g, Descriptor descriptor, const Map& in, Decision& d, Scratch scratch, Share share) {
  float* means = scratch.common;
  float* hidden = aligned(means, in.channels);
  float* saliency = aligned(hidden, g.hidden);
  float* room = scratch.floats + (aligned(saliency, g.out_channels) - scratch.common);
  const bool together = share.size > 1 && (long)g.hidden * (in.live + g.out_channels) >= kWorthSharing;
  const Share rest = together ? share : Share{0, 1, nullptr};
  if (g.hidden > 0) {
    const float part = 1.f / in.pixels();
    for (int a = share.from(in.live); a < share.to(in.live); a++) {
      const float* plane = in.data + a * in.stride;
      means[a] = part * (descriptor == Descriptor::mean ? sum(plane, in.pixels()) : sum_absolute(plane, in.pixels()));
    }
    share.meet();
  }
  if (!together && share.rank > 0) return;
  if (g.hidden > 0) {
    add_rows(g.b1, g.w1, in.index, means, in.live, hidden, g.hidden, rest);
    if (together) share.meet();
  }
  int* alive = reinterpret_cast<int*>(room);  // the hidden units that are not zero, NaN among them
  float* values = aligned(room, g.hidden);
  int count = 0;
  for (int h = 0; h < g.hidden; h++) {
    alive[count] = h;
    values[count] = hidden[h];
    count += !(hidden[h] <= 0);
  }
  add_rows(g.b2, g.w2, alive, values, count, saliency, g.out_channels, rest);
  if (together) share.meet();
  if (share.rank == 0) decide(g, saliency, room, d);
}

// A block of outputs stays in registers while the live inputs of every sample go by, so weights are read once a batch.
static void linear(const Linear& l, const Map* const* in, const Map* const* out, int samples, Share share) {
  constexpr int V = kLinearBlock / L;
  const int blocks = (l.out_features + kLinearBlock - 1) / kLinearBlock;
  for (int n = share.rank; n < blocks; n += share.size) {
    const float* weight = l.weight + (long)n * l.in_features * kLinearBlock;
    const int here = at_most(kLinearBlock, l.out_features - n * kLinearBlock);
    float bias[kLinearBlock] = {};
    for (int i = 0; i < here; i++) bias[i] = l.bias[n * kLinearBlock + i];
    for (int s = 0; s < samples; s++) {
      vf acc[2][V];
      for (int v = 0; v < V; v++) acc[0][v] = load(bias + v * L), acc[1][v] = vf{};
      const Map& x = *in[s];
      int a = 0;
      for (; a + 2 <= x.live; a += 2)
        for (int u = 0; u < 2; u++) {
          const float* row = weight + (long)x.index[a + u] * kLinearBlock;
          const float value = x.data[(a + u) * x.stride];
          for (int v = 0; v < V; v++) acc[u][v] += load(row + v * L) * value;
        }
      if (a < x.live)
        for (int v = 0; v < V; v++)
          acc[0][v] += load(weight + (long)x.index[a] * kLinearBlock + v * L) * x.data[a * x.stride];
      float y[kLinearBlock];
      for (int v = 0; v < V; v++) store(y + v * L, acc[0][v] + acc[1][v]);
      if (l.act.kind == Act::prelu)
        for (int i = 0; i < here; i++) y[i] *= y[i] < 0 ? l.act.slope[n * kLinearBlock + i] : 1.f;
      else
        activate(l.act, 0, y, y, here);
      for (int i = 0; i < here; i++) out[s]->data[(n * kLinearBlock + i) * out[s]->stride] = y[i];
    }
  }
}

}  // namespace SANP_NAMESPACE
