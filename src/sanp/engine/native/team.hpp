// A team of threads that run one program together. Between calls they spin for 2 ms, then sleep.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sanp {

// Where threads wait for each other. They spin, for an operator takes microseconds and waking up takes longer.
class Barrier {
 public:
  explicit Barrier(int size) : size_(size) {}
  void wait();                         // throws if the barrier was broken
  void break_up() { broken_ = true; }  // a thread of the team has failed, and will not come

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
  // False in a forked process, which has this object but not its threads.
  bool alive() const;
  // Calls work(rank) on every thread, rank 0 on this one. An error breaks the barrier, and is thrown at the end.
  void run(Barrier&, const std::function<void(int)>& work);

 private:
  void serve(int rank);
  void stop();
  template <class Ready>
  void await(std::condition_variable& changed, const Ready& ready);
  void wake(std::condition_variable& changed);
  std::mutex mutex_;  // only for falling asleep and waking up: to wait for a lock would be a sleep too
  std::condition_variable start_, done_;
  const std::function<void(int)>* work_ = nullptr;  // written before round_, read after it
  std::atomic<long> round_{0};
  std::atomic<int> busy_{0}, asleep_{0};
  std::atomic<bool> stopped_{false};
  const pid_t owner_;
  std::vector<std::thread> workers_;
};

}  // namespace sanp
