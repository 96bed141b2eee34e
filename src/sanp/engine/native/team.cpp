#include "team.hpp"

#include "program.hpp"

namespace sanp {

void Barrier::wait() {
  if (size_ == 1) return;
  const int round = round_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; round_.load(std::memory_order_acquire) == round; spins++) {
    if (broken_.load(std::memory_order_relaxed)) throw Error("another thread of this call has failed");
    if (spins > 20000) std::this_thread::yield();
  }
}

}  // namespace sanp
