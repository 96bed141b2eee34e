// The memory of one call: maps, decisions and scratch. The program itself is not written to while it runs.
#pragma once
#include <vector>

#include "program.hpp"

namespace sanp {

// A channel that a convolution of bytes does not compute: its place in the residual or -1, and in the result.
struct Passed { int channel, from, place; };

// The arrays of the Outputs of a convolution for one sample.
struct ChannelRoom {
  std::vector<int> channel;
  std::vector<float> scale;
  std::vector<float*> plane;
  std::vector<const float*> residual;
  std::vector<int> place, made, from, at;
  std::vector<Passed> passed;
  int passes = 0;  // of `passed`
  explicit ChannelRoom(long most)
      : channel(most), scale(most), plane(most), residual(most), place(most), made(most), from(most), at(most),
        passed(most) {}
};

struct ThreadRoom {
  Floats scratch;
  std::vector<ChannelRoom> channels;  // [sample]
};

struct Workspace {
  int chunk, team;                             // samples that go through together, and threads
  Floats arena;                                // [sample][value]
  std::vector<int> indices;
  std::vector<float> scales;
  std::vector<std::vector<Map>> maps;          // [sample][value]
  std::vector<std::vector<Decision>> decided;  // [sample][gate]
  std::vector<ThreadRoom> rooms;               // [thread of the team]
  std::vector<float> ranked;                   // the scores of a gate whose channels a cap may close
  Workspace(const Program&, int chunk, int team);
};

}  // namespace sanp
