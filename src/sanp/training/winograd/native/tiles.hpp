// What both of training's Winograd schemes stand on: a map cut into square tiles of output pixels, memory, threads.
// Everything is static: each file that includes this has instructions of its own.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <functional>
#include <new>
#include <thread>
#include <vector>

namespace sanp_training {

struct Shape {
  int samples, height, width, in, out_height, out_width, out, pad;
};

struct Place {
  int sample, y, x;  // of the first output pixel
};

// The tiles of side x side output pixels of all samples, in blocks that are transformed together.
struct Tiles {
  Tiles(const Shape& s, int side, int each) : side(side), each(each), across((s.out_width + side - 1) / side) {
    inside = (long)((s.out_height + side - 1) / side) * across;
    count = s.samples * inside;
    blocks = (count + each - 1) / each;
  }

  Place place(long tile) const {
    const long at = tile % inside;
    return {(int)(tile / inside), (int)(at / across) * side, (int)(at % across) * side};
  }

  // work(first, count) for the blocks of this rank.
  template <class Work>
  void each_block(int threads, int rank, const Work& work) const {
    for (long block = blocks * rank / threads; block < blocks * (rank + 1) / threads; block++) {
      const long first = block * each;
      work(first, (int)(count - first < each ? count - first : each));
    }
  }

  int side, each, across;
  long inside, count, blocks;  // tiles of a sample, of all samples; blocks of all tiles
};

// Memory that is aligned and left as it comes; the caller's thread allocates it, for its heap is kept between calls.
template <class T>
struct Buffer {
  explicit Buffer(long count) : data(static_cast<T*>(std::aligned_alloc(64, (count * sizeof(T) + 63) / 64 * 64))) {
    if (!data) throw std::bad_alloc();
  }
  ~Buffer() { std::free(data); }
  Buffer(const Buffer&) = delete;
  T* data;
};

// The OpenMP threads that torch computes with, where torch has them (GCC's library): they wait in a loop between two of
// its operators, so that other threads would compete with them for the cores.
struct OpenMP {
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned);
  int (*rank)();
  int (*size)();

  static const OpenMP& of_torch() {
    static const OpenMP found{found_as<decltype(parallel)>("GOMP_parallel"),
                              found_as<decltype(rank)>("omp_get_thread_num"),
                              found_as<decltype(size)>("omp_get_num_threads")};
    return found;
  }
  bool there() const { return parallel && rank && size; }

 private:
  template <class F>
  static F found_as(const char* name) {
    return reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
  }
};

// work(rank) on so many threads; which rank does what does not depend on their speed, so sums come out the same.
static inline void share(int threads, const std::function<void(int)>& work) {
  const OpenMP& team = OpenMP::of_torch();
  if (threads > 1 && team.there()) {
    struct Job {
      const std::function<void(int)>& work;
      int threads;
    } job{work, threads};
    const auto run = [](void* given) {
      const Job& job = *static_cast<Job*>(given);
      const OpenMP& team = OpenMP::of_torch();
      for (int rank = team.rank(); rank < job.threads; rank += team.size()) job.work(rank);  // a team may be smaller
    };
    team.parallel(run, &job, threads, 0);
    return;
  }
  std::vector<std::thread> others;
  for (int rank = 1; rank < threads; rank++) others.emplace_back(work, rank);
  work(0);
  for (auto& thread : others) thread.join();
}

// 0, or -1 where the system does not give memory or threads.
template <class Work>
static inline int guarded(const Work& work) {
  try {
    work();
    return 0;
  } catch (const std::exception&) {
    return -1;
  }
}

}  // namespace sanp_training
