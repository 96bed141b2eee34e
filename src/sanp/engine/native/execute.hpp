// One operator on one chunk of samples. Every thread of a team calls it, and does its share.
#pragma once
#include "workspace.hpp"

namespace sanp {

// What is the same for every operator of a chunk.
struct Call {
  const Program& program;
  Workspace& workspace;
  const float* const* in;  // the caller's inputs and outputs, by slot
  float* const* out;
  long first;    // number of the chunk's first sample in the caller's batch
  int samples;   // in this chunk
  Share share;
  const Notes& notes;
};

void execute(const Call&, const Op&);

}  // namespace sanp
