// A program: values, operators on them, and weights in the order in which the kernels read them.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "int8/operators.hpp"
#include "layout.hpp"

namespace sanp {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Zeroed floats on cache lines, on large pages where the system gives them.
class Floats {
 public:
  Floats() = default;
  explicit Floats(long count);
  float* data() const { return data_.get(); }
  long size() const { return size_; }

 private:
  struct Free {
    size_t mapped;  // bytes that are mapped pages
    Free() : mapped(0) {}
    explicit Free(size_t mapped) : mapped(mapped) {}
    void operator()(float* p) const;
  };
  std::unique_ptr<float, Free> data_;
  long size_ = 0;
};

struct Value {
  int channels, height, width;
  bool bytes;         // a map of bytes: a plane holds four channels (int8/bytes.hpp)
  long stride;        // floats from plane to plane
  long floats;        // of all planes, and what kernels may read past them
  long offset = -1;   // where it begins in the arena of one sample
  int first_use = -1, last_use = -1;  // operators
};

struct InputOp { int slot; };   // which of the caller's inputs
struct OutputOp { int slot; };  // which of the caller's outputs
struct ConvOp {
  Conv conv;
  int gate;      // the gate that decides which channels are open, or -1
  bool follows;  // a channel none of whose inputs is live is zero, whatever the bias
  bool scale_after;  // what a channel is multiplied by comes after the activation, and a closed one is zero
  Algorithm algorithm;
  int weights[(int)Algorithm::count];  // places in the program's weights, -1 for an algorithm that was never chosen
};
struct GateOp { Gate gate; int id; Descriptor descriptor; };
struct LinearOp { Linear linear; };
struct PoolOp { Pool pool; };
struct AdaptiveOp { bool maximum; };
struct ActivationOp { Activation act; };
struct AddOp { Activation act; };
struct MultiplyOp {};
struct AffineOp { const float* scale; const float* shift; bool fills; Activation act; };
struct ConcatOp {};
struct ChannelsOp { std::vector<int> source; };  // output channel c is input channel source[c]
struct FlattenOp {};
struct LayerNormOp { const float* scale; const float* shift; float eps; };  // over the channels of each pixel
// Element p of output channel c is at row + column of the input, a place being a channel and a pixel of it. Rows are
// output channels, or all elements where there is one column. A place below zero stands for the number 0.
struct GatherOp {
  struct Place { int channel, pixel; };
  std::vector<Place> rows, columns;
  std::vector<int> reach;  // every channel that occurs among the columns
};
struct InstanceNormOp { const float* scale; const float* shift; float eps; int gate; };  // over the pixels of a channel
struct SoftmaxOp { bool logarithm; };                                                    // over the rows of a channel
// Each output row and column lies between two of the input's, `weight` of the way to the second.
struct ResizeOp { std::vector<int> y0, y1, x0, x1; const float* weight_y; const float* weight_x; };
struct UnpoolOp { Window window; };  // under which the places were found
struct PowerOp { float exponent; };

using Kind = std::variant<InputOp, OutputOp, ConvOp, GateOp, LinearOp, PoolOp, AdaptiveOp, ActivationOp, AddOp,
                          MultiplyOp, AffineOp, ConcatOp, ChannelsOp, FlattenOp, LayerNormOp, QuantiseOp, DequantiseOp,
                          ByteConvOp, ByteMeanOp, BytePoolOp, GatherOp, InstanceNormOp, SoftmaxOp, ResizeOp, UnpoolOp, PowerOp,
                          ByteAverageOp, ByteCombineOp>;

struct Op {
  std::vector<int> in;
  int out;  // a value, or -1
  Kind kind;
};

struct Workspace;
struct Cap;
class Team;

struct Program {
  const Kernels* kernels;
  const ByteKernels* byte_kernels;
  std::vector<Value> values;
  std::vector<Op> ops;
  std::vector<int> inputs, outputs;        // values, by slot
  std::vector<int> gate_channels;          // output channels of each gate
  std::vector<Floats> weights;
  std::vector<std::vector<Stretch>> ahead;  // [operator]: weights that are fetched while it computes
  long arena = 0;                          // floats of one sample
  long scratch = 0;                        // floats that one thread works in
  int chunk = 1;                           // samples that go through an operator together
  std::mutex mutex;
  std::vector<std::unique_ptr<Workspace>> idle;  // kept for the next call
  std::vector<std::unique_ptr<Team>> teams;      // kept for the next call
  Program();
  ~Program();
};

// The weights of a program as they are given: arrays whose floats are counted on from one to the next. A weight lies in
// one of them, so that nobody has to copy them all into one first.
struct GivenWeights {
  const float* const* data;
  const long* floats;
  long arrays;
};

// Kernels for floats, and for bytes beside them.
struct ChosenKernels {
  const Kernels* floats;
  const ByteKernels* bytes;
};
ChosenKernels best_kernels();
// Those with that name: the kernels for floats, for bytes, or both. The others are the fastest beside them.
ChosenKernels kernels_named(const std::string&);

// Reads a program from numbers; throws Error for one that is not sound.
std::unique_ptr<Program> read_program(const int64_t* code, long count, const GivenWeights& given,
                                      const ChosenKernels& kernels);

// Copies weights into the program, in the order in which the kernels read them.
const float* keep(Program&, const float* data, long count);
void place_conv_weights(Program&, ConvOp&, const float* weight, const float* bias);
// Sets the algorithm of a convolution, one that applies, and makes its weights the first time.
void choose_algorithm(Program&, ConvOp&, Algorithm);
// Puts the weights of the chosen algorithms side by side, in the order of their use, and frees all others.
void settle_weights(Program&);
// Decides which weights every convolution fetches for the operators after it; their places must not change any more.
void plan_ahead(Program&);
const float* place_linear_weights(Program&, int out, int in, const float* weight);

// Decides where every value of one sample lies; values that are not in use at the same time share memory.
void plan_memory(Program&);

// What a call reports beside its outputs; each may be null.
struct Notes {
  double* seconds;  // [operator]: the time of the first thread is added
  int* live;        // [sample][gate]: the number of open channels
  char* finite;     // [sample]: 0 if an input or output was NaN or infinite, for then nothing may be skipped; else 1
  // [sample][channels of all gates]: which channels are open, in place of what the gates would decide.
  const unsigned char* forced;
  float* scores;    // the same: what each gate would have decided by, the first numbers of a gate if it has groups
  float lift;          // is added to the thresholds of all gates,
  const float* lifts;  // and this for each sample; may be null
  const Cap* cap;      // on what a sample may cost; may be null
  int* counts;         // [sample][gate of the network]: open channels, at first the cap's reserves; null without a cap
  const int* places;   // [gate]: its place among the gates of the network; null without a cap
};

void run_program(Program&, const float* const* in, float* const* out, long samples, int threads, const Notes&);

}  // namespace sanp
