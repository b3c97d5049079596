#include "mpi/calls.h"

#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include "mpi/sums.h"

namespace bench::mpi_calls {
namespace {

// What an MPI function is given. Counts and displacements are int in MPI.
struct Arguments {
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

using Function = void (*)(const Arguments& a);

// An error ends the program: MPI_ERRORS_ARE_FATAL is the default.
void AllGatherV(const Arguments& a) {
  MPI_Allgatherv(a.x(), a.own(), a.type, a.output(), a.counts.data(), a.displs.data(), a.type,
                 MPI_COMM_WORLD);
}

void ReduceScatterV(const Arguments& a) {
  MPI_Reduce_scatter(a.x(), a.output(), a.counts.data(), a.type, a.op, MPI_COMM_WORLD);
}

void Exchange(const Arguments& a, void* blocks) {
  MPI_Alltoallv(a.x(), a.counts.data(), a.displs.data(), a.type, blocks, a.own_counts.data(),
                a.own_displs.data(), a.type, MPI_COMM_WORLD);
}

void ExchangeAndAdd(const Arguments& a) {
  Exchange(a, a.blocks.get());
  AddBlocks(a.point.dtype, a.blocks.get(), a.point.ranks(), a.own(), a.output());
}

void AllToAllV(const Arguments& a) {
  Exchange(a, a.output());
}

void AllReduce(const Arguments& a) {
  MPI_Allreduce(a.x(), a.output(), a.elements(), a.type, a.op, MPI_COMM_WORLD);
}

void Broadcast(const Arguments& a) {
  MPI_Bcast(a.output(), a.elements(), a.type, 0, MPI_COMM_WORLD);
}

void SendRecv(const Arguments& a) {
  const int ranks = a.point.ranks();
  const int next = (a.rank + 1) % ranks;
  const int before = (a.rank + ranks - 1) % ranks;
  MPI_Sendrecv(a.x(), a.elements(), a.type, next, 0, a.output(), a.elements(), a.type, before, 0,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
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
  const auto a = std::make_shared<Arguments>();
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

}  // namespace

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
  }
  return {};
}

}  // namespace bench::mpi_calls
