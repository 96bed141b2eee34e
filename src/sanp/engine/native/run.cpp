// Runs a batch: threads share the samples, or with fewer samples than threads the work on each sample.
#include <time.h>

#include <algorithm>
#include <chrono>

#include "execute.hpp"
#include "team.hpp"

namespace sanp {

static int widest_gate(const Program& p) {
  return p.gate_channels.empty() ? 0 : *std::max_element(p.gate_channels.begin(), p.gate_channels.end());
}

Workspace::Workspace(const Program& p, int chunk, int team) : chunk(chunk), team(team), arena(p.arena * chunk) {
  long channels = 0, decisions = 0, widest = 1;
  for (const Value& v : p.values) channels += v.channels, widest = std::max(widest, (long)v.channels);
  for (int n : p.gate_channels) decisions += n;
  indices.resize((channels + decisions) * chunk);
  scales.resize(decisions * chunk);
  ranked.resize(widest_gate(p));
  int* index = indices.data();
  float* scale = scales.data();
  for (int s = 0; s < chunk; s++) {
    maps.emplace_back();
    for (const Value& v : p.values) {
      maps[s].push_back({arena.data() + s * p.arena + std::max(v.offset, 0L), v.stride, v.channels, v.height, v.width,
                         0, index});
      index += v.channels;
    }
    decided.emplace_back();
    for (int n : p.gate_channels) {
      decided[s].push_back({0, index, scale, nullptr, nullptr, 0});
      index += n;
      scale += n;
    }
  }
  for (int t = 0; t < team; t++) {
    rooms.emplace_back();
    rooms[t].scratch = Floats(p.scratch);
    for (int s = 0; s < chunk; s++) rooms[t].channels.emplace_back(widest);
  }
}

namespace {

// Takes one of the program's idle workspaces or makes one, and gives it back at the end.
class Lease {
 public:
  Lease(Program& p, int chunk, int team) : program_(p) {
    {
      std::lock_guard<std::mutex> lock(p.mutex);
      for (auto& w : p.idle)
        if (w->chunk >= chunk && w->team == team) {
          workspace_ = std::move(w);
          p.idle.erase(p.idle.begin() + (&w - p.idle.data()));
          return;
        }
    }
    workspace_ = std::make_unique<Workspace>(p, chunk, team);
  }
  ~Lease() {
    std::lock_guard<std::mutex> lock(program_.mutex);
    constexpr size_t most = 16;
    if (program_.idle.size() < most) program_.idle.push_back(std::move(workspace_));
  }
  Workspace& operator*() { return *workspace_; }

 private:
  Program& program_;
  std::unique_ptr<Workspace> workspace_;
};

// Takes one of the program's idle teams or makes one, and gives it back at the end.
class TeamLease {
 public:
  TeamLease(Program& p, int size) : program_(p) {
    {
      std::lock_guard<std::mutex> lock(p.mutex);
      for (auto& t : p.teams)
        if (t->size() == size) {
          team_ = std::move(t);
          p.teams.erase(p.teams.begin() + (&t - p.teams.data()));
          break;
        }
    }
    if (team_ && !team_->alive()) (void)team_.release();  // after a fork it has no threads to end
    if (!team_) team_ = std::make_unique<Team>(size);
  }
  ~TeamLease() {
    std::lock_guard<std::mutex> lock(program_.mutex);
    constexpr size_t most = 4;
    if (program_.teams.size() < most) program_.teams.push_back(std::move(team_));
  }
  Team& operator*() { return *team_; }

 private:
  Program& program_;
  std::unique_ptr<Team> team_;
};

// Seconds. A thread that works alone is timed by its own clock, which stands still while other processes have the core.
double now(int team) {
#ifdef CLOCK_THREAD_CPUTIME_ID
  timespec t;
  if (team == 1 && clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0) return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#endif
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Every operator of the program, one after the other.
void walk(const Call& call) {
  double* seconds = call.share.rank == 0 ? call.notes.seconds : nullptr;
  for (size_t i = 0; i < call.program.ops.size(); i++) {
    const double start = seconds ? now(call.share.size) : 0;
    execute(call, call.program.ops[i]);
    call.share.meet();
    if (seconds) seconds[i] += now(call.share.size) - start;
  }
}

}  // namespace

void run_program(Program& p, const float* const* in, float* const* out, long samples, int threads,
                 const Notes& notes) {
  if (notes.finite) std::fill_n(notes.finite, samples, 1);
  if (threads > 1 && samples < threads) {
    Lease workspace(p, 1, threads);
    Barrier barrier(threads);
    TeamLease team(p, threads);
    (*team).run(barrier, [&](int rank) {
      for (long s = 0; s < samples; s++) walk({p, *workspace, in, out, s, 1, {rank, threads, &barrier}, notes});
    });
    return;
  }
  Notes quiet = notes;
  quiet.seconds = nullptr;
  Barrier alone(1);  // threads with samples of their own do not wait for each other
  const auto share = [&](int rank) {
    const long first = samples * rank / threads, last = samples * (rank + 1) / threads;
    const int chunk = (int)std::min<long>(p.chunk, std::max(last - first, 1L));
    Lease workspace(p, chunk, 1);
    for (long s = first; s < last; s += chunk) {
      const int here = (int)std::min<long>(chunk, last - s);
      walk({p, *workspace, in, out, s, here, {0, 1, &alone}, rank == 0 ? notes : quiet});
    }
  };
  if (threads == 1) return share(0);
  TeamLease team(p, threads);
  (*team).run(alone, share);
}

}  // namespace sanp
