// The Saliency-and-Pruning Module (PAPER 3.2, eq. 3 and 4) and fully connected layers: lanes are outputs here.
#include "pointwise.hpp"

namespace SANP_NAMESPACE {

static inline void add_scaled(float* to, const float* row, float by, int count) {
  for (int i = 0; i < count; i++) to[i] += row[i] * by;
}

static int largest(const float* v, int count) {
  int best = 0;
  for (int i = 1; i < count; i++)
    if (v[i] > v[best]) best = i;
  return best;
}

// Marks the `top` largest, the lower index first among equals.
static void mark_top(const float* score, int count, int top, float* open) {
  for (int j = 0; j < count; j++) open[j] = 0;
  for (int n = 0; n < top; n++) {
    int best = -1;
    for (int j = 0; j < count; j++)
      if (open[j] == 0 && (best < 0 || score[j] > score[best])) best = j;
    open[best] = 1;
  }
}

static void mark_positive(const float* score, int count, float* open) {
  bool any = false;
  for (int j = 0; j < count; j++) {
    open[j] = score[j] > 0 ? 1.f : 0.f;
    any |= score[j] > 0;
  }
  if (!any) open[largest(score, count)] = 1;  // an empty layer would be dead
}

// Neighbouring channels in groups of `group` decide together, by the mean of their scores.
static void decide(const Gate& g, const float* saliency, float* room, Decision& d) {
  const int count = g.out_channels / g.group;
  float* score = room;
  float* open = room + count;
  for (int j = 0; j < count; j++) {
    float total = 0;
    for (int i = j * g.group; i < (j + 1) * g.group; i++) total += saliency[i] - g.threshold[i];
    score[j] = g.group == 1 ? total : total / (float)g.group;
  }
  if (g.top > 0)
    mark_top(score, count, g.top, open);
  else
    mark_positive(score, count, open);
  d.live = 0;
  for (int c = 0; c < g.out_channels; c++)
    if (open[c / g.group] != 0) d.channel[d.live] = c, d.scale[d.live++] = g.scales ? saliency[c] : 1.f;
}

static void gate(const Gate& g, Descriptor descriptor, const Map& in, Decision& d, Scratch scratch) {
  float* hidden = scratch.floats;
  float* saliency = hidden + (g.hidden + 15) / 16 * 16;
  float* room = saliency + (g.out_channels + 15) / 16 * 16;
  for (int j = 0; j < g.out_channels; j++) saliency[j] = g.b2[j];
  if (g.hidden > 0) {
    for (int h = 0; h < g.hidden; h++) hidden[h] = g.b1[h];
    const float share = 1.f / in.pixels();
    for (int a = 0; a < in.live; a++) {
      const float* plane = in.data + a * in.stride;
      const float total = descriptor == Descriptor::mean ? sum(plane, in.pixels()) : sum_absolute(plane, in.pixels());
      add_scaled(hidden, g.w1 + (long)in.index[a] * g.hidden, total * share, g.hidden);
    }
    for (int h = 0; h < g.hidden; h++)
      if (!(hidden[h] <= 0)) add_scaled(saliency, g.w2 + (long)h * g.out_channels, hidden[h], g.out_channels);
  }
  decide(g, saliency, room, d);
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
      for (int v = 0; v < V && v * L < here; v++) {
        vf y = acc[0][v] + acc[1][v];
        if (l.act.kind != Act::prelu) y = apply(l.act, 0, y);
        const int first = n * kLinearBlock + v * L;
        for (int i = 0; i < at_most(L, here - v * L); i++) {
          float value = y[i];
          if (l.act.kind == Act::prelu && value < 0) value *= l.act.slope[first + i];
          out[s]->data[(first + i) * out[s]->stride] = value;
        }
      }
    }
  }
}

}  // namespace SANP_NAMESPACE
