// One operator on one chunk of samples, done by a team of threads that walk through the program side by side.
#pragma once
#include "workspace.hpp"

namespace sanp {

struct Call {
  const Program& program;
  Workspace& workspace;
  const float* const* in;
  float* const* out;
  long first;    // number of the chunk's first sample in the caller's batch
  int samples;   // in this chunk
  Share share;
  const Notes& notes;
};

void execute(const Call&, const Op&);

}  // namespace sanp
