// The Saliency-and-Pruning Module (section 3.2 of the paper, equations 5 and 6) and fully connected layers. Lanes are
// outputs.
#pragma once
#include "planes.hpp"

namespace SANP_NAMESPACE {

constexpr int kRowsTogether = 4;  // rows of weights that are added at a time
constexpr int kFetched = 64;      // vectors of each of them that are fetched ahead: memory is some hundred cycles away

// V vectors of to[i] = start[i] + sum over a of rows[index[a]][i] * by[a], in registers. Rows are `count` long.
template <int V>
static void add_short_rows(const float* start, const float* rows, const int* index, const float* by, int many,
                           float* to, long count) {
  constexpr int C = V <= 2 ? 4 : 2;  // sums of each vector: an addition waits for the one before it
  vf sum[C][V]{};
#pragma GCC unroll 8
  for (int v = 0; v < V; v++) sum[0][v] = load(start + v * L);
  int a = 0;
  for (; a + C <= many; a += C)
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) {
      const float* row = rows + index[a + c] * count;
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) sum[c][v] += load(row + v * L) * by[a + c];
    }
  for (; a < many; a++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) sum[0][v] += load(rows + index[a] * count + v * L) * by[a];
#pragma GCC unroll 8
  for (int v = 0; v < V; v++) {
#pragma GCC unroll 4
    for (int c = 1; c < C; c++) sum[0][v] += sum[c][v];
    store(to + v * L, sum[0][v]);
  }
}

// The same for rows of any number of vectors: each row is read from its first to its last number, as memory likes it,
// and the sums are in the first-level cache. Meanwhile the next rows are fetched.
static void add_long_rows(const float* start, const float* rows, const int* index, const float* by, int many, float* to,
                          long count, int vectors) {
  constexpr int R = kRowsTogether;
  const int ahead = R * at_least(1, kFetched / vectors);
  for (int v = 0; v < vectors; v++) store(to + v * L, load(start + v * L));
  for (int a = 0; a < many; a += R) {
    const float *row[R], *next[R];
    float factor[R];
    const int here = at_most(R, many - a);
    for (int r = 0; r < here; r++) {
      row[r] = rows + index[a + r] * count;
      factor[r] = by[a + r];
      next[r] = rows + index[at_most(a + ahead + r, many - 1)] * count;
    }
    if (here == R)
      for (int v = 0; v < vectors; v++) {
        vf sum = load(to + v * L);
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
          __builtin_prefetch(next[r] + v * L);
          sum += load(row[r] + v * L) * factor[r];
        }
        store(to + v * L, sum);
      }
    else
      for (int r = 0; r < here; r++)
        for (int v = 0; v < vectors; v++) store(to + v * L, load(to + v * L) + load(row[r] + v * L) * factor[r]);
  }
}

// All of to[0] to to[count - 1]. Rows are followed by room for a vector.
static void add_rows(const float* start, const float* rows, const int* index, const float* by, int many, float* to,
                     int count, Share share) {
  const int vectors = (count + L - 1) / L, v = share.from(vectors), here = share.to(vectors) - v;
  start += v * L, rows += v * L, to += v * L;
  switch (here) {
    case 0: return;
    case 1: return add_short_rows<1>(start, rows, index, by, many, to, count);
    case 2: return add_short_rows<2>(start, rows, index, by, many, to, count);
    case 3: return add_short_rows<3>(start, rows, index, by, many, to, count);
    case 4: return add_short_rows<4>(start, rows, index, by, many, to, count);
    case 5: return add_short_rows<5>(start, rows, index, by, many, to, count);
    case 6: return add_short_rows<6>(start, rows, index, by, many, to, count);
    default: return add_long_rows(start, rows, index, by, many, to, count, here);
  }
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
