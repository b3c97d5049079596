// Starts the two ranks of a loop: processes of this program, in a job of their own.
#ifndef COLLOPS_TESTS_BENCH_LOOP_TWO_RANKS_H_
#define COLLOPS_TESTS_BENCH_LOOP_TWO_RANKS_H_

#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <random>
#include <string>

#include "board.h"

// 0 if both ended well; ends the other one if one did not.
inline int AwaitRanks(const pid_t (&ranks)[kRanks]) {
  int failed = 0;
  for (int left = kRanks; left > 0; --left) {
    int status = 0;
    const pid_t ended = wait(&status);
    if (status == 0) continue;
    failed = 1;
    // The other one waits at the board, for ever.
    for (const pid_t rank : ranks) {
      if (rank != ended) kill(rank, SIGKILL);
    }
  }
  return failed;
}

// What main() returns: 0 if run_rank(rank, board) did on both.
inline int OnTwoRanks(const char* name, int (*run_rank)(int rank, Board* board)) {
  const int memory = memfd_create(name, 0);
  if (memory < 0 || ftruncate(memory, sizeof(Board)) != 0) return 1;
  std::random_device random;
  const std::string job = name + std::to_string(random()) + std::to_string(random());
  setenv("COLLOPS_JOB_ID", job.c_str(), 1);
  pid_t ranks[kRanks];
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks[rank] = fork();
    if (ranks[rank] != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Board* const board = Board::Map(memory);
    _exit(board == nullptr ? 1 : run_rank(rank, board));
  }
  return AwaitRanks(ranks);
}

#endif  // COLLOPS_TESTS_BENCH_LOOP_TWO_RANKS_H_
