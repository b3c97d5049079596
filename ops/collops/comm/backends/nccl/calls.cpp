#include <algorithm>
#include <vector>

#include "collops/comm/backends/nccl/communicator.h"
#include "collops/comm/even_split.h"
#include "collops/core/status.h"
#include "collops/kernels/cuda/bodies/reduction.h"
#include "collops/kernels/cuda/driver.h"

namespace collops::nccl {
namespace {

// Calls of NCCL that are put on their streams together, as one kernel where NCCL can.
// ncclGroupStart counts per thread, so a group that was begun is always ended.
template <typename Body>
Status InGroup(const NcclCommunicator& comm, Body&& body) {
  const Api& api = comm.api();
  COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.group_start(), "ncclGroupStart"));
  const Status status = body();
  const Status ended = comm.Taken(api.group_end(), "ncclGroupEnd");
  return status.ok() ? ended : status;
}

// A message of `bytes` bytes to or from `peer`, in a group; nothing if it has none.
Status Send(const NcclCommunicator& comm, const void* data, int64_t bytes, int peer,
            Stream stream) {
  if (bytes == 0) return Ok();
  const Api& api = comm.api();
  return ToStatus(
      api, api.send(data, static_cast<size_t>(bytes), DataType::kInt8, peer, comm.nccl(), stream),
      "ncclSend");
}
Status Receive(const NcclCommunicator& comm, void* data, int64_t bytes, int peer, Stream stream) {
  if (bytes == 0) return Ok();
  const Api& api = comm.api();
  return ToStatus(
      api, api.recv(data, static_cast<size_t>(bytes), DataType::kInt8, peer, comm.nccl(), stream),
      "ncclRecv");
}

std::byte* ByteAt(void* data, int64_t element, DType dtype) {
  return static_cast<std::byte*>(data) + element * SizeOf(dtype);
}
const std::byte* ByteAt(const void* data, int64_t element, DType dtype) {
  return static_cast<const std::byte*>(data) + element * SizeOf(dtype);
}

// Zeros for the elements that no block of a call covers.
template <typename Call>
Status ZeroGaps(const NcclCommunicator& comm, const Call& call) {
  for (int64_t i = 0; i < call.num_gaps; ++i) {
    const Range& gap = call.gaps[i];
    COLLOPS_RETURN_IF_ERROR(cuda::SetZero(comm.driver(), ByteAt(call.output, gap.begin, call.dtype),
                                          (gap.end - gap.begin) * SizeOf(call.dtype), call.stream));
  }
  return Ok();
}

Status Gather(const NcclCommunicator& comm, const AllGatherVCall& call) {
  const Api& api = comm.api();
  const int64_t size = SizeOf(call.dtype);
  // Every rank knows all counts, so all ranks skip an empty call.
  if (AreZero(call.recv_counts, comm.size())) return Ok();
  if (AreEven(call.recv_counts, call.rdispls, comm.size())) {
    const auto bytes = static_cast<size_t>(call.recv_counts[0] * size);
    return comm.Taken(
        api.all_gather(call.x, call.output, bytes, DataType::kInt8, comm.nccl(), call.stream),
        "ncclAllGather");
  }
  return InGroup(comm, [&]() -> Status {
    for (int r = 0; r < comm.size(); ++r) {
      if (call.recv_counts[r] == 0) continue;
      void* const block = ByteAt(call.output, call.rdispls[r], call.dtype);
      const void* const send = r == comm.rank() ? call.x : block;
      COLLOPS_RETURN_IF_ERROR(
          ToStatus(api,
                   api.broadcast(send, block, static_cast<size_t>(call.recv_counts[r] * size),
                                 DataType::kInt8, r, comm.nccl(), call.stream),
                   "ncclBroadcast"));
    }
    return Ok();
  });
}

Status GatherAndZero(const NcclCommunicator& comm, const AllGatherVCall& call) {
  // The gaps after the exchange: if zeroing fails, this rank has still taken part in the exchange.
  COLLOPS_RETURN_IF_ERROR(Gather(comm, call));
  return ZeroGaps(comm, call);
}

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

// Where a rank of the group puts the peers' slices until they are reduced: rows of `stride` bytes,
// one per peer. A slice that is longer than a row is reduced in rounds.
struct Staging {
  int64_t stride = 0;  // bytes
  int peers = 0;
  int64_t bytes() const { return stride * peers; }
};

// For this rank's slice of `count` elements.
Staging StagingOf(DType dtype, int64_t count, int rank_size) {
  if (SizeOf(dtype) == 0) return {};  // such a call is refused
  const int64_t row_count = std::min(count, RoundCount(dtype, rank_size));
  return {RoundUp(row_count * SizeOf(dtype)), rank_size - 1};
}

// One rank's part of a round.
class Rounds {
 public:
  Rounds(const NcclCommunicator& comm, const ReduceScatterVCall& call)
      : comm_(comm),
        call_(call),
        rank_(comm.rank()),
        own_count_(call.send_counts[rank_]),
        staging_(StagingOf(call.dtype, own_count_, comm.size())),
        round_count_(RoundCount(call.dtype, comm.size())) {}

  Status Run() {
    const int64_t longest = *std::max_element(call_.send_counts, call_.send_counts + comm_.size());
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
    return InGroup(comm_, [&]() -> Status {
      auto* row = static_cast<std::byte*>(call_.scratch);
      for (int r = 0; r < comm_.size(); ++r) {
        if (r == rank_) continue;
        const void* const slice = ByteAt(call_.x, call_.sdispls[r] + begin, call_.dtype);
        COLLOPS_RETURN_IF_ERROR(Send(comm_, slice, CountOf(r, begin) * size, r, call_.stream));
        COLLOPS_RETURN_IF_ERROR(Receive(comm_, row, CountOf(rank_, begin) * size, r, call_.stream));
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
    args.rank_size = comm_.size();
    args.dtype = call_.dtype;
    args.op = call_.op;
    return comm_.kernels().Launch(args, args.count * SizeOf(call_.dtype), call_.stream);
  }

  const NcclCommunicator& comm_;
  const ReduceScatterVCall& call_;
  const int rank_;
  const int64_t own_count_;
  const Staging staging_;
  const int64_t round_count_;
};

// NCCL's numbers of a reduction that gives SPEC's bits in any order; false if it has none. Integers
// modulo 2^bits, and the largest and smallest, are the same in any order.
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

Status Scatter(const NcclCommunicator& comm, const ReduceScatterVCall& call) {
  // Every rank knows all counts, so all ranks skip an empty call.
  if (AreZero(call.send_counts, comm.size())) return Ok();
  DataType type = DataType::kInt8;
  Reduction reduction = Reduction::kSum;
  if (AreEven(call.send_counts, call.sdispls, comm.size()) &&
      FindExact(call.dtype, call.op, &type, &reduction)) {
    return comm.Taken(
        comm.api().reduce_scatter(call.x, call.output, static_cast<size_t>(call.send_counts[0]),
                                  type, reduction, comm.nccl(), call.stream),
        "ncclReduceScatter");
  }
  return Rounds(comm, call).Run();
}

Status ScatterAndZero(const NcclCommunicator& comm, const ReduceScatterVCall& call) {
  COLLOPS_RETURN_IF_ERROR(Scatter(comm, call));
  const int64_t received = call.send_counts[comm.rank()];
  return cuda::SetZero(comm.driver(), ByteAt(call.output, received, call.dtype),
                       (call.output_count - received) * SizeOf(call.dtype), call.stream);
}

}  // namespace

int64_t NcclCommunicator::ScratchBytes(DType dtype, ReduceOp /*op*/, int64_t own_count,
                                       int num_ranks) const {
  return StagingOf(dtype, own_count, num_ranks).bytes();
}

Status NcclCommunicator::DoAllGatherV(const AllGatherVCall& call) {
  return Enqueue(call, [&](KeepAlive*) { return GatherAndZero(*this, call); });
}

Status NcclCommunicator::DoReduceScatterV(const ReduceScatterVCall& call) {
  return Enqueue(call, [&](KeepAlive*) { return ScatterAndZero(*this, call); });
}

Status NcclCommunicator::DoAllReduce(const AllReduceCall& call) {
  return Enqueue(call, [&](KeepAlive*) -> Status {
    if (call.count == 0) return Ok();
    DataType type = DataType::kInt8;
    Reduction reduction = Reduction::kSum;
    if (FindExact(call.dtype, call.op, &type, &reduction)) {
      return Taken(api_.all_reduce(call.x, call.output, static_cast<size_t>(call.count), type,
                                   reduction, nccl(), call.stream),
                   "ncclAllReduce");
    }
    const EvenSplit split(call.count, size());
    COLLOPS_RETURN_IF_ERROR(ScatterAndZero(*this, split.Reduce(call, rank())));
    return GatherAndZero(*this, split.Gather(call, rank()));
  });
}

Status NcclCommunicator::DoBroadcast(const BroadcastCall& call) {
  return Enqueue(call, [&](KeepAlive*) -> Status {
    if (call.count == 0) return Ok();
    const auto bytes = static_cast<size_t>(call.count * SizeOf(call.dtype));
    return Taken(api_.broadcast(call.data, call.data, bytes, DataType::kInt8, call.root, nccl(),
                                call.stream),
                 "ncclBroadcast");
  });
}

Status NcclCommunicator::DoBarrier(const Agreement& agreement, void* stream) {
  return EnqueueBarrier(agreement, stream, [&] {
    void* const word = reinterpret_cast<void*>(stand_in_->pointer());
    const Status taken =
        Taken(api_.all_reduce(word, word, 1, DataType::kInt8, Reduction::kSum, nccl(), stream),
              "ncclAllReduce");
    stand_in_->UsedOn(stream);
    return taken;
  });
}

Status NcclCommunicator::DoExchangeV(const ExchangeVCall& call) {
  const int64_t size_bytes = SizeOf(call.dtype);
  const int own = rank();
  const auto exchange = [&]() -> Status {
    for (int r = 0; r < size(); ++r) {
      if (r == own) continue;
      COLLOPS_RETURN_IF_ERROR(Send(*this, ByteAt(call.x, call.sdispls[r], call.dtype),
                                   call.send_counts[r] * size_bytes, r, call.stream));
      COLLOPS_RETURN_IF_ERROR(Receive(*this, ByteAt(call.output, call.rdispls[r], call.dtype),
                                      call.recv_counts[r] * size_bytes, r, call.stream));
    }
    return Ok();
  };
  return Enqueue(call, [&](KeepAlive*) -> Status {
    COLLOPS_RETURN_IF_ERROR(InGroup(*this, exchange));
    COLLOPS_RETURN_IF_ERROR(cuda::Copy(driver_, ByteAt(call.output, call.rdispls[own], call.dtype),
                                       ByteAt(call.x, call.sdispls[own], call.dtype),
                                       call.recv_counts[own] * size_bytes, call.stream));
    return ZeroGaps(*this, call);
  });
}

// The check of the list has found as many messages to this rank as from it, of the same sizes.
Status NcclCommunicator::DoMessages(const CallName& name, Transfer* list, int count, void* stream) {
  std::vector<const Transfer*> own[2];
  const auto exchange = [&]() -> Status {
    for (int i = 0; i < count; ++i) {
      const Transfer& transfer = list[i];
      if (transfer.peer == rank()) {
        own[transfer.way].push_back(&transfer);
      } else if (transfer.way == Transfer::kSend) {
        COLLOPS_RETURN_IF_ERROR(Send(*this, transfer.data, transfer.bytes, transfer.peer, stream));
      } else {
        COLLOPS_RETURN_IF_ERROR(
            Receive(*this, transfer.data, transfer.bytes, transfer.peer, stream));
      }
    }
    return Ok();
  };
  return EnqueueMessages(name.called, "NCCL", list, count, stream, [&]() -> Status {
    COLLOPS_RETURN_IF_ERROR(InGroup(*this, exchange));
    const auto& [sends, receives] = own;
    for (size_t i = 0; i < sends.size(); ++i) {
      COLLOPS_RETURN_IF_ERROR(
          cuda::Copy(driver_, receives[i]->data, sends[i]->data, sends[i]->bytes, stream));
    }
    return Ok();
  });
}

}  // namespace collops::nccl
