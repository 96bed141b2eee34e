// The plain C interface that engine/library.py calls. A function with a `message` gives 0, or -1 and a message of at
// most `room` bytes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cap.hpp"
#include "program.hpp"

using namespace sanp;

namespace {

// No exception may pass into C.
template <class Work>
int guarded(char* message, long room, Work work) {
  try {
    work();
    return 0;
  } catch (const std::exception& e) {
    if (message && room > 0) std::snprintf(message, (size_t)room, "%s", e.what());
    return -1;
  }
}

#define SANP_NAME_OF(name) #name,
#define SANP_WORDS_OF(name, words) words,
constexpr const char* kOperators[] = {SANP_OPERATORS(SANP_NAME_OF)};
constexpr const char* kActivations[] = {SANP_ACTIVATIONS(SANP_NAME_OF)};
constexpr const char* kAlgorithms[] = {SANP_ALGORITHMS(SANP_WORDS_OF)};

template <int Count>
const char* name_in(const char* const (&names)[Count], int place) {
  return place < 0 || place >= Count ? nullptr : names[place];
}

// A cap needs room to count in, and a place of its own for each gate of the program.
void check_places(const Program& p, const Cap& cap, const int* counts, const int* places) {
  if (!counts || !places) throw Error("a cap wants counts and places");
  for (size_t i = 0; i < p.gate_channels.size(); i++)
    if (places[i] < 0 || places[i] >= cap.gates()) throw Error("a cap has no place for a gate");
}

ConvOp& conv_at(Program& p, int op) {
  if (op < 0 || op >= (int)p.ops.size() || !std::holds_alternative<ConvOp>(p.ops[op].kind))
    throw Error("operator " + std::to_string(op) + " is not a convolution");
  return std::get<ConvOp>(p.ops[op].kind);
}

}  // namespace

extern "C" {

// The version of this interface: counted up with every change, here and in library.py.
int sanp_interface() { return 15; }

// What a number stands for, or null for a number that stands for nothing.
const char* sanp_operator_name(int number) { return name_in(kOperators, number - 1); }
const char* sanp_activation_name(int number) { return name_in(kActivations, number); }
const char* sanp_algorithm_name(int number) { return name_in(kAlgorithms, number); }

// Makes a program of the numbers `code` and the weights in so many arrays `data`, as read.cpp reads them. SANP_ISA may
// name its kernels.
int sanp_create(const int64_t* code, long count, const float* const* data, const long* floats, long arrays,
                Program** out, char* message, long room) {
  return guarded(message, room, [&] {
    const char* wanted = std::getenv("SANP_ISA");
    const GivenWeights given{data, floats, arrays};
    *out = read_program(code, count, given, wanted ? kernels_named(wanted) : best_kernels()).release();
  });
}

void sanp_free(Program* p) { delete p; }

// Makes a cap of numbers, as cap.cpp reads them.
int sanp_cap(const int64_t* code, long count, Cap** out, char* message, long room) {
  return guarded(message, room, [&] { *out = read_cap(code, count).release(); });
}

void sanp_cap_free(Cap* cap) { delete cap; }

// Runs a batch: `in` and `out` have an address for each input and output of the program. `seconds`, `live` and `finite`
// and the rest are those of Notes, and may be null.
int sanp_run(Program* p, const float* const* in, float* const* out, long samples, int threads, double* seconds,
             int* live, char* finite, const unsigned char* forced, float* scores, float lift, const float* lifts,
             const Cap* cap, int* counts, const int* places, char* message, long room) {
  return guarded(message, room, [&] {
    if (samples < 0 || threads < 1 || threads > 1024) throw Error("a call wants samples and 1 to 1024 threads");
    if (cap && samples > 0) check_places(*p, *cap, counts, places);
    const Notes notes{seconds, live, finite, forced, scores, lift, lifts, cap, counts, places};
    if (samples > 0) run_program(*p, in, out, samples, threads, notes);
  });
}

// Runs a batch through a program of one input and one output that has all gates of its network; `lift`, `cap` and
// `places` are those of Notes. Gives 0 if all went well and every number was finite.
int sanp_run_one(Program* p, const float* in, float* out, long samples, int threads, float lift, const Cap* cap,
                 const int* places) {
  try {
    std::vector<char> finite(samples > 0 ? samples : 0);
    std::vector<int> counts;
    for (long s = 0; cap && s < samples; s++) counts.insert(counts.end(), cap->reserve.begin(), cap->reserve.end());
    if (sanp_run(p, &in, &out, samples, threads, nullptr, nullptr, finite.data(), nullptr, nullptr, lift, nullptr, cap,
                 counts.data(), places, nullptr, 0) != 0)
      return 1;
    return std::all_of(finite.begin(), finite.end(), [](char good) { return good != 0; }) ? 0 : 1;
  } catch (const std::exception&) {
    return 1;
  }
}

// The algorithms that can compute an operator: bit a is set for algorithm a. -1 if it is not a convolution.
int sanp_algorithms(Program* p, int op) {
  if (op < 0 || op >= (int)p->ops.size()) return -1;
  auto* c = std::get_if<ConvOp>(&p->ops[op].kind);
  if (!c) return -1;
  int bits = 0;
  for (int a = 0; a < (int)Algorithm::count; a++) bits |= (c->conv.weights[a].row ? 1 : 0) << a;
  return bits;
}

// Sets the algorithm of a convolution; not while the program runs.
int sanp_choose(Program* p, int op, int algorithm, char* message, long room) {
  return guarded(message, room, [&] {
    ConvOp& c = conv_at(*p, op);
    if (algorithm < 0 || algorithm >= (int)Algorithm::count || !(sanp_algorithms(p, op) >> algorithm & 1))
      throw Error("this convolution has no such algorithm");
    choose_algorithm(*p, c, (Algorithm)algorithm);
  });
}

// Frees the weights of the algorithms that were not chosen; after this there is nothing left to choose.
int sanp_settle(Program* p, char* message, long room) {
  return guarded(message, room, [&] { settle_weights(*p); });
}

int sanp_operators(const Program* p) { return (int)p->ops.size(); }
int sanp_gates(const Program* p) { return (int)p->gate_channels.size(); }
const char* sanp_isa(const Program* p) { return p->kernels->name; }
const char* sanp_byte_isa(const Program* p) { return p->byte_kernels->name; }

}  // extern "C"
