// Elements in another order: crops, mirrored edges, shuffled pixels, repeated numbers, zeros in between.
#include "operators.hpp"

namespace sanp {
namespace {

// A plane of which every element lies in one plane of the input; `from` is where the row begins.
void copy_plane(const GatherOp& o, const float* from, float* to) {
  const int columns = (int)o.columns.size();
  for (int p = 0; p < columns;) {
    const int first = o.columns[p].pixel;
    int run = 1;
    if (first < 0) {
      to[p++] = 0;
      continue;
    }
    while (p + run < columns && o.columns[p + run].pixel == first + run) run++;
    if (run == 1)
      to[p] = from[first];
    else
      std::copy_n(from + first, run, to + p);
    p += run;
  }
}

}  // namespace

void Run::operator()(const GatherOp& o) const {
  const Map& in = map(op.in[0]);
  Map& out = map(op.out);
  std::vector<const float*> plane(in.channels, nullptr);
  for (int a = 0; a < in.live; a++) plane[in.index[a]] = in.data + a * in.stride;
  const int pixels = out.pixels();
  const bool by_channel = (int)o.rows.size() == out.channels && (int)o.columns.size() == pixels;
  const auto at = [&](GatherOp::Place row, GatherOp::Place column) {
    if (row.channel < 0 || column.channel < 0) return 0.f;
    const float* from = plane[row.channel + column.channel];
    return from ? from[row.pixel + column.pixel] : 0.f;
  };
  const auto live = [&](int c) {
    if (by_channel && o.rows[c].channel < 0) return false;
    if (by_channel)
      return std::any_of(o.reach.begin(), o.reach.end(), [&](int k) { return plane[o.rows[c].channel + k]; });
    return std::any_of(o.rows.begin() + (long)c * pixels, o.rows.begin() + (c + 1L) * pixels,
                       [&](GatherOp::Place row) { return row.channel >= 0 && plane[row.channel + o.columns[0].channel]; });
  };
  int slot = 0;
  for (int c = 0; c < out.channels; c++) {
    if (!o.reach.size() || !live(c)) continue;
    float* to = out.data + slot * out.stride;
    if (mine(slot)) {
      if (by_channel && o.reach.size() == 1)
        copy_plane(o, plane[o.rows[c].channel + o.reach[0]] + o.rows[c].pixel, to);
      else
        for (int p = 0; p < pixels; p++)
          to[p] = by_channel ? at(o.rows[c], o.columns[p]) : at(o.rows[(long)c * pixels + p], o.columns[0]);
    }
    if (first_rank()) out.index[slot] = c;
    slot++;
  }
  if (first_rank()) out.live = slot;
}

}  // namespace sanp
