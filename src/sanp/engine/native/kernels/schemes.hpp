// Winograd's schemes as data, for the kernels and for the placing of weights (Lavin and Gray, arXiv:1509.09308). In one
// dimension a tile of N inputs becomes N frequencies, and each is multiplied by one frequency of the filter of K taps. The
// products are added up over channels, in S sums with one or more frequencies (taps) each, and the sums become M
// outputs. In two dimensions there are N^2 frequencies, S^2 sums and M^2 outputs.
#pragma once
#include "../layout.hpp"

namespace sanp {

// F(2x2, 3x3).
struct Winograd2 {
  static constexpr Algorithm algorithm = Algorithm::winograd2;
  static constexpr int K = 3, M = 2, N = 4, S = 4, stride = 1;
  static constexpr double filter[N][K] = {{1, 0, 0}, {.5, .5, .5}, {.5, -.5, .5}, {0, 0, 1}};
  static constexpr int taps(int) { return 1; }
  static constexpr int tap(int sum, int) { return sum; }
};

// F(4x4, 3x3).
struct Winograd4 {
  static constexpr Algorithm algorithm = Algorithm::winograd4;
  static constexpr int K = 3, M = 4, N = 6, S = 6, stride = 1;
  static constexpr double filter[N][K] = {{1. / 4, 0, 0},           {-1. / 6, -1. / 6, -1. / 6},
                                          {-1. / 6, 1. / 6, -1. / 6}, {1. / 24, 1. / 12, 1. / 6},
                                          {1. / 24, -1. / 12, 1. / 6}, {0, 0, 1}};
  static constexpr int taps(int) { return 1; }
  static constexpr int tap(int sum, int) { return sum; }
};

// A filter (g0, g1, g2) with stride 2 is (g0, g2) over the even inputs and g1 over the odd ones. The even ones go by
// F(2, 2): frequencies e0 - e1, e1, e2 - e1; the odd ones need no transform: o0 joins the first sum, o1 the last. 25
// multiplications for 4 outputs instead of 36.
struct Strided2 {
  static constexpr Algorithm algorithm = Algorithm::strided2;
  static constexpr int K = 3, M = 2, N = 5, S = 3, stride = 2;
  static constexpr double filter[N][K] = {{1, 0, 0}, {1, 0, 1}, {0, 0, 1}, {0, 1, 0}, {0, 1, 0}};
  static constexpr int taps(int sum) { return sum == 1 ? 1 : 2; }
  static constexpr int tap(int sum, int k) { return k == 0 ? sum : sum == 0 ? 3 : 4; }
};

// A filter of seven taps with stride 2 is four taps over the even inputs and three over the odd ones. Both go by F(4, 4)
// at the points 0, 1, -1, 2, -2, 1/2 and infinity, and their products join the same sums; three taps have nothing at
// infinity. 169 multiplications for 16 outputs instead of 784. Errors are those of F(4x4, 3x3).
struct Strided7 {
  static constexpr Algorithm algorithm = Algorithm::strided7;
  static constexpr int K = 7, M = 4, N = 13, S = 7, stride = 2;
  static constexpr double filter[N][K] = {{-1. / 2, 0, 0, 0, 0, 0, 0},
                                          {-1. / 3, 0, -1. / 3, 0, -1. / 3, 0, -1. / 3},
                                          {1. / 9, 0, -1. / 9, 0, 1. / 9, 0, -1. / 9},
                                          {1. / 36, 0, 1. / 18, 0, 1. / 9, 0, 2. / 9},
                                          {-1. / 60, 0, 1. / 30, 0, -1. / 15, 0, 2. / 15},
                                          {32. / 45, 0, 16. / 45, 0, 8. / 45, 0, 4. / 45},
                                          {0, 0, 0, 0, 0, 0, 1},
                                          {0, -1. / 2, 0, 0, 0, 0, 0},
                                          {0, -1. / 3, 0, -1. / 3, 0, -1. / 3, 0},
                                          {0, 1. / 9, 0, -1. / 9, 0, 1. / 9, 0},
                                          {0, 1. / 36, 0, 1. / 18, 0, 1. / 9, 0},
                                          {0, -1. / 60, 0, 1. / 30, 0, -1. / 15, 0},
                                          {0, 32. / 45, 0, 16. / 45, 0, 8. / 45, 0}};
  static constexpr int taps(int sum) { return sum == 6 ? 1 : 2; }
  static constexpr int tap(int sum, int k) { return sum + 7 * k; }
};

// Floats from one frequency of a filter to the next: channels in whole cache lines; with few of them, in whole lines of
// the four taps that a sum may have.
template <class Q>
static inline long frequency_step(const Conv& c) {
  return Q::K == 3 ? c.step : (c.in_channels + 3) / 4 * 4;
}

// The sums of a scheme in two dimensions: how many frequencies each has, how many all sums before it have, and which
// frequencies they are.
template <class Q>
struct Sums {
  static constexpr int count = Q::S * Q::S, frequencies = Q::N * Q::N;
  int taps[count]{}, before[count]{}, frequency[frequencies]{};
  constexpr Sums() {
    int at = 0;
    for (int s = 0; s < count; s++) {
      const int y = s / Q::S, x = s % Q::S;
      taps[s] = Q::taps(y) * Q::taps(x);
      before[s] = at;
      for (int i = 0; i < Q::taps(y); i++)
        for (int j = 0; j < Q::taps(x); j++) frequency[at++] = Q::tap(y, i) * Q::N + Q::tap(x, j);
    }
  }
};

}  // namespace sanp
