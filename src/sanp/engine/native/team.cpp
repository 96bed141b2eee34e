#include "team.hpp"

#include <unistd.h>

#include <exception>

#include "program.hpp"

namespace sanp {

namespace {

// Tells the processor that this thread waits, for the sake of the other one on its core.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

constexpr int kSpins = 2000;       // some tens of microseconds; the other thread may want this core
constexpr int kIdleSpins = 10000;  // between calls: a caller that has to prepare the next one takes longer than that

// Waits a short while without sleeping, which a call that follows at once would pay for.
template <class Ready>
void spin(const Ready& ready) {
  for (int spins = 0; spins < kIdleSpins && !ready(); spins++) relax();
}

}  // namespace

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
    if (spins > kSpins)
      std::this_thread::yield();
    else
      relax();
  }
}

void Share::meet() const { barrier->wait(); }

Team::Team(int size) : owner_(getpid()) {
  try {
    for (int rank = 1; rank < size; rank++) workers_.emplace_back([this, rank] { serve(rank); });
  } catch (...) {
    stop();
    throw;
  }
}

Team::~Team() { stop(); }

bool Team::alive() const { return getpid() == owner_; }

void Team::stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  start_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void Team::serve(int rank) {
  long seen = 0;
  while (true) {
    spin([&] { return round_ != seen || stopped_; });
    std::unique_lock<std::mutex> lock(mutex_);
    start_.wait(lock, [&] { return stopped_ || round_ != seen; });
    if (stopped_) return;
    seen = round_;
    const auto* work = work_;
    lock.unlock();
    (*work)(rank);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

void Team::run(Barrier& barrier, const std::function<void(int)>& work) {
  std::vector<std::exception_ptr> errors(size());
  const std::function<void(int)> guarded = [&](int rank) {
    try {
      work(rank);
    } catch (...) {
      errors[rank] = std::current_exception();
      barrier.break_up();
    }
  };
  {
    std::lock_guard<std::mutex> lock(mutex_);
    work_ = &guarded;
    busy_ = (int)workers_.size();
    round_++;
  }
  start_.notify_all();
  guarded(0);
  spin([&] { return busy_ == 0; });
  std::unique_lock<std::mutex> lock(mutex_);
  done_.wait(lock, [&] { return busy_ == 0; });
  for (auto& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace sanp
