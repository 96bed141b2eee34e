// One operator on one chunk of samples, done by a team of threads that walk through the program side by side.
#pragma once
#include <atomic>

#include "workspace.hpp"

namespace sanp {

// Threads wait here for one another. They spin: an operator takes microseconds, a sleep would take longer.
class Barrier {
 public:
  explicit Barrier(int size) : size_(size) {}
  void wait();                       // throws if the barrier was broken
  void break_up() { broken_ = true; }  // a thread of the team has failed: nobody is to wait for it

 private:
  const int size_;
  std::atomic<int> arrived_{0}, round_{0};
  std::atomic<bool> broken_{false};
};

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
