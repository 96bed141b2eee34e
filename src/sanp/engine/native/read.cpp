// Reads a program from numbers and weights. Every number is checked here, so that the kernels need not check any.
#include "int8/read.hpp"
#include "read_others.hpp"
#include "reader.hpp"

namespace sanp {
namespace {

// Reads one operator after the other; each function reads the fields of the record of its name in
// lowering/operators.py.
struct Builder {
  Program& p;
  Reader& r;
  std::vector<char> written;

  Value& value(int v) { return p.values[v]; }
  // A value that has been written, of bytes or of floats.
  int source(bool bytes = false) {
    const int v = r.within(0, (int64_t)p.values.size() - 1, "a value");
    if (!written[v]) fail("value " + std::to_string(v) + " is read before it is written");
    if (value(v).bytes != bytes) fail("value " + std::to_string(v) + (bytes ? " is not of bytes" : " is of bytes"));
    return v;
  }
  int byte_source() { return source(true); }
  // A value that has not been written before.
  int target(bool bytes = false) {
    const int v = r.within(0, (int64_t)p.values.size() - 1, "a value");
    if (written[v]) fail("value " + std::to_string(v) + " is written twice");
    written[v] = 1;
    value(v).bytes = bytes;
    return v;
  }
  void same_shape(int a, int b, const char* what) {
    const Value &x = value(a), &y = value(b);
    if (x.channels != y.channels || x.height != y.height || x.width != y.width)
      fail(std::string(what) + " wants values of one shape");
  }
  Activation activation(int channels) {
    Activation act;
    act.kind = (Act)r.within(0, (int64_t)Act::count - 1, "an activation");
    const float* numbers = r.floats(2);
    act.a = numbers[0];
    act.b = numbers[1];
    if (act.kind == Act::prelu) act.slope = keep(p, r.floats(channels), channels);
    return act;
  }
  Window window(const Value& in, const Value& out) {
    Window w;
    w.height = in.height, w.width = in.width, w.out_height = out.height, w.out_width = out.width;
    w.kernel_y = r.size("a kernel"), w.kernel_x = r.size("a kernel");
    w.stride_y = r.size("a stride"), w.stride_x = r.size("a stride");
    w.pad_y = r.within(0, 1 << 20, "a padding"), w.pad_x = r.within(0, 1 << 20, "a padding");
    w.dilation_y = r.size("a dilation"), w.dilation_x = r.size("a dilation");
    if ((int64_t)w.kernel_y * w.kernel_x > 1024) fail("a kernel has more than 1024 taps");
    check_extent(w.height, w.out_height, w.kernel_y, w.stride_y, w.pad_y, w.dilation_y);
    check_extent(w.width, w.out_width, w.kernel_x, w.stride_x, w.pad_x, w.dilation_x);
    return w;
  }
  // Outputs and padding before the map say how far the last window reaches past it: by less than a stride too little,
  // or by as much padding as there may be.
  static void check_extent(int64_t in, int64_t out, int64_t k, int64_t s, int64_t pad, int64_t d) {
    const int64_t after = (out - 1) * s + d * (k - 1) + 1 - in - pad;
    if (after <= -s || after > d * (k - 1) + s + (1 << 10)) fail("a window does not give the size of its output");
  }

  Op conv() {
    const int in = source(), residual = r.within(-1, (int64_t)p.values.size() - 1, "a value");
    if (residual >= 0 && !written[residual]) fail("a residual is read before it is written");
    if (residual >= 0 && value(residual).bytes) fail("a residual is of bytes");
    const int out = target();
    ConvOp op{};
    Conv& c = op.conv;
    c.window = window(value(in), value(out));
    c.in_channels = value(in).channels;
    c.out_channels = value(out).channels;
    c.groups = r.size("a number of groups");
    if (c.in_channels % c.groups || c.out_channels % c.groups) fail("groups do not divide the channels");
    op.gate = r.within(-1, (int64_t)p.gate_channels.size() - 1, "a gate");
    if (op.gate >= 0 && p.gate_channels[op.gate] != c.out_channels) fail("a gate has another number of channels");
    op.follows = r.flag();
    op.scale_after = r.flag();
    if (op.scale_after && residual >= 0) fail("what is scaled after its activation has no residual");
    c.act = activation(c.out_channels);
    const float* weight = r.floats((long)c.out_channels * (c.in_channels / c.groups) * c.window.taps());
    place_conv_weights(p, op, weight, r.floats(c.out_channels));
    Op result{{in}, out, op};
    if (residual >= 0) {
      same_shape(residual, out, "an addition");
      result.in.push_back(residual);
    }
    return result;
  }

  Op gate() {
    const int in = source();
    GateOp op{};
    Gate& g = op.gate;
    g.in_channels = value(in).channels;
    g.out_channels = r.size("a gate's width");
    g.hidden = r.within(0, 1 << 20, "a gate's hidden width");
    g.scales = r.flag();
    g.group = r.size("a group of channels");
    if (g.out_channels % g.group) fail("a gate's groups do not divide its channels");
    g.top = r.within(0, g.out_channels / g.group, "the number of open channels");
    op.descriptor = r.flag() ? Descriptor::absolute_mean : Descriptor::mean;
    g.w1 = keep(p, r.floats((long)g.in_channels * g.hidden), (long)g.in_channels * g.hidden);
    g.b1 = keep(p, r.floats(g.hidden), g.hidden);
    g.w2 = keep(p, r.floats((long)g.hidden * g.out_channels), (long)g.hidden * g.out_channels);
    g.b2 = keep(p, r.floats(g.out_channels), g.out_channels);
    g.threshold = keep(p, r.floats(g.out_channels), g.out_channels);
    g.most = *r.floats(1);
    op.id = (int)p.gate_channels.size();
    p.gate_channels.push_back(g.out_channels);
    return {{in}, -1, op};
  }

  Op linear() {
    const int in = source(), out = target();
    LinearOp op{};
    Linear& l = op.linear;
    if (value(in).height * value(in).width != 1 || value(out).height * value(out).width != 1)
      fail("a linear layer wants vectors");
    l.in_features = value(in).channels;
    l.out_features = value(out).channels;
    l.act = activation(l.out_features);
    l.weight = place_linear_weights(p, l.out_features, l.in_features, r.floats((long)l.out_features * l.in_features));
    l.bias = keep(p, r.floats(l.out_features), l.out_features);
    return {{in}, out, op};
  }

  Op pool() {
    const int in = source(), out = target();
    PoolOp op{};
    if (value(in).channels != value(out).channels) fail("pooling keeps the number of channels");
    op.pool.window = window(value(in), value(out));
    op.pool.maximum = r.flag();
    const long pixels = (long)value(out).height * value(out).width;
    if (!op.pool.maximum) op.pool.inverse = keep(p, r.floats(pixels), pixels);
    return {{in}, out, op};
  }

  Op channels() {
    const int in = source(), out = target();
    ChannelsOp op;
    for (int c = 0; c < value(out).channels; c++) op.source.push_back(r.within(0, value(in).channels - 1, "a channel"));
    if (value(in).height != value(out).height || value(in).width != value(out).width)
      fail("choosing channels keeps the map's size");
    return {{in}, out, op};
  }

  Op concat() {
    const int count = r.within(1, 1 << 16, "a number of values");
    Op op{{}, -1, ConcatOp{}};
    int channels = 0;
    for (int i = 0; i < count; i++) op.in.push_back(source()), channels += value(op.in.back()).channels;
    op.out = target();
    for (int v : op.in)
      if (value(v).height != value(op.out).height || value(v).width != value(op.out).width)
        fail("concatenation wants maps of one size");
    if (channels != value(op.out).channels) fail("concatenation gives another number of channels");
    return op;
  }

  Op multiply() {
    const int a = source(), b = source(), out = target();
    same_shape(a, out, "a product");
    if (value(b).channels != value(a).channels) fail("a product wants one number of channels");
    if (value(b).height * value(b).width != 1) same_shape(a, b, "a product");
    return {{a, b}, out, MultiplyOp{}};
  }

  Op input() {
    const int out = target();
    p.inputs.push_back(out);
    return {{}, out, InputOp{(int)p.inputs.size() - 1}};
  }

  Op output() {
    const int in = source();
    p.outputs.push_back(in);
    return {{in}, -1, OutputOp{(int)p.outputs.size() - 1}};
  }

  Op adaptive() {
    const int in = source(), out = target();
    if (value(in).channels != value(out).channels) fail("pooling keeps the number of channels");
    return {{in}, out, AdaptiveOp{r.flag()}};
  }

  Op activate() {
    const int in = source(), out = target();
    same_shape(in, out, "an activation");
    return {{in}, out, ActivationOp{activation(value(in).channels)}};
  }

  Op add() {
    const int a = source(), b = source(), out = target();
    same_shape(a, b, "an addition");
    same_shape(a, out, "an addition");
    return {{a, b}, out, AddOp{activation(value(a).channels)}};
  }

  Op affine() {
    const int in = source(), out = target();
    same_shape(in, out, "an affine map");
    const long n = value(in).channels;
    AffineOp op{};
    op.scale = keep(p, r.floats(n), n);
    op.shift = keep(p, r.floats(n), n);
    op.fills = r.flag();
    op.act = activation((int)n);
    return {{in}, out, op};
  }

  Op layer_norm() {
    const int in = source(), out = target();
    same_shape(in, out, "a layer norm");
    const long n = value(in).channels;
    LayerNormOp op{};
    op.scale = keep(p, r.floats(n), n);
    op.shift = keep(p, r.floats(n), n);
    op.eps = *r.floats(1);
    return {{in}, out, op};
  }

  Op flatten() {
    const int in = source(), out = target();
    if ((int64_t)value(in).channels * value(in).height * value(in).width != value(out).channels ||
        value(out).height * value(out).width != 1)
      fail("flattening gives one number for every element");
    return {{in}, out, FlattenOp{}};
  }

  Op next() {
    switch ((Operator)r.number()) {
      case Operator::input: return input();
      case Operator::output: return output();
      case Operator::conv: return conv();
      case Operator::gate: return gate();
      case Operator::linear: return linear();
      case Operator::pool: return pool();
      case Operator::adaptive: return adaptive();
      case Operator::activation: return activate();
      case Operator::add: return add();
      case Operator::multiply: return multiply();
      case Operator::affine: return affine();
      case Operator::concat: return concat();
      case Operator::channels: return channels();
      case Operator::flatten: return flatten();
      case Operator::layer_norm: return layer_norm();
      case Operator::quantise: return read_quantise(*this);
      case Operator::dequantise: return read_dequantise(*this);
      case Operator::byte_conv: return read_byte_conv(*this);
      case Operator::byte_mean: return read_byte_mean(*this);
      case Operator::byte_pool: return read_byte_pool(*this);
      case Operator::byte_average: return read_byte_average(*this);
      case Operator::byte_combine: return read_byte_combine(*this);
      case Operator::gather: return read_gather(*this);
      case Operator::instance_norm: return read_instance_norm(*this);
      case Operator::softmax: return read_softmax(*this);
      case Operator::resize: return read_resize(*this);
      case Operator::unpool: return read_unpool(*this);
      case Operator::power: return read_power(*this);
      default: fail("it has an operator that does not exist");
    }
  }
};

}  // namespace

std::unique_ptr<Program> read_program(const int64_t* code, long count, const GivenWeights& given,
                                      const ChosenKernels& kernels) {
  auto program = std::make_unique<Program>();
  program->kernels = kernels.floats;
  program->byte_kernels = kernels.bytes;
  Reader reader(code, count, given);
  const int values = reader.within(1, 1 << 20, "the number of values");
  for (int i = 0; i < values; i++) {
    Value v{};
    v.channels = reader.size("a number of channels");
    v.height = reader.size("a height");
    v.width = reader.size("a width");
    if ((int64_t)v.channels * v.height > (int64_t)1 << 31 || (int64_t)v.height * v.width > (int64_t)1 << 28 ||
        (int64_t)v.channels * v.height * v.width > (int64_t)1 << 31)
      fail("a value has more than 2^31 elements");
    program->values.push_back(v);
  }
  Builder builder{*program, reader, std::vector<char>(values, 0)};
  while (!reader.done()) program->ops.push_back(builder.next());
  if (program->inputs.empty() || program->outputs.empty()) fail("it has no input or no output");
  plan_memory(*program);
  return program;
}

}  // namespace sanp
