#include "cap.hpp"

#include <algorithm>
#include <cmath>

#include "reader.hpp"

namespace sanp {
namespace {

// A number of channels, or of other things that a count of multiply-adds is made of.
int64_t amount(Reader& r) {
  const int64_t n = r.number();
  if (n < 0 || n > (int64_t)1 << 40) fail("a number of a cap is out of range");
  return n;
}

LayerSide read_side(Reader& r, int gates) {
  LayerSide side{amount(r), amount(r), {}};
  const int parts = r.within(0, gates, "a number of gates");
  for (int i = 0; i < parts; i++) {
    const int gate = r.within(0, gates - 1, "a gate");
    const int64_t each = r.size("a number of channels"), most = r.size("a number of channels");
    side.parts.push_back({gate, each, most});
  }
  return side;
}

int64_t live(const LayerSide& side, const int* counts, int gate, int open) {
  int64_t found = side.fixed;
  for (const GateReach& part : side.parts)
    found += std::min(part.each * (part.gate == gate ? open : counts[part.gate]), part.most);
  return std::min(found, side.width);
}

// The most that an image can cost if the gate `gate` opens `open` channels.
int64_t bound(const Cap& cap, const int* counts, int gate, int open) {
  int64_t total = 0;
  for (const ConvBound& c : cap.convs) {
    const int64_t inputs = std::min(live(c.inputs, counts, gate, open), c.most_inputs);
    total += c.positions * (inputs * c.taps + 1) * live(c.outputs, counts, gate, open);
  }
  return total;
}

}  // namespace

std::unique_ptr<Cap> read_cap(const int64_t* code, long count) {
  Reader r(code, count, GivenWeights{});
  auto cap = std::make_unique<Cap>();
  cap->limit = r.number();
  const int gates = r.within(1, 1 << 20, "a number of gates"), convs = r.within(1, 1 << 20, "a number of convolutions");
  long double most = 0;  // so that no sum overflows
  for (int i = 0; i < convs; i++) {
    ConvBound c{amount(r), amount(r), amount(r), read_side(r, gates), {}};
    c.outputs = read_side(r, gates);
    most += (long double)c.positions * ((long double)c.most_inputs * c.taps + 1) * (long double)c.outputs.width;
    cap->convs.push_back(std::move(c));
  }
  if (most > 4e18L) fail("a cap is of a network with too many multiply-adds to count");
  for (int i = 0; i < gates; i++) cap->reserve.push_back(r.size("a reserve"));
  if (!r.done()) fail("a cap has more numbers than it needs");
  return cap;
}

int most_open(const Cap& cap, const int* counts, int gate, int wanted) {
  int low = cap.reserve[gate], high = wanted;  // `low` fits, nothing above `high` is wanted
  if (wanted <= low) return wanted;
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (bound(cap, counts, gate, middle) <= cap.limit)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

void keep_best(Decision& d, const float* score, int group, int most) {
  std::vector<int> open;
  for (int i = 0; i < d.live; i += group) open.push_back(d.channel[i] / group);
  const int kept = most / group;
  if (kept >= (int)open.size()) return;
  const auto value = [&](int j) { return std::isnan(score[j]) ? -INFINITY : score[j]; };
  const auto before = [&](int a, int b) { return value(a) != value(b) ? value(a) > value(b) : a < b; };
  std::nth_element(open.begin(), open.begin() + kept, open.end(), before);
  std::sort(open.begin(), open.begin() + kept);
  int live = 0, next = 0;
  for (int i = 0; i < d.live && next < kept; i++) {
    if (d.channel[i] / group != open[next]) continue;
    d.channel[live] = d.channel[i];
    d.scale[live++] = d.scale[i];
    if (d.channel[i] % group == group - 1) next++;
  }
  d.live = live;
}

}  // namespace sanp
