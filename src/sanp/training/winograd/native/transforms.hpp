// Winograd's F(4, 3) in one dimension, for training and for the engine (Lavin and Gray, arXiv:1509.09308): six input
// pixels become six frequencies, and six sums of products of frequencies become four output pixels. V is a vector of
// floats. The functions are static, for each file that includes this has instructions of its own.
#pragma once

namespace sanp_f4 {

// B^T d: six input pixels to six frequencies.
template <class V>
static inline void transform_input(const V (&d)[6], V (&o)[6]) {
  const V a = d[4] - 4.f * d[2], b = d[3] - 4.f * d[1];
  const V c = d[4] - d[2], e = 2.f * (d[3] - d[1]);
  o[0] = 4.f * d[0] - 5.f * d[2] + d[4];
  o[1] = a + b;
  o[2] = a - b;
  o[3] = c + e;
  o[4] = c - e;
  o[5] = 4.f * d[1] - 5.f * d[3] + d[5];
}

// A^T m: six frequencies to four output pixels.
template <class V>
static inline void transform_output(const V (&m)[6], V (&o)[4]) {
  const V a = m[1] + m[2], b = m[1] - m[2], c = m[3] + m[4], e = m[3] - m[4];
  o[0] = m[0] + a + c;
  o[1] = b + 2.f * e;
  o[2] = a + 4.f * c;
  o[3] = b + 8.f * e + m[5];
}

}  // namespace sanp_f4
