// Times AllGatherV and ReduceScatterV of 2 ranks (processes of this program) by Execute, and counts
// the instructions of a small call. Prints a line per point: name, microseconds. See --help.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>

#include "board.h"
#include "calls.h"
#include "instructions.h"
#include "two_ranks.h"

namespace {

constexpr const char* kHelp =
    "bench_loop [--pin A,B] [--instructions] [--count-only] [--calls N] [--late-us N]\n"
    "  --pin A,B        the cores of rank 0 and rank 1\n"
    "  --instructions   also the user-space instructions of a 1 KiB call in plain memory, of the\n"
    "                   rank that comes last and so waits for nobody\n"
    "  --count-only     nothing but those; where the machine does not count them:\n"
    "    valgrind --tool=callgrind --trace-children=yes --toggle-collect=CountedCall \\\n"
    "             --callgrind-out-file=/tmp/loop.%p bench_loop --count-only --late-us 5000 \\\n"
    "             --calls 100\n"
    "                   (\"summary\" of the file of each rank, divided by 2 operators and by "
    "calls)\n"
    "  --calls N        counted calls of each operator and rank; 2000\n"
    "  --late-us N      by how much the last rank is late to them; 30\n";

struct Options {
  int pins[kRanks] = {-1, -1};
  bool instructions = false;
  bool count_only = false;
  int calls = 2000;
  int late_us = 30;
  int rank = -1;  // of a rank that this program started
  int board = -1;
};

struct Point {
  const char* name;
  int64_t bytes;
  int warm_up;
  int calls;
};

constexpr Point kPoints[] = {{"1 KiB", 1 << 10, 2000, 20000},
                             {"256 KiB", 256 << 10, 200, 2000},
                             {"64 MiB", 64 << 20, 2, 15}};
constexpr Point kCounted = {"1 KiB", 1 << 10, 200, 0};

const char* Name(Kind kind) {
  return kind == Kind::kAllGatherV ? "AllGatherV" : "ReduceScatterV";
}

const char* Name(Memory memory) {
  return memory == Memory::kPlain ? "plain" : "window";
}

// Half of a round trip. A build that was near must not be compared with one that was far.
void MeasureFlag(const char* when, int rank, Board* board) {
  constexpr int kTimes = 200;
  constexpr int kBlocks = 21;
  for (int i = 0; i < kBlocks; ++i) {
    board->Barrier();
    const double start = NowUs();
    board->PassFlag(rank, kTimes);
    board->samples[rank][i] = (NowUs() - start) / kTimes / 2;
  }
  board->Barrier();
  if (rank == 0) std::printf("flag, one way, %s: %.3f us\n", when, board->Median(kBlocks));
  board->Barrier();
}

void Measure(Kind kind, Memory memory, const Point& point, int rank, Board* board) {
  Call call(kind, memory, point.bytes, rank);
  for (int i = -point.warm_up; i < point.calls; ++i) {
    call.Rewrite();
    board->Barrier();
    const double start = NowUs();
    call.Run();
    if (i >= 0) board->samples[rank][i] = NowUs() - start;
  }
  const bool right = call.Check();
  board->Barrier();
  if (rank == 0) {
    std::printf("%s %s %s: %.3f us\n", Name(kind), point.name, Name(memory),
                board->Median(point.calls));
    std::fflush(stdout);
  }
  if (!right) {
    std::fprintf(stderr, "bench_loop: %s: wrong output on rank %d\n", Name(kind), rank);
    std::exit(1);
  }
  board->Barrier();
}

}  // namespace

// By name, so that a program from outside can count it and nothing else.
extern "C" __attribute__((noinline)) void CountedCall(Call* call) {
  call->Run();
}

namespace {

// Each rank in turn comes last to the calls that count: the other one is in the call by then.
void Count(Kind kind, const Options& options, Board* board) {
  const Instructions instructions;
  Call call(kind, Memory::kPlain, kCounted.bytes, options.rank);
  for (int last = 0; last < kRanks; ++last) {
    for (int i = -kCounted.warm_up; i < options.calls; ++i) {
      call.Rewrite();
      board->Barrier();
      if (options.rank != last || i < 0) {
        call.Run();
        continue;
      }
      for (const double start = NowUs(); NowUs() < start + options.late_us;) {
      }
      const int64_t before = instructions.Now();
      CountedCall(&call);
      board->samples[0][i] = static_cast<double>(instructions.Now() - before);
      board->samples[1][i] = 0;
    }
    board->Barrier();
    if (options.rank == 0) {
      const std::string& problem = instructions.problem();
      const std::string count = problem.empty()
                                    ? std::to_string(std::lround(board->Median(options.calls)))
                                    : "not counted (perf_event_open: " + problem + ")";
      std::printf("%s %s instructions of rank %d: %s\n", Name(kind), kCounted.name, last,
                  count.c_str());
    }
    board->Barrier();
  }
}

void Pin(int core) {
  if (core < 0) return;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  if (sched_setaffinity(0, sizeof(cores), &cores) != 0) std::perror("bench_loop: --pin");
}

int RunRank(const Options& options) {
  Board* const board = Board::Map(options.board);
  if (board == nullptr) return 1;
  Pin(options.pins[options.rank]);
  if (!options.count_only) MeasureFlag("first", options.rank, board);
  for (const Point& point : kPoints) {
    for (const Kind kind : {Kind::kAllGatherV, Kind::kReduceScatterV}) {
      for (const Memory memory : {Memory::kPlain, Memory::kWindow}) {
        if (!options.count_only) Measure(kind, memory, point, options.rank, board);
      }
    }
  }
  if (!options.count_only) MeasureFlag("last", options.rank, board);
  if (!options.instructions && !options.count_only) return 0;
  for (const Kind kind : {Kind::kAllGatherV, Kind::kReduceScatterV}) Count(kind, options, board);
  return 0;
}

// The ranks are this program again, with two more arguments.
int StartRanks(int argc, char** argv) {
  const int board = memfd_create("bench_loop", 0);
  if (board < 0 || ftruncate(board, sizeof(Board)) != 0) return 1;
  // Not /proc/self/exe itself, which is the tool's own program under valgrind.
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  std::random_device random;
  const std::string job = "bench_loop-" + std::to_string(random()) + std::to_string(random());
  setenv("COLLOPS_JOB_ID", job.c_str(), 1);
  pid_t ranks[kRanks];
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<std::string> words(argv, argv + argc);
    ranks[rank] = fork();
    if (ranks[rank] != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    words.insert(words.end(), {"--rank", std::to_string(rank), "--board", std::to_string(board)});
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execv(self.c_str(), arguments.data());
    std::perror("bench_loop: exec");
    _exit(1);
  }
  return AwaitRanks(ranks);
}

bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--instructions") {
      options->instructions = true;
    } else if (word == "--count-only") {
      options->count_only = true;
    } else if (word == "--pin") {
      if (std::sscanf(value, "%d,%d", &options->pins[0], &options->pins[1]) != 2) return false;
      ++i;
    } else if (word == "--calls" || word == "--late-us" || word == "--rank" || word == "--board") {
      int* const number = word == "--calls"     ? &options->calls
                          : word == "--late-us" ? &options->late_us
                          : word == "--rank"    ? &options->rank
                                                : &options->board;
      if (std::sscanf(value, "%d", number) != 1) return false;
      ++i;
    } else {
      return false;
    }
  }
  return options->calls > 0 && options->calls <= kMostCalls;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    std::fputs(kHelp, stderr);
    return 2;
  }
  return options.rank < 0 ? StartRanks(argc, argv) : RunRank(options);
}
