// Measures an MPI: mpiexec -n RANKS mpi_bench OPERATOR DTYPE BYTES SHARES ITERATIONS WAY, with a
// rank for each of SHARES. Compiled once for each MPI, by its own mpicxx.
//
// The ways, which take uneven counts as they are:
//   native        MPI's own function and type; a gather of bfloat16 moves MPI_UINT16_T
//   user_op       the same with a vectorised MPI_Op of ours (reductions of bfloat16)
//   exchange_add  MPI_Alltoallv and one vectorised pass of additions (reduce_scatter_v)
#include <fcntl.h>
#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "measure.h"

namespace bench {
namespace {

// The sum of a piece stays in the first-level cache while the blocks are read, so that memory is
// read once, whatever the number of blocks.
constexpr int64_t kPiece = 1024;

void AddFloat32(const float* __restrict other, float* __restrict into, int64_t count) {
  for (int64_t i = 0; i < count; ++i) into[i] += other[i];
}

void Widen(const uint16_t* __restrict from, float* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = FromBFloat16(from[i]);
}

void AddWidened(const uint16_t* __restrict from, float* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += FromBFloat16(from[i]);
}

void Round(const float* __restrict from, uint16_t* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = ToBFloat16(from[i]);
}

// The commonest case, without a stop between.
void AddTwo(const float* __restrict a, const float* __restrict b, float* __restrict output,
            int64_t count) {
  for (int64_t i = 0; i < count; ++i) output[i] = a[i] + b[i];
}

void AddTwo(const uint16_t* __restrict a, const uint16_t* __restrict b, uint16_t* __restrict output,
            int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    output[i] = ToBFloat16(FromBFloat16(a[i]) + FromBFloat16(b[i]));
  }
}

void AddPieces(const float* blocks, int num_blocks, int64_t count, float* output) {
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t piece = std::min(kPiece, count - at);
    AddTwo(blocks + at, blocks + count + at, output + at, piece);
    for (int b = 2; b < num_blocks; ++b) AddFloat32(blocks + b * count + at, output + at, piece);
  }
}

void AddPieces(const uint16_t* blocks, int num_blocks, int64_t count, uint16_t* output) {
  if (num_blocks == 2) return AddTwo(blocks, blocks + count, output, count);
  float sums[kPiece];
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t piece = std::min(kPiece, count - at);
    Widen(blocks + at, sums, piece);
    for (int b = 1; b < num_blocks; ++b) AddWidened(blocks + b * count + at, sums, piece);
    Round(sums, output + at, piece);
  }
}

// into = into + other, rounded to bfloat16.
void AddBFloat16(const uint16_t* other, uint16_t* into, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    into[i] = ToBFloat16(FromBFloat16(other[i]) + FromBFloat16(into[i]));
  }
}

// output = the sum of `num_blocks` blocks of `count` elements, which lie one behind the other. It
// is made in order and in float32, and rounded once.
void AddBlocks(DType dtype, const void* blocks, int num_blocks, int64_t count, void* output) {
  if (dtype == DType::kFloat32) {
    AddPieces(static_cast<const float*>(blocks), num_blocks, count, static_cast<float*>(output));
  } else {
    AddPieces(static_cast<const uint16_t*>(blocks), num_blocks, count,
              static_cast<uint16_t*>(output));
  }
}

// What an MPI function is given. Counts and displacements are int in MPI.
struct Given {
  Point point;
  int rank = 0;
  Buffers buffers;
  std::vector<int> counts;
  std::vector<int> displs;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Op op = MPI_SUM;
  // Of an exchange: this rank's blocks from all ranks.
  std::vector<int> own_counts;
  std::vector<int> own_displs;
  std::shared_ptr<void> blocks;

  const void* x() const { return buffers.x.get(); }
  void* output() const { return buffers.output.get(); }
  int own() const { return counts[static_cast<size_t>(rank)]; }
  int elements() const { return static_cast<int>(point.elements); }
};

using Function = void (*)(const Given& a);

// An error ends the program: MPI_ERRORS_ARE_FATAL is the default.
void AllGatherV(const Given& a) {
  MPI_Allgatherv(a.x(), a.own(), a.type, a.output(), a.counts.data(), a.displs.data(), a.type,
                 MPI_COMM_WORLD);
}

void ReduceScatterV(const Given& a) {
  MPI_Reduce_scatter(a.x(), a.output(), a.counts.data(), a.type, a.op, MPI_COMM_WORLD);
}

void Exchange(const Given& a, void* blocks) {
  MPI_Alltoallv(a.x(), a.counts.data(), a.displs.data(), a.type, blocks, a.own_counts.data(),
                a.own_displs.data(), a.type, MPI_COMM_WORLD);
}

void ExchangeAndAdd(const Given& a) {
  Exchange(a, a.blocks.get());
  AddBlocks(a.point.dtype, a.blocks.get(), a.point.ranks(), a.own(), a.output());
}

void AllToAllV(const Given& a) {
  Exchange(a, a.output());
}

void AllReduce(const Given& a) {
  MPI_Allreduce(a.x(), a.output(), a.elements(), a.type, a.op, MPI_COMM_WORLD);
}

void Broadcast(const Given& a) {
  MPI_Bcast(a.output(), a.elements(), a.type, 0, MPI_COMM_WORLD);
}

void SendRecv(const Given& a) {
  const int ranks = a.point.ranks();
  const int next = (a.rank + 1) % ranks;
  const int before = (a.rank + ranks - 1) % ranks;
  MPI_Sendrecv(a.x(), a.elements(), a.type, next, 0, a.output(), a.elements(), a.type, before, 0,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

void Send(const Given& a) {
  if (a.rank == 0) MPI_Send(a.x(), a.elements(), a.type, 1, 0, MPI_COMM_WORLD);
  if (a.rank == 1) {
    MPI_Recv(a.output(), a.elements(), a.type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

extern "C" void AddInOp(void* other, void* into, int* count, MPI_Datatype* /*type*/) {
  AddBFloat16(static_cast<const uint16_t*>(other), static_cast<uint16_t*>(into), *count);
}

MPI_Op UserOp() {
  static const MPI_Op op = [] {
    MPI_Op made = MPI_OP_NULL;
    MPI_Op_create(AddInOp, 1, &made);
    return made;
  }();
  return op;
}

// The MPI's own bfloat16, if it has one and adds it up; else MPI_DATATYPE_NULL.
MPI_Datatype OwnBFloat16() {
#if defined(MPIX_BFLOAT16)
  const MPI_Datatype type = MPIX_BFLOAT16;
  int bytes = 0;
  if (type == MPI_DATATYPE_NULL || MPI_Type_size(type, &bytes) != MPI_SUCCESS || bytes != 2) {
    return MPI_DATATYPE_NULL;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const uint16_t one = 0x3f80;
  uint16_t sum = 0;
  const int error = MPI_Allreduce(&one, &sum, 1, type, MPI_SUM, MPI_COMM_WORLD);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  return error == MPI_SUCCESS ? type : MPI_DATATYPE_NULL;
#else
  return MPI_DATATYPE_NULL;
#endif
}

Call Make(Function function, MPI_Datatype type, MPI_Op op, const Point& point, int rank,
          const Buffers& buffers) {
  const auto a = std::make_shared<Given>();
  a->point = point;
  a->rank = rank;
  a->buffers = buffers;
  a->counts.assign(point.counts.begin(), point.counts.end());
  a->displs.assign(point.displs.begin(), point.displs.end());
  a->type = type;
  a->op = op;
  for (int r = 0; r < point.ranks(); ++r) {
    a->own_counts.push_back(a->own());
    a->own_displs.push_back(r * a->own());
  }
  if (function == ExchangeAndAdd) {
    a->blocks = PlainMemory(int64_t{a->own()} * point.ranks() * SizeOf(point.dtype));
  }
  return [function, a] { function(*a); };
}

Way MakeWay(const char* name, Function function, MPI_Datatype type, MPI_Op op = MPI_SUM) {
  return {name, [=](const Point& point, int rank, Buffers* buffers) {
            return Make(function, type, op, point, rank, *buffers);
          }};
}

std::vector<Way> Reductions(Function function, DType dtype) {
  if (dtype == DType::kFloat32) return {MakeWay("native", function, MPI_FLOAT)};
  const MPI_Datatype type = OwnBFloat16();
  Way native = MakeWay("native", function, type);
  if (type == MPI_DATATYPE_NULL) native.unsupported = "this MPI adds up no bfloat16 of its own";
  return {native, MakeWay("user_op", function, MPI_UINT16_T, UserOp())};
}

// Called between MPI_Init and MPI_Finalize, by all ranks.
std::vector<Way> Ways(Operator op, DType dtype) {
  const MPI_Datatype moved = dtype == DType::kFloat32 ? MPI_FLOAT : MPI_UINT16_T;
  switch (op) {
    case Operator::kAllGatherV:
      return {MakeWay("native", AllGatherV, moved)};
    case Operator::kReduceScatterV: {
      std::vector<Way> ways = Reductions(ReduceScatterV, dtype);
      ways.push_back(MakeWay("exchange_add", ExchangeAndAdd, moved));
      return ways;
    }
    case Operator::kAllReduce:
      return Reductions(AllReduce, dtype);
    case Operator::kBroadcast:
      return {MakeWay("native", Broadcast, moved)};
    case Operator::kAllToAllV:
      return {MakeWay("native", AllToAllV, moved)};
    case Operator::kSendRecv:
      return {MakeWay("native", SendRecv, moved)};
    case Operator::kSend:
      return {MakeWay("native", Send, moved)};
  }
  return {};
}

// The first line of what the MPI says of itself, without the place where it was built.
std::string Version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  text[std::strcspn(text, ",\n")] = '\0';
  return text;
}

// Rank 0 makes the memory, which has no name; the others open it through rank 0's descriptor.
BoardMemory* ShareBoard(int rank) {
  int place[2] = {static_cast<int>(getpid()), rank == 0 ? Board::Create() : -1};
  MPI_Bcast(place, 2, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank == 0) return place[1] < 0 ? nullptr : Board::Map(place[1]);
  const std::string path = "/proc/" + std::to_string(place[0]) + "/fd/" + std::to_string(place[1]);
  const int descriptor = open(path.c_str(), O_RDWR);
  return descriptor < 0 ? nullptr : Board::Map(descriptor);
}

int RunRank(const Arguments& arguments) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const Point& first = arguments.points.front();
  if (ranks != first.ranks()) {
    if (rank == 0) std::fprintf(stderr, "SHARES has %d parts for %d ranks\n", first.ranks(), ranks);
    return kArguments;
  }
  BoardMemory* const memory = ShareBoard(rank);
  if (memory == nullptr) {
    std::perror("the ranks' shared memory");
    MPI_Abort(MPI_COMM_WORLD, kFailed);
    return kFailed;
  }
  Board board(memory, rank, ranks);
  const auto ways = Ways(first.op, first.dtype);
  const int result = Measure(arguments, ways, &board);
  board.Barrier();
  return result;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--version") {
    std::printf("%s\n", bench::Version().c_str());
    return 0;
  }
  bench::Arguments arguments;
  if (!bench::Parse(argc, argv, &arguments)) return bench::kArguments;
  MPI_Init(&argc, &argv);
  const int result = bench::RunRank(arguments);
  MPI_Finalize();
  return result;
}
