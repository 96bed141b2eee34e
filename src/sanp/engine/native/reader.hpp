// The numbers and weights of a program, read one after the other; each number must be one of those that are allowed
// there.
#pragma once
#include "program.hpp"

namespace sanp {

[[noreturn]] inline void fail(const std::string& what) { throw Error("the program is not sound: " + what); }

class Reader {
 public:
  Reader(const int64_t* code, long count, const float* data, long floats)
      : code_(code), count_(count), data_(data), floats_(floats) {}

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
    if (offset < 0 || count < 0 || offset > floats_ || count > floats_ - offset) fail("a weight lies outside the data");
    return data_ + offset;
  }

 private:
  const int64_t* code_;
  long count_, at_ = 0;
  const float* data_;
  long floats_;
};

}  // namespace sanp
