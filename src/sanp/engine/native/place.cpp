// Puts weights into the order in which the kernels read them, and decides what memory values and threads get.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernels/schemes.hpp"
#include "program.hpp"
#include "team.hpp"
#include "workspace.hpp"

namespace sanp {

Program::Program() = default;
Program::~Program() {
  for (auto& team : teams)
    if (team && !team->alive()) (void)team.release();  // after a fork it has no threads to end
}

const float* keep(Program& p, const float* data, long count) {
  p.weights.emplace_back(count + 16);
  std::copy(data, data + count, p.weights.back().data());
  return p.weights.back().data();
}

namespace {

// G g G^T for one filter g, where G is the scheme's matrix.
template <class Q>
void transform_filter(const float* g, float (&out)[Q::N * Q::N]) {
  constexpr auto& G = Q::filter;
  constexpr int K = Q::K;
  double half[Q::N][K]{};
  for (int r = 0; r < Q::N; r++)
    for (int x = 0; x < K; x++)
      for (int y = 0; y < K; y++) half[r][x] += G[r][y] * g[y * K + x];
  for (int r = 0; r < Q::N; r++)
    for (int c = 0; c < Q::N; c++) {
      double sum = 0;
      for (int x = 0; x < K; x++) sum += half[r][x] * G[c][x];
      out[r * Q::N + c] = (float)sum;
    }
}

// Winograd by tiles is left out with fewer tiles than this: most lanes would be empty.
constexpr long kFewestTiles = 8;

// A convolution of the scheme's window and stride, without groups or dilation.
template <class Q>
bool is_of(const Conv& c) {
  const Window& w = c.window;
  return w.kernel_y == Q::K && w.kernel_x == Q::K && w.dilation_y == 1 && w.dilation_x == 1 && c.groups == 1 &&
         w.stride_y == Q::stride && w.stride_x == Q::stride;
}

template <class Q>
long tiles_of(const Window& w) {
  return (long)((w.out_height + Q::M - 1) / Q::M) * ((w.out_width + Q::M - 1) / Q::M);
}

// Memory for the weights of an algorithm that applies: a row for each output channel.
float* place_rows(Program& p, ConvOp& op, Algorithm algorithm) {
  Weights& weights = op.conv.weights[(int)algorithm];
  op.weights[(int)algorithm] = (int)p.weights.size();
  p.weights.emplace_back(op.conv.out_channels * weights.row + 16);
  weights.data = p.weights.back().data();
  return p.weights.back().data();
}

// The floats of a row, or 0 if the scheme does not apply.
template <class Q>
long winograd_row(const Conv& c) {
  if (!is_of<Q>(c) || tiles_of<Q>(c.window) < kFewestTiles) return 0;
  return odd_lines((long)Sums<Q>::frequencies * frequency_step<Q>(c));
}

// Calls put(out, in, frequencies) for every filter, which lies where direct convolution reads it.
template <class Q, class Put>
void each_filter(const Conv& c, const Put& put) {
  const Weights& filters = c.of(Algorithm::direct);
  float spectrum[Q::N * Q::N];
  for (int o = 0; o < c.out_channels; o++)
    for (int i = 0; i < c.in_channels; i++) {
      transform_filter<Q>(filters.data + o * filters.row + (long)i * Q::K * Q::K, spectrum);
      put(o, i, spectrum);
    }
}

template <class Q>
void place_winograd(Program& p, ConvOp& op) {
  const Conv& c = op.conv;
  static constexpr Sums<Q> plan{};
  float* to = place_rows(p, op, Q::algorithm);
  const long row = c.of(Q::algorithm).row, step = frequency_step<Q>(c);
  each_filter<Q>(c, [&](int o, int i, const float* spectrum) {
    for (int s = 0; s < plan.count; s++)
      for (int k = 0; k < plan.taps[s]; k++)
        to[o * row + plan.before[s] * step + (long)i * plan.taps[s] + k] =
            spectrum[plan.frequency[plan.before[s] + k]];
  });
}

// Winograd by lanes is left out with more tiles than this: vectors of whole tiles are faster.
constexpr long kMostLaneTiles = 16;

long lanes_row(const Conv& c) {
  using Q = Winograd2;
  if (!is_of<Q>(c) || tiles_of<Q>(c.window) > kMostLaneTiles) return 0;
  return odd_lines((long)c.in_channels * Q::N * Q::N);
}

void place_lanes(Program& p, ConvOp& op) {
  constexpr int frequencies = Winograd2::N * Winograd2::N;
  float* to = place_rows(p, op, Algorithm::lanes);
  const long row = op.conv.of(Algorithm::lanes).row;
  each_filter<Winograd2>(op.conv, [&](int o, int i, const float* spectrum) {
    std::copy(spectrum, spectrum + frequencies, to + o * row + (long)i * frequencies);
  });
}

}  // namespace

void place_conv_weights(Program& p, ConvOp& op, const float* weight, const float* bias) {
  Conv& c = op.conv;
  const long each = (long)(c.in_channels / c.groups) * c.window.taps();
  c.bias = keep(p, bias, c.out_channels);
  c.step = (c.in_channels + 15) / 16 * 16;
  std::fill(std::begin(op.weights), std::end(op.weights), -1);
  const auto row = [&](Algorithm a) -> long& { return c.weights[(int)a].row; };
  row(Algorithm::direct) = odd_lines(each);
  row(Algorithm::winograd2) = winograd_row<Winograd2>(c);
  row(Algorithm::winograd4) = winograd_row<Winograd4>(c);
  row(Algorithm::strided2) = winograd_row<Strided2>(c);
  row(Algorithm::strided7) = winograd_row<Strided7>(c);
  row(Algorithm::lanes) = lanes_row(c);
  float* to = place_rows(p, op, Algorithm::direct);
  for (int o = 0; o < c.out_channels; o++)
    std::copy(weight + o * each, weight + (o + 1) * each, to + o * row(Algorithm::direct));
}

void choose_algorithm(Program& p, ConvOp& op, Algorithm algorithm) {
  op.algorithm = algorithm;
  if (op.conv.of(algorithm).data) return;
  switch (algorithm) {
    case Algorithm::winograd2: return place_winograd<Winograd2>(p, op);
    case Algorithm::winograd4: return place_winograd<Winograd4>(p, op);
    case Algorithm::strided2: return place_winograd<Strided2>(p, op);
    case Algorithm::strided7: return place_winograd<Strided7>(p, op);
    case Algorithm::lanes: return place_lanes(p, op);
    default: throw Error("an algorithm has no weights");
  }
}

void settle_weights(Program& p) {
  long total = 0;
  auto floats = [&](const ConvOp& op) { return p.weights[op.weights[(int)op.algorithm]].size(); };
  for (const Op& op : p.ops)
    if (auto* c = std::get_if<ConvOp>(&op.kind)) total += odd_lines(floats(*c));
  p.weights.emplace_back(total + 16);
  float* to = p.weights.back().data();
  for (Op& op : p.ops) {
    auto* c = std::get_if<ConvOp>(&op.kind);
    if (!c) continue;
    const Floats& chosen = p.weights[c->weights[(int)c->algorithm]];
    std::copy(chosen.data(), chosen.data() + chosen.size(), to);
    for (int a = 0; a < (int)Algorithm::count; a++)
      c->conv.weights[a] = a == (int)c->algorithm ? Weights{to, c->conv.weights[a].row} : Weights{};
    to += odd_lines(chosen.size());
    for (int& at : c->weights)
      if (at >= 0) p.weights[at] = Floats();
    std::fill(std::begin(c->weights), std::end(c->weights), -1);
  }
  plan_ahead(p);
}

const float* place_linear_weights(Program& p, int out, int in, const float* weight) {
  const long blocks = (out + kLinearBlock - 1) / kLinearBlock;
  p.weights.emplace_back(blocks * in * kLinearBlock + 16);
  float* to = p.weights.back().data();
  constexpr long line = 16;  // floats: the lines of a block's rows are read whole
  for (long b = 0; b < blocks; b++)
    for (long first = 0; first < in; first += line)
      for (long o = b * kLinearBlock; o < std::min<long>(out, (b + 1) * kLinearBlock); o++)
        for (long i = first; i < std::min<long>(in, first + line); i++)
          to[(b * in + i) * kLinearBlock + o % kLinearBlock] = weight[o * in + i];
  return to;
}

namespace {

constexpr long kReadPast = 8 * 16 + 16;  // floats that the widest kernels may read past a plane

// Puts a value at the first gap among the placed values that are in use at the same time.
void place_value(std::vector<int>& placed, Program& p, int v) {
  Value& value = p.values[v];
  std::vector<std::pair<long, long>> taken;
  for (int other : placed) {
    const Value& o = p.values[other];
    if (o.first_use <= value.last_use && value.first_use <= o.last_use)
      taken.push_back({o.offset, o.offset + o.floats});
  }
  std::sort(taken.begin(), taken.end());
  long at = 0;
  for (auto [begin, end] : taken) {
    if (at + value.floats <= begin) break;
    at = std::max(at, end);
  }
  value.offset = at;
  p.arena = std::max(p.arena, at + value.floats);
  placed.push_back(v);
}

long scratch_of(const Program& p, const Op& op) {
  if (auto* c = std::get_if<ConvOp>(&op.kind)) {
    long most = 0;
    for (int a = 0; a < (int)Algorithm::count; a++)
      if (c->conv.weights[a].row) most = std::max(most, p.kernels->conv_scratch(c->conv, (Algorithm)a));
    return most;
  }
  if (auto* c = std::get_if<ByteConvOp>(&op.kind)) return p.byte_kernels->conv_scratch(c->conv);
  if (auto* pool = std::get_if<BytePoolOp>(&op.kind)) return p.byte_kernels->pool_scratch(pool->window);
  if (auto* a = std::get_if<ByteAverageOp>(&op.kind)) return p.byte_kernels->pool_scratch(a->average.window);
  if (auto* g = std::get_if<GateOp>(&op.kind))
    return g->gate.in_channels + 3L * g->gate.hidden + 3L * g->gate.out_channels + 96;
  if (auto* pool = std::get_if<PoolOp>(&op.kind)) return p.kernels->pool_scratch(pool->pool);
  return 0;
}

}  // namespace

void plan_memory(Program& p) {
  for (int i = 0; i < (int)p.ops.size(); i++) {
    for (int v : p.ops[i].in) p.values[v].last_use = i;
    if (p.ops[i].out >= 0) p.values[p.ops[i].out].first_use = p.values[p.ops[i].out].last_use = i;
    p.scratch = std::max(p.scratch, scratch_of(p, p.ops[i]));
  }
  p.scratch = (p.scratch + kReadPast + 15) / 16 * 16;
  std::vector<int> order;
  for (int v = 0; v < (int)p.values.size(); v++) {
    Value& value = p.values[v];
    const long pixels = (long)value.height * value.width;
    value.stride = pixels == 1 ? 1 : odd_lines(pixels);
    const long planes = value.bytes ? quads(value.channels) : value.channels;
    value.floats = (planes * value.stride + kReadPast + 15) / 16 * 16;
    if (value.first_use >= 0) order.push_back(v);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return p.values[a].floats > p.values[b].floats; });
  std::vector<int> placed;
  for (int v : order) place_value(placed, p, v);
  constexpr long budget = 2L << 20;  // floats that the maps of a chunk may take: about a third-level cache's share
  p.chunk = (int)std::clamp(budget / std::max(p.arena, 1L), 1L, (long)kMostSamples);
}

}  // namespace sanp
