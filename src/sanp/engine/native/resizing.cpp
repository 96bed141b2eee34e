// Maps of another size: bilinear interpolation, and numbers put back to where a maximum was found.
#include "operators.hpp"

namespace sanp {
namespace {

// One plane; `row` has room for a row of the input.
void interpolate(const ResizeOp& o, const float* from, const Map& in, float* to, const Map& out, float* row) {
  for (int y = 0; y < out.height; y++) {
    const float *a = from + (long)o.y0[y] * in.width, *b = from + (long)o.y1[y] * in.width;
    const float low = 1.f - o.weight_y[y], high = o.weight_y[y];
    for (int x = 0; x < in.width; x++) row[x] = low * a[x] + high * b[x];
    for (int x = 0; x < out.width; x++)
      *to++ = (1.f - o.weight_x[x]) * row[o.x0[x]] + o.weight_x[x] * row[o.x1[x]];
  }
}

// The place of the largest number under the window of output (y, x), the first of several; the first place where there
// is no plane, and -1 where the window has none.
long largest(const Window& w, const float* plane, int y, int x) {
  long best = -1;
  for (int j = 0; j < w.kernel_y; j++)
    for (int i = 0; i < w.kernel_x; i++) {
      const int row = y * w.stride_y - w.pad_y + j * w.dilation_y, column = x * w.stride_x - w.pad_x + i * w.dilation_x;
      if (row < 0 || row >= w.height || column < 0 || column >= w.width) continue;
      const long at = (long)row * w.width + column;
      if (best < 0 || (plane && (plane[at] > plane[best] || plane[at] != plane[at]))) best = at;
    }
  return best;
}

}  // namespace

void Run::operator()(const ResizeOp& o) const {
  const Map& in = map(op.in[0]);
  Map& out = map(op.out);
  std::vector<float> row(in.width);
  for (int a = 0; a < in.live; a++)
    if (mine(a)) interpolate(o, in.data + a * in.stride, in, out.data + a * out.stride, out, row.data());
  list_as(call, out, in);
}

void Run::operator()(const UnpoolOp& o) const {
  const Map &what = map(op.in[0]), &where = map(op.in[1]);
  Map& out = map(op.out);
  merge(what.channels, what.index, what.live, where.index, where.live, [&](int, int from, int place) {
    if (from < 0 || !mine(from)) return;
    const float* plane = place < 0 ? nullptr : where.data + place * where.stride;
    float* to = out.data + from * out.stride;
    fill_plane(to, 0, out.pixels());
    for (int y = 0; y < what.height; y++)
      for (int x = 0; x < what.width; x++) {
        const long at = largest(o.window, plane, y, x);
        if (at >= 0) to[at] = what.data[from * what.stride + y * what.width + x];
      }
  });
  list_as(call, out, what);
}

}  // namespace sanp
