// Walks through the weights that a convolution fetches for the operators after it, a line at each live channel.
#pragma once
#include "vec.hpp"

namespace SANP_NAMESPACE {

constexpr int kLine = 16;  // floats of a cache line

class Ahead {
 public:
  Ahead(const Conv& c, bool wanted) : next_(c.ahead), left_(wanted ? c.stretches : 0) {}
  // Where the next `lines` lines begin, or null at the end. What is past the end of a stretch may be fetched too.
  const float* take(int lines) {
    if (left_ == 0) return nullptr;
    const float* at = next_->data + done_;
    done_ += (long)lines * kLine;
    if (done_ >= next_->floats) next_++, left_--, done_ = 0;
    return at;
  }

 private:
  const Stretch* next_;
  int left_;
  long done_ = 0;
};

}  // namespace SANP_NAMESPACE
