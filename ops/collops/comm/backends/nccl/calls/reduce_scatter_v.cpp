#include <algorithm>

#include "collops/comm/backends/nccl/calls/collectives.h"
#include "collops/comm/backends/nccl/calls/group.h"
#include "collops/comm/even_split.h"
#include "collops/kernels/cuda/bodies/reduction.h"

namespace collops::nccl {
namespace {

// At most so much staging in all, in rows that begin at multiples of kAlignment.
constexpr int64_t kStagingBytes = int64_t{64} << 20;
constexpr int64_t kAlignment = 256;

int64_t RoundUp(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Elements of a round: the same on all ranks, whatever their slices.
int64_t RoundCount(DType dtype, int rank_size) {
  const int64_t row = kStagingBytes / std::max(rank_size - 1, 1) / kAlignment * kAlignment;
  return std::max(row, kAlignment) / SizeOf(dtype);
}

// One rank's part of a round.
class Rounds {
 public:
  Rounds(const Engine& engine, const ReduceScatterVCall& call)
      : engine_(engine),
        call_(call),
        rank_(engine.rank()),
        own_count_(call.send_counts[rank_]),
        staging_(StagingOf(call.dtype, own_count_, engine.size())),
        round_count_(RoundCount(call.dtype, engine.size())) {}

  Status Run() {
    const int64_t longest =
        *std::max_element(call_.send_counts, call_.send_counts + engine_.size());
    for (int64_t begin = 0; begin < longest; begin += round_count_) {
      COLLOPS_RETURN_IF_ERROR(Exchange(begin));
      COLLOPS_RETURN_IF_ERROR(Reduce(begin));
    }
    return Ok();
  }

 private:
  int64_t CountOf(int rank, int64_t begin) const {
    return std::clamp<int64_t>(call_.send_counts[rank] - begin, 0, round_count_);
  }

  Status Exchange(int64_t begin) {
    const int64_t size = SizeOf(call_.dtype);
    return InGroup(engine_, [&]() -> Status {
      auto* row = static_cast<std::byte*>(call_.scratch);
      for (int r = 0; r < engine_.size(); ++r) {
        if (r == rank_) continue;
        const void* const slice = ByteAt(call_.x, call_.sdispls[r] + begin, call_.dtype);
        COLLOPS_RETURN_IF_ERROR(Send(engine_, slice, CountOf(r, begin) * size, r, call_.stream));
        COLLOPS_RETURN_IF_ERROR(
            Receive(engine_, row, CountOf(rank_, begin) * size, r, call_.stream));
        row += staging_.stride;
      }
      return Ok();
    });
  }

  Status Reduce(int64_t begin) {
    cuda::ReduceSlicesArgs args = {};
    args.count = CountOf(rank_, begin);
    if (args.count == 0) return Ok();
    args.output = ByteAt(call_.output, begin, call_.dtype);
    args.own = ByteAt(call_.x, call_.sdispls[rank_] + begin, call_.dtype);
    args.staging = call_.scratch;
    args.stride_bytes = staging_.stride;
    args.rank = rank_;
    args.rank_size = engine_.size();
    args.dtype = call_.dtype;
    args.op = call_.op;
    return engine_.kernels().Launch(args, args.count * SizeOf(call_.dtype), call_.stream);
  }

  const Engine& engine_;
  const ReduceScatterVCall& call_;
  const int rank_;
  const int64_t own_count_;
  const Staging staging_;
  const int64_t round_count_;
};

Status Scatter(const Engine& engine, const ReduceScatterVCall& call) {
  // Every rank knows all counts, so all ranks skip an empty call.
  if (AreZero(call.send_counts, engine.size())) return Ok();
  DataType type = DataType::kInt8;
  Reduction reduction = Reduction::kSum;
  if (AreEven(call.send_counts, call.sdispls, engine.size()) &&
      FindExact(call.dtype, call.op, &type, &reduction)) {
    return engine.Taken(
        engine.api().reduce_scatter(call.x, call.output, static_cast<size_t>(call.send_counts[0]),
                                    type, reduction, engine.comm(), call.stream),
        "ncclReduceScatter");
  }
  return Rounds(engine, call).Run();
}

}  // namespace

Staging StagingOf(DType dtype, int64_t count, int rank_size) {
  Staging staging;
  if (SizeOf(dtype) == 0) return staging;  // such a call is refused
  staging.row_count = std::min(count, RoundCount(dtype, rank_size));
  staging.stride = RoundUp(staging.row_count * SizeOf(dtype));
  staging.peers = rank_size - 1;
  return staging;
}

// Integers modulo 2^bits, and the largest and smallest, are the same in any order.
bool FindExact(DType dtype, ReduceOp op, DataType* type, Reduction* reduction) {
  switch (op) {
    case ReduceOp::kSum:
      *reduction = Reduction::kSum;
      break;
    case ReduceOp::kProd:
      *reduction = Reduction::kProd;
      break;
    case ReduceOp::kMax:
      *reduction = Reduction::kMax;
      break;
    case ReduceOp::kMin:
      *reduction = Reduction::kMin;
      break;
    case ReduceOp::kAvg:
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return false;
  }
  constexpr std::pair<DType, DataType> kTypes[] = {{DType::kInt8, DataType::kInt8},
                                                   {DType::kUInt8, DataType::kUint8},
                                                   {DType::kInt32, DataType::kInt32},
                                                   {DType::kInt64, DataType::kInt64}};
  for (const auto& [ours, theirs] : kTypes) {
    if (ours == dtype) {
      *type = theirs;
      return true;
    }
  }
  return false;
}

Status ReduceScatterV(const Engine& engine, const ReduceScatterVCall& call) {
  COLLOPS_RETURN_IF_ERROR(Scatter(engine, call));
  const int64_t received = call.send_counts[engine.rank()];
  return cuda::SetZero(engine.driver(), ByteAt(call.output, received, call.dtype),
                       (call.output_count - received) * SizeOf(call.dtype), call.stream);
}

Status AllReduce(const Engine& engine, const AllReduceCall& call) {
  if (call.count == 0) return Ok();
  DataType type = DataType::kInt8;
  Reduction reduction = Reduction::kSum;
  if (FindExact(call.dtype, call.op, &type, &reduction)) {
    return engine.Taken(
        engine.api().all_reduce(call.x, call.output, static_cast<size_t>(call.count), type,
                                reduction, engine.comm(), call.stream),
        "ncclAllReduce");
  }
  const EvenSplit split(call.count, engine.size());
  COLLOPS_RETURN_IF_ERROR(ReduceScatterV(engine, split.Reduce(call, engine.rank())));
  return AllGatherV(engine, split.Gather(call, engine.rank()));
}

}  // namespace collops::nccl
