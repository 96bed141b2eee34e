// Threads that wait by spinning, and sleep when nothing comes for a while.
#include "team.hpp"

#include <unistd.h>

#include <chrono>
#include <exception>

#include "program.hpp"

namespace sanp {

namespace {

// Tells the processor that this thread waits, so that another one on the same core gets more of it.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

constexpr int kSpins = 2000;  // some tens of microseconds; after these another thread may have this core
constexpr std::chrono::milliseconds kAwake(2);  // spent spinning before a sleep: waking up takes as long as a layer

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
  stopped_ = true;
  wake(start_);
  for (auto& worker : workers_) worker.join();
}

// Spins until ready(), and sleeps if that takes long. A thread counts itself as asleep before it looks for the last
// time, so that either it sees the change or wake() sees that it is asleep.
template <class Ready>
void Team::await(std::condition_variable& changed, const Ready& ready) {
  const auto asleep_at = std::chrono::steady_clock::now() + kAwake;
  do {
    for (int spins = 0; spins < 100; spins++) {
      if (ready()) return;
      relax();
    }
  } while (std::chrono::steady_clock::now() < asleep_at);
  std::unique_lock<std::mutex> lock(mutex_);
  asleep_++;
  changed.wait(lock, ready);
  asleep_--;
}

void Team::wake(std::condition_variable& changed) {
  if (asleep_ == 0) return;
  { std::lock_guard<std::mutex> lock(mutex_); }  // whoever was about to sleep is asleep now
  changed.notify_all();
}

void Team::serve(int rank) {
  long served = 0;
  while (true) {
    await(start_, [&] { return round_ != served || stopped_; });
    if (stopped_) return;
    served = round_;
    (*work_)(rank);
    if (--busy_ == 0) wake(done_);
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
  work_ = &guarded;
  busy_ = (int)workers_.size();
  round_++;
  wake(start_);
  guarded(0);
  await(done_, [&] { return busy_ == 0; });
  for (auto& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace sanp
