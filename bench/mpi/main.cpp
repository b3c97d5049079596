// Measures an MPI: mpiexec -n RANKS mpi_bench OPERATOR DTYPE BYTES SHARES ITERATIONS WAY, with a
// rank for each of SHARES. Compiled once for each MPI, by its own mpicxx.
#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "mpi/calls.h"

namespace {

// The first line of what the MPI says of itself, without the place where it was built.
std::string Version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  text[std::strcspn(text, ",\n")] = '\0';
  return text;
}

// Rank 0 makes the memory, which has no name; the others open it through rank 0's descriptor.
bench::BoardMemory* ShareBoard(int rank) {
  int place[2] = {static_cast<int>(getpid()), rank == 0 ? bench::Board::Create() : -1};
  MPI_Bcast(place, 2, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank == 0) return place[1] < 0 ? nullptr : bench::Board::Map(place[1]);
  const std::string path = "/proc/" + std::to_string(place[0]) + "/fd/" + std::to_string(place[1]);
  const int descriptor = open(path.c_str(), O_RDWR);
  return descriptor < 0 ? nullptr : bench::Board::Map(descriptor);
}

int RunRank(const bench::Arguments& arguments) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const bench::Point& first = arguments.points.front();
  if (ranks != first.ranks()) {
    if (rank == 0) std::fprintf(stderr, "SHARES has %d parts for %d ranks\n", first.ranks(), ranks);
    return bench::kArguments;
  }
  bench::BoardMemory* const memory = ShareBoard(rank);
  if (memory == nullptr) {
    std::perror("the ranks' shared memory");
    MPI_Abort(MPI_COMM_WORLD, bench::kFailed);
    return bench::kFailed;
  }
  bench::Board board(memory, rank, ranks);
  const auto ways = bench::mpi_calls::Ways(first.op, first.dtype);
  const int result = bench::Measure(arguments, ways, &board);
  board.Barrier();
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--version") {
    std::printf("%s\n", Version().c_str());
    return 0;
  }
  bench::Arguments arguments;
  if (!bench::Parse(argc, argv, &arguments)) return bench::kArguments;
  MPI_Init(&argc, &argv);
  const int result = RunRank(arguments);
  MPI_Finalize();
  return result;
}
