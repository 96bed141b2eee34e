// Memory for weights and maps: zeroed floats on cache lines, on large pages where the system gives them.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "program.hpp"

namespace sanp {

void Floats::Free::operator()(float* p) const {
  if (mapped)
    munmap(p, mapped);
  else
    std::free(p);
}

namespace {

constexpr size_t kLargePage = size_t{2} << 20;

#ifdef __SANITIZE_ADDRESS__
constexpr bool kMaps = false;  // the address sanitizer watches the edges of allocated memory, not those of mapped pages
#else
constexpr bool kMaps = true;
#endif

// Whole large pages from the system, which are zero already: to fill them with zeros would take as long again.
void* map_pages(size_t bytes) {
  char* found = static_cast<char*>(
      mmap(nullptr, bytes + kLargePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (found == MAP_FAILED) return nullptr;
  const size_t before = (kLargePage - reinterpret_cast<uintptr_t>(found) % kLargePage) % kLargePage;
  if (before) munmap(found, before);
  if (before < kLargePage) munmap(found + before + bytes, kLargePage - before);
#ifdef MADV_HUGEPAGE
  madvise(found + before, bytes, MADV_HUGEPAGE);
#endif
  return found + before;
}

}  // namespace

Floats::Floats(long count) : size_(count) {
  const size_t bytes = (size_t)count * sizeof(float);
  const bool maps = kMaps && bytes >= kLargePage / 2;
  const size_t alignment = maps ? kLargePage : 64;
  const size_t rounded = std::max((bytes + alignment - 1) / alignment * alignment, alignment);
  void* p = maps ? map_pages(rounded) : std::aligned_alloc(alignment, rounded);
  if (!p) throw Error("out of memory: " + std::to_string(rounded) + " bytes are wanted");
  if (!maps) std::memset(p, 0, rounded);
  data_ = {static_cast<float*>(p), Free{maps ? rounded : 0}};
}

}  // namespace sanp
