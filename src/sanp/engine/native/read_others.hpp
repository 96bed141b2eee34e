// Reads the operators that few networks have: elements in another order, norms over pixels, softmax, other sizes.
#pragma once
#include <algorithm>

#include "reader.hpp"

namespace sanp {

template <class Builder>
Op read_gather(Builder& b) {
  const int in = b.source(), out = b.target();
  const Value &from = b.value(in), &to = b.value(out);
  const int64_t pixels = (int64_t)from.height * from.width, elements = pixels * from.channels;
  const int64_t made = (int64_t)to.channels * to.height * to.width;
  GatherOp op;
  const int64_t rows = b.r.within(1, made, "the number of rows");
  if (rows != to.channels && rows != made) fail("rows are neither channels nor elements");
  auto place = [&](int64_t at) {
    return at < 0 ? GatherOp::Place{-1, -1} : GatherOp::Place{(int)(at / pixels), (int)(at % pixels)};
  };
  GatherOp::Place far{0, 0}, farther{0, 0};
  for (int64_t i = 0; i < rows; i++) {
    op.rows.push_back(place(b.r.within(rows == made ? -1 : 0, elements - 1, "a place")));
    far = {std::max(far.channel, op.rows.back().channel), std::max(far.pixel, op.rows.back().pixel)};
  }
  for (int64_t i = 0; i < made / rows; i++) {
    op.columns.push_back(place(b.r.within(-1, elements - 1, "a place")));
    const GatherOp::Place& last = op.columns.back();
    farther = {std::max(farther.channel, last.channel), std::max(farther.pixel, last.pixel)};
    if (last.channel >= 0 && std::find(op.reach.begin(), op.reach.end(), last.channel) == op.reach.end())
      op.reach.push_back(last.channel);
  }
  if (far.channel + (int64_t)farther.channel >= from.channels || far.pixel + (int64_t)farther.pixel >= pixels)
    fail("an element lies outside its value");
  return {{in}, out, op};
}

template <class Builder>
Op read_instance_norm(Builder& b) {
  const int in = b.source(), out = b.target();
  b.same_shape(in, out, "an instance norm");
  const long n = b.value(in).channels;
  InstanceNormOp op{};
  op.gate = b.r.within(-1, (int64_t)b.p.gate_channels.size() - 1, "a gate");
  if (op.gate >= 0 && b.p.gate_channels[op.gate] != n) fail("a gate has another number of channels");
  op.scale = keep(b.p, b.r.floats(n), n);
  op.shift = keep(b.p, b.r.floats(n), n);
  op.eps = *b.r.floats(1);
  return {{in}, out, op};
}

template <class Builder>
Op read_softmax(Builder& b) {
  const int in = b.source(), out = b.target();
  b.same_shape(in, out, "a softmax");
  return {{in}, out, SoftmaxOp{b.r.flag()}};
}

template <class Builder>
Op read_resize(Builder& b) {
  const int in = b.source(), out = b.target();
  const Value &from = b.value(in), &to = b.value(out);
  if (from.channels != to.channels) fail("another size keeps the number of channels");
  ResizeOp op{};
  auto places = [&](std::vector<int>& list, int count, int size) {
    for (int i = 0; i < count; i++) list.push_back(b.r.within(0, size - 1, "a row or column"));
  };
  places(op.y0, to.height, from.height), places(op.y1, to.height, from.height);
  places(op.x0, to.width, from.width), places(op.x1, to.width, from.width);
  op.weight_y = keep(b.p, b.r.floats(to.height), to.height);
  op.weight_x = keep(b.p, b.r.floats(to.width), to.width);
  return {{in}, out, op};
}

template <class Builder>
Op read_unpool(Builder& b) {
  const int what = b.source(), where = b.source(), out = b.target();
  const Value &small = b.value(what), &large = b.value(where);
  b.same_shape(where, out, "putting numbers back");
  if (small.channels != large.channels) fail("pooling keeps the number of channels");
  return {{what, where}, out, UnpoolOp{b.window(large, small)}};
}

template <class Builder>
Op read_power(Builder& b) {
  const int in = b.source(), out = b.target();
  b.same_shape(in, out, "a power");
  return {{in}, out, PowerOp{*b.r.floats(1)}};
}

}  // namespace sanp
