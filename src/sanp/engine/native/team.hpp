// A team of threads that walk through a program side by side. They spin within a call and 2 ms after it, then sleep.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
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

class Team {
 public:
  explicit Team(int size);
  ~Team();
  int size() const { return (int)workers_.size() + 1; }
  // A process that was forked has the object and not its threads.
  bool alive() const;
  // work(rank) on every thread, this one among them; the first error is passed on, and breaks the barrier.
  void run(Barrier&, const std::function<void(int)>& work);

 private:
  void serve(int rank);
  void stop();
  template <class Ready>
  void await(std::condition_variable& changed, const Ready& ready);
  void wake(std::condition_variable& changed);
  std::mutex mutex_;  // only to fall asleep and to wake: a lock that two threads want at once would be a sleep by itself
  std::condition_variable start_, done_;
  const std::function<void(int)>* work_ = nullptr;  // written before round_, read after it
  std::atomic<long> round_{0};
  std::atomic<int> busy_{0}, asleep_{0};
  std::atomic<bool> stopped_{false};
  const pid_t owner_;
  std::vector<std::thread> workers_;
};

}  // namespace sanp
