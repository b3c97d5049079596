// Measures collops's operators: collops_bench OPERATOR DTYPE BYTES SHARES ITERATIONS WAY, with a
// rank for each of SHARES. It starts the ranks itself.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "calls.h"

namespace {

// The ranks' job, which no other run on this host has.
void NameJob() {
  std::random_device random;
  const std::string job = "bench-" + std::to_string(random()) + "-" + std::to_string(random());
  setenv("COLLOPS_JOB_ID", job.c_str(), 1);
}

int RunRank(const bench::Arguments& arguments, bench::BoardMemory* memory, int rank) {
  bench::Board board(memory, rank, arguments.points.front().ranks());
  return bench::Measure(arguments, bench::collops_calls::Ways(), &board);
}

// The worst exit status. A rank that failed ends the others, which wait for it at the board; after
// wrong results or wrong arguments all ranks end by themselves.
int AwaitRanks(const std::vector<pid_t>& ranks) {
  int worst = 0;
  for (size_t left = ranks.size(); left > 0; --left) {
    int status = 0;
    const pid_t ended = wait(&status);
    const int result = WIFEXITED(status) ? WEXITSTATUS(status) : bench::kFailed;
    if (WIFSIGNALED(status) && worst == 0) {
      std::fprintf(stderr, "a rank was ended by signal %d\n", WTERMSIG(status));
    }
    worst = std::max(worst, result);
    for (const pid_t rank : ranks) {
      if (rank != ended && result == bench::kFailed) kill(rank, SIGKILL);
    }
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--version") {
    std::printf("collops %s\n", BENCH_COLLOPS_VERSION);
    return 0;
  }
  bench::Arguments arguments;
  if (!bench::Parse(argc, argv, &arguments)) return bench::kArguments;
  const int descriptor = bench::Board::Create();
  bench::BoardMemory* const memory = descriptor < 0 ? nullptr : bench::Board::Map(descriptor);
  if (memory == nullptr) {
    std::perror("the ranks' shared memory");
    return bench::kFailed;
  }
  NameJob();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < arguments.points.front().ranks(); ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::exit(RunRank(arguments, memory, rank));
    }
    if (child < 0) std::perror("fork");
    ranks.push_back(child);
  }
  return AwaitRanks(ranks);
}
