// The numbers and weights of a program, read one after the other; each number must be one of those that are allowed
// there.
#pragma once
#include <algorithm>

#include "program.hpp"

namespace sanp {

[[noreturn]] inline void fail(const std::string& what) { throw Error("the program is not sound: " + what); }

class Reader {
 public:
  Reader(const int64_t* code, long count, const GivenWeights& given) : code_(code), count_(count), given_(given) {
    for (long i = 0; i < given.arrays; i++) end_.push_back((end_.empty() ? 0 : end_.back()) + given.floats[i]);
  }

  bool done() const { return at_ == count_; }
  int64_t number() {
    if (at_ >= count_) fail("it ends in the middle of an operator");
    return code_[at_++];
  }
  int within(int64_t low, int64_t high, const char* what) {
    const int64_t n = number();
    if (n < low || n > high)
      fail(std::string(what) + " is " + std::to_string(n) + ", wanted " + std::to_string(low) + " to " +
           std::to_string(high));
    return (int)n;
  }
  int size(const char* what) { return within(1, 1 << 24, what); }
  bool flag() { return within(0, 1, "a flag") == 1; }
  const float* floats(long count) {
    const int64_t offset = number();
    if (count == 0 && offset == (end_.empty() ? 0 : end_.back())) return nullptr;
    const auto end = std::upper_bound(end_.begin(), end_.end(), offset);
    if (offset < 0 || count < 0 || end == end_.end() || count > *end - offset) fail("a weight lies outside the data");
    const long array = end - end_.begin();
    return given_.data[array] + (offset - (*end - given_.floats[array]));
  }

 private:
  const int64_t* code_;
  long count_, at_ = 0;
  GivenWeights given_;
  std::vector<int64_t> end_;  // of each array, counted over all of them
};

}  // namespace sanp
