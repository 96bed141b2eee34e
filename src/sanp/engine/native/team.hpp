// A team of threads that walk through a program side by side.
#pragma once
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

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

// Runs work(rank) on `count` threads, this one among them, and passes on the first error.
template <class Work>
void on_threads(int count, Barrier& barrier, Work work) {
  std::vector<std::exception_ptr> errors(count);
  auto guarded = [&](int rank, auto&& task) {
    try {
      task();
    } catch (...) {
      errors[rank] = std::current_exception();
      barrier.break_up();
    }
  };
  std::vector<std::thread> threads;
  guarded(0, [&] {
    for (int rank = 1; rank < count; rank++)
      threads.emplace_back([&, rank] { guarded(rank, [&] { work(rank); }); });
    work(0);
  });
  for (auto& t : threads) t.join();
  for (auto& e : errors)
    if (e) std::rethrow_exception(e);
}

}  // namespace sanp
