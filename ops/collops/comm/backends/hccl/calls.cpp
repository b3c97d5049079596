#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "collops/comm/backends/hccl/communicator.h"
#include "collops/comm/call.h"
#include "collops/comm/even_split.h"
#include "collops/core/tensor.h"

namespace collops::hccl {
namespace {

// Calls a collective of HCCL, for whose first call the ranks meet.
template <typename Call, typename Function, typename... Args>
Status Run(HcclCommunicator& comm, const Call& call, const char* name, Function function,
           Args... args) {
  COLLOPS_RETURN_IF_ERROR(comm.MeetFor(name, *call.agreement, call.stream));
  return ToStatus(comm.api(), function(args..., comm.hccl(), call.stream), name);
}

// The same for a V call, which HCCL may turn out not to have.
template <typename Call, typename Function, typename... Args>
Status RunIfThere(HcclCommunicator& comm, const Call& call, const char* name,
                  bool Abilities::* there, Function function, Args... args) {
  COLLOPS_RETURN_IF_ERROR(comm.MeetFor(name, *call.agreement, call.stream));
  const Result answer = function(args..., comm.hccl(), call.stream);
  return comm.Settle(name, *call.agreement, answer, call.stream, there);
}

// A call's counts and displacements as HCCL takes them: uint64_t, in elements of the type that is
// passed to HCCL.
struct HcclCounts {
  const void* counts;
  const void* displs;
};

struct CopiedCounts {
  std::vector<uint64_t> numbers;  // counts, then displacements
  KeepAlive rest;                 // what else the call needs
};

// `scale`: elements passed to HCCL per element of the call. `held`: the call's own `keep` holds its
// lists. On return `keep` holds the returned numbers, besides what it held: the call's own, or a
// copy if they are not held or are scaled.
HcclCounts TakeCounts(const int64_t* counts, const int64_t* displs, int rank_size, int64_t scale,
                      bool held, KeepAlive* keep) {
  // The counts have been checked: none is negative, so int64_t and uint64_t have the same bits.
  if (scale == 1 && held) return {counts, displs};
  auto copy = std::make_shared<CopiedCounts>();
  for (const int64_t* numbers : {counts, displs}) {
    for (int r = 0; r < rank_size; ++r) {
      copy->numbers.push_back(static_cast<uint64_t>(numbers[r] * scale));
    }
  }
  copy->rest = std::move(*keep);
  const uint64_t* const first = copy->numbers.data();
  *keep = std::move(copy);
  return {first, first + rank_size};
}

Status GatherEvenly(HcclCommunicator& comm, const AllGatherVCall& call) {
  const Carriage carriage = CarriageOf(call.dtype);
  const auto count = static_cast<uint64_t>(call.recv_counts[0] * carriage.scale);
  return Run(comm, call, "HcclAllGather", comm.api().all_gather, const_cast<void*>(call.x),
             call.output, count, carriage.type);
}

// HCCL documents that x is not the output.
Status GatherAtOnce(HcclCommunicator& comm, const AllGatherVCall& call, KeepAlive* keep) {
  const int64_t own = call.recv_counts[comm.rank()];
  const void* const place = ElementAt(call.output, call.rdispls[comm.rank()], call.dtype);
  COLLOPS_CHECK_ARG(
      own == 0 || call.x != place, ERROR_INVALID_TENSOR_ADDR,
      "x is its own block of the output, and HcclAllGatherV does not gather in place unless ",
      "all blocks have one size: pass other memory");
  const Carriage carriage = CarriageOf(call.dtype, true);
  const HcclCounts counts = TakeCounts(call.recv_counts, call.rdispls, comm.size(), carriage.scale,
                                       call.keep != nullptr, keep);
  const auto send_count = static_cast<uint64_t>(own * carriage.scale);
  void* const x = own > 0 ? const_cast<void*>(call.x) : comm.sent_nothing();
  return RunIfThere(comm, call, "HcclAllGatherV", &Abilities::all_gather_v, comm.api().all_gather_v,
                    x, send_count, call.output, counts.counts, counts.displs, carriage.type);
}

// Each rank broadcasts its block from its place in the output.
Status GatherByBroadcasts(HcclCommunicator& comm, const AllGatherVCall& call) {
  const Carriage carriage = CarriageOf(call.dtype);
  const int64_t own = call.recv_counts[comm.rank()];
  COLLOPS_RETURN_IF_ERROR(Copy(comm.api(),
                               ElementAt(call.output, call.rdispls[comm.rank()], call.dtype),
                               call.x, own * SizeOf(call.dtype), call.stream));
  for (int r = 0; r < comm.size(); ++r) {
    if (call.recv_counts[r] == 0) continue;
    COLLOPS_RETURN_IF_ERROR(Run(comm, call, "HcclBroadcast", comm.api().broadcast,
                                ElementAt(call.output, call.rdispls[r], call.dtype),
                                static_cast<uint64_t>(call.recv_counts[r] * carriage.scale),
                                carriage.type, static_cast<uint32_t>(r)));
  }
  return Ok();
}

Status Gather(HcclCommunicator& comm, const AllGatherVCall& call, KeepAlive* keep) {
  // Every rank knows all counts, so all ranks skip an empty call.
  if (AreZero(call.recv_counts, comm.size())) return Ok();
  if (AreEven(call.recv_counts, call.rdispls, comm.size())) return GatherEvenly(comm, call);
  if (comm.abilities().all_gather_v) {
    COLLOPS_RETURN_IF_ERROR(GatherAtOnce(comm, call, keep));
    if (comm.abilities().all_gather_v) return Ok();
  }
  return GatherByBroadcasts(comm, call);
}

// Zeros for the elements that no block of a call covers.
template <typename Call>
Status ZeroGaps(const HcclCommunicator& comm, const Call& call) {
  for (int64_t i = 0; i < call.num_gaps; ++i) {
    COLLOPS_RETURN_IF_ERROR(Zero(comm.api(), call.output, call.gaps[i], call.dtype, call.stream));
  }
  return Ok();
}

struct Reduced {
  DataType type = DataType::kInt8;
  Reduction reduction = Reduction::kSum;
  void* x = nullptr;
  void* output = nullptr;  // not null
};

Status ScatterEvenly(HcclCommunicator& comm, const ReduceScatterVCall& call, Reduced* what) {
  COLLOPS_RETURN_IF_ERROR(FindReduction(call.dtype, call.op, &what->type, &what->reduction));
  return Run(comm, call, "HcclReduceScatter", comm.api().reduce_scatter, what->x, what->output,
             static_cast<uint64_t>(call.send_counts[0]), what->type, what->reduction);
}

Status ScatterAtOnce(HcclCommunicator& comm, const ReduceScatterVCall& call, Reduced* what,
                     KeepAlive* keep) {
  const HcclCounts counts =
      TakeCounts(call.send_counts, call.sdispls, comm.size(), 1, call.keep != nullptr, keep);
  const auto received = static_cast<uint64_t>(call.send_counts[comm.rank()]);
  return RunIfThere(comm, call, "HcclReduceScatterV", &Abilities::reduce_scatter_v,
                    comm.api().reduce_scatter_v, what->x, counts.counts, counts.displs,
                    what->output, received, what->type, what->reduction);
}

// Each rank is the root of its own slice.
Status ScatterByReductions(HcclCommunicator& comm, const ReduceScatterVCall& call, Reduced* what) {
  for (int r = 0; r < comm.size(); ++r) {
    if (call.send_counts[r] == 0) continue;
    COLLOPS_RETURN_IF_ERROR(Run(comm, call, "HcclReduce", comm.api().reduce,
                                ElementAt(what->x, call.sdispls[r], call.dtype), what->output,
                                static_cast<uint64_t>(call.send_counts[r]), what->type,
                                what->reduction, static_cast<uint32_t>(r)));
  }
  return Ok();
}

Status Scatter(HcclCommunicator& comm, const ReduceScatterVCall& call, KeepAlive* keep) {
  // Every rank knows all counts, so all ranks skip an empty call.
  if (AreZero(call.send_counts, comm.size())) return Ok();
  Reduced what;
  what.x = const_cast<void*>(call.x);
  what.output = call.send_counts[comm.rank()] > 0 ? call.output : comm.received_nothing();
  if (AreEven(call.send_counts, call.sdispls, comm.size())) {
    return ScatterEvenly(comm, call, &what);
  }
  if (HasOneOwner(call.send_counts, comm.size())) {
    COLLOPS_RETURN_IF_ERROR(FindReduction(call.dtype, call.op, &what.type, &what.reduction));
    return ScatterByReductions(comm, call, &what);
  }
  COLLOPS_RETURN_IF_ERROR(FindReductionV(call.dtype, call.op, &what.type, &what.reduction));
  if (comm.abilities().reduce_scatter_v) {
    COLLOPS_RETURN_IF_ERROR(ScatterAtOnce(comm, call, &what, keep));
    if (comm.abilities().reduce_scatter_v) return Ok();
  }
  return ScatterByReductions(comm, call, &what);
}

// How a rank adds the slices that it gets of all ranks, as SPEC wants it: in their order, in
// float32, rounded once. In scratch memory: the slices, one behind the other, then float32 numbers,
// then what aclnn needs.
class OrderedSum {
 public:
  OrderedSum(DType dtype, int64_t count, int num_ranks, void* scratch)
      : dtype_(dtype),
        count_(count),
        num_ranks_(num_ranks),
        widens_(dtype != DType::kFloat32),
        stride_(RoundUp(count * SizeOf(dtype)) / SizeOf(dtype)),
        scratch_(scratch) {}

  int64_t stride() const { return stride_; }  // between the slices, in elements
  void* slice(int rank) const { return At(rank * stride_ * SizeOf(dtype_)); }

  int64_t bytes(kernels::StreamCompute& compute) const {
    int64_t aclnn_bytes = 0;
    return AclnnBytes(compute, &aclnn_bytes).ok() ? own_bytes() + aclnn_bytes : own_bytes();
  }

  Status Run(kernels::StreamCompute& compute, void* output, Stream stream) const {
    int64_t bytes = 0;
    COLLOPS_RETURN_IF_ERROR(AclnnBytes(compute, &bytes));
    for (const kernels::StreamStep& step : Steps(num_ranks_, output)) {
      COLLOPS_RETURN_IF_ERROR(compute.Run(step, At(own_bytes()), bytes, stream));
    }
    return Ok();
  }

 private:
  static int64_t RoundUp(int64_t bytes) {
    constexpr int64_t kUnit = 512;
    return (bytes + kUnit - 1) / kUnit * kUnit;
  }
  void* At(int64_t byte) const { return static_cast<std::byte*>(scratch_) + byte; }
  int64_t slice_bytes() const { return num_ranks_ * stride_ * SizeOf(dtype_); }
  int64_t wide_bytes() const { return RoundUp(count_ * SizeOf(DType::kFloat32)); }
  int64_t own_bytes() const { return slice_bytes() + (widens_ ? 2 * wide_bytes() : 0); }

  std::vector<kernels::StreamStep> Steps(int num_ranks, void* output) const {
    using kernels::StreamStep;
    const auto row = [&](void* data, DType dtype) {
      return kernels::DeviceMatrix{data, dtype, 1, count_, count_, false};
    };
    std::vector<StreamStep> steps;
    const kernels::DeviceMatrix sum = row(widens_ ? At(slice_bytes()) : output, DType::kFloat32);
    const kernels::DeviceMatrix next = row(At(slice_bytes() + wide_bytes()), DType::kFloat32);
    if (widens_) steps.push_back({StreamStep::kConvert, row(slice(0), dtype_), {}, sum});
    for (int r = 1; r < num_ranks; ++r) {
      const kernels::DeviceMatrix term = row(slice(r), dtype_);
      if (widens_) steps.push_back({StreamStep::kConvert, term, {}, next});
      const bool begins = !widens_ && r == 1;
      steps.push_back(
          {StreamStep::kAdd, begins ? row(slice(0), dtype_) : sum, widens_ ? next : term, sum});
    }
    if (widens_) steps.push_back({StreamStep::kConvert, sum, {}, row(output, dtype_)});
    return steps;
  }

  // Two ranks have all kinds of steps.
  Status AclnnBytes(kernels::StreamCompute& compute, int64_t* most) const {
    for (const kernels::StreamStep& step : Steps(2, scratch_)) {
      int64_t bytes = 0;
      COLLOPS_RETURN_IF_ERROR(compute.ScratchBytes(step, &bytes));
      *most = std::max(*most, bytes);
    }
    return Ok();
  }

  const DType dtype_;
  const int64_t count_;
  const int num_ranks_;
  const bool widens_;
  const int64_t stride_;
  void* const scratch_;
};

// Each rank gets its slice of every rank, and adds them.
Status ScatterInOrder(HcclCommunicator& comm, const ReduceScatterVCall& call, KeepAlive* keep) {
  if (AreZero(call.send_counts, comm.size())) return Ok();
  const int64_t own = call.send_counts[comm.rank()];
  const OrderedSum sum(call.dtype, own, comm.size(), call.scratch);
  const Carriage carriage = CarriageOf(call.dtype);
  const HcclCounts sends = TakeCounts(call.send_counts, call.sdispls, comm.size(), carriage.scale,
                                      call.keep != nullptr, keep);
  const std::vector<int64_t> counts(static_cast<size_t>(comm.size()), own);
  std::vector<int64_t> displs;
  for (int r = 0; r < comm.size(); ++r) displs.push_back(r * sum.stride());
  const HcclCounts receives =
      TakeCounts(counts.data(), displs.data(), comm.size(), carriage.scale, false, keep);
  void* const slices = own > 0 ? sum.slice(0) : comm.received_nothing();
  COLLOPS_RETURN_IF_ERROR(Run(comm, call, "HcclAlltoAllV", comm.api().all_to_all_v, call.x,
                              sends.counts, sends.displs, carriage.type, slices, receives.counts,
                              receives.displs, carriage.type));
  return own > 0 ? sum.Run(comm.compute(), call.output, call.stream) : Ok();
}

// HCCL documents no ReduceScatter in place.
Status CheckApart(const ReduceScatterVCall& call, int rank_size) {
  int64_t end = 0;
  for (int r = 0; r < rank_size; ++r) end = std::max(end, call.sdispls[r] + call.send_counts[r]);
  const int64_t size = SizeOf(call.dtype);
  COLLOPS_CHECK_ARG(
      !Overlap(call.x, end * size, call.output, call.output_count * size),
      ERROR_INVALID_TENSOR_ADDR, call.agreement->called(),
      ": the output overlaps x, and HCCL does not scatter in place: pass other memory");
  return Ok();
}

// A message as HCCL takes it. `turn`: how many messages of the list to (or from) the same rank come
// before it.
struct Item {
  SendRecvItem item;
  int turn = 0;
};

SendRecvItem ItemOf(const Transfer& transfer) {
  // Elements of a type that the core has no name for travel as bytes, which are `bytes` long.
  const int64_t size = std::max<int64_t>(SizeOf(transfer.dtype), 1);
  const Carriage carriage = CarriageOf(transfer.dtype);
  SendRecvItem item = {};
  item.way = transfer.way == Transfer::kSend ? SendRecvType::kSend : SendRecvType::kRecv;
  item.data = transfer.data;
  item.count = static_cast<uint64_t>(transfer.bytes / size * std::max<int64_t>(carriage.scale, 1));
  item.type = carriage.type;
  item.peer = static_cast<uint32_t>(transfer.peer);
  return item;
}

int CountBefore(const std::vector<Item>& items, const SendRecvItem& item) {
  return static_cast<int>(std::count_if(items.begin(), items.end(), [&](const Item& other) {
    return other.item.way == item.way && other.item.peer == item.peer;
  }));
}

// What this rank sends to itself is copied: HCCL connects no rank with itself.
Status CopyOwn(const HcclCommunicator& comm, const Transfer* list, int count, Stream stream) {
  std::vector<const Transfer*> sends;
  std::vector<const Transfer*> receives;
  for (int i = 0; i < count; ++i) {
    if (list[i].peer != comm.rank()) continue;
    (list[i].way == Transfer::kSend ? sends : receives).push_back(&list[i]);
  }
  for (size_t i = 0; i < sends.size(); ++i) {
    COLLOPS_RETURN_IF_ERROR(
        Copy(comm.api(), receives[i]->data, sends[i]->data, sends[i]->bytes, stream));
  }
  return Ok();
}

Status One(const HcclCommunicator& comm, const SendRecvItem& item, Stream stream) {
  const Api& api = comm.api();
  if (item.way == SendRecvType::kSend) {
    return ToStatus(api, api.send(item.data, item.count, item.type, item.peer, comm.hccl(), stream),
                    "HcclSend");
  }
  return ToStatus(api, api.recv(item.data, item.count, item.type, item.peer, comm.hccl(), stream),
                  "HcclRecv");
}

// The messages of these two names are one each, and their peers make the other.
bool IsBatch(const char* name) {
  return std::strcmp(name, "Send") != 0 && std::strcmp(name, "Recv") != 0;
}

// By what two ranks know of each other that they have come to a message.
std::vector<control::Control::PairMark> MarksOf(const std::vector<Item>& items, bool batched) {
  enum : uint8_t { kSends = 1, kReceives = 2, kIsInBatch = 4 };
  std::vector<control::Control::PairMark> marks;
  for (const Item& item : items) {
    const bool sends = item.item.way == SendRecvType::kSend;
    const uint8_t mine = batched ? kIsInBatch : sends ? kSends : kReceives;
    const uint8_t theirs = batched ? kIsInBatch : sends ? kReceives : kSends;
    marks.push_back({static_cast<int>(item.item.peer), mine, theirs});
  }
  return marks;
}

// HCCL takes one message per rank and direction in a batch, so the second ones are a second batch.
// Both ranks count alike: the n-th message between them is in the n-th batch of both.
Status PutMessages(HcclCommunicator& comm, const CallName& name, const Transfer* list, int count,
                   Stream stream) {
  const bool batched = IsBatch(name.op);
  COLLOPS_RETURN_IF_ERROR(CopyOwn(comm, list, count, stream));
  std::vector<Item> items;
  int turns = 0;
  for (int i = 0; i < count; ++i) {
    if (list[i].peer == comm.rank() || list[i].bytes == 0) continue;
    const SendRecvItem item = ItemOf(list[i]);
    items.push_back({item, CountBefore(items, item)});
    turns = std::max(turns, items.back().turn + 1);
  }
  COLLOPS_RETURN_IF_ERROR(comm.MeetFor(name.called, MarksOf(items, batched), stream));
  if (!batched && items.size() == 1) return One(comm, items[0].item, stream);
  for (int turn = 0; turn < turns; ++turn) {
    std::vector<SendRecvItem> batch;
    for (const Item& item : items) {
      if (item.turn == turn) batch.push_back(item.item);
    }
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(comm.api(),
                 comm.api().batch_send_recv(batch.data(), static_cast<uint32_t>(batch.size()),
                                            comm.hccl(), stream),
                 "HcclBatchSendRecv"));
  }
  return Ok();
}

}  // namespace

bool HcclCommunicator::AddsInOrder(DType dtype, ReduceOp op) const {
  const bool rounds =
      dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32;
  return adds_in_order_ && op == ReduceOp::kSum && rounds && size() > 1;
}

// The aclnn library is asked on the communicator's device, or on the thread's before first contact.
int64_t HcclCommunicator::ScratchBytes(DType dtype, ReduceOp op, int64_t own_count,
                                       int num_ranks) const {
  if (!AddsInOrder(dtype, op) || own_count == 0) return 0;
  int64_t bytes = 0;
  const auto ask = [&]() -> Status {
    bytes = OrderedSum(dtype, own_count, num_ranks, nullptr).bytes(compute());
    return Ok();
  };
  // What is missing then is said by the call.
  static_cast<void>(device_index() < 0 ? ask() : compute().OnDevice(ask));
  return bytes;
}

Status HcclCommunicator::DoAllGatherV(const AllGatherVCall& call) {
  return Enqueue(call, [&](KeepAlive* keep) -> Status {
    // The gaps after the exchange: if zeroing fails, this rank has still taken part in it.
    COLLOPS_RETURN_IF_ERROR(Gather(*this, call, keep));
    return ZeroGaps(*this, call);
  });
}

Status HcclCommunicator::DoReduceScatterV(const ReduceScatterVCall& call) {
  const Status apart = CheckApart(call, size());
  if (!apart.ok()) return Decline(call.agreement->called(), apart);
  return Enqueue(call, [&](KeepAlive* keep) -> Status {
    COLLOPS_RETURN_IF_ERROR(AddsInOrder(call.dtype, call.op) ? ScatterInOrder(*this, call, keep)
                                                             : Scatter(*this, call, keep));
    const int64_t received = call.send_counts[rank()];
    return Zero(api_, call.output, {received, call.output_count}, call.dtype, call.stream);
  });
}

// A rank that neither sends nor receives takes part, because it does not know what the others do.
Status HcclCommunicator::DoExchangeV(const ExchangeVCall& call) {
  return Enqueue(call, [&](KeepAlive* keep) -> Status {
    const Carriage carriage = CarriageOf(call.dtype);
    const bool held = call.keep != nullptr;
    const HcclCounts sends =
        TakeCounts(call.send_counts, call.sdispls, size(), carriage.scale, held, keep);
    const HcclCounts receives =
        TakeCounts(call.recv_counts, call.rdispls, size(), carriage.scale, held, keep);
    const void* const x = AreZero(call.send_counts, size()) ? sent_nothing() : call.x;
    const void* const output = AreZero(call.recv_counts, size()) ? received_nothing() : call.output;
    COLLOPS_RETURN_IF_ERROR(Run(*this, call, "HcclAlltoAllV", api_.all_to_all_v, x, sends.counts,
                                sends.displs, carriage.type, output, receives.counts,
                                receives.displs, carriage.type));
    return ZeroGaps(*this, call);
  });
}

Status HcclCommunicator::DoAllReduce(const AllReduceCall& call) {
  return Enqueue(call, [&](KeepAlive* keep) -> Status {
    if (call.count == 0) return Ok();  // on every rank
    if (AddsInOrder(call.dtype, call.op)) {
      // HCCL gathers no uneven parts in place, so the sum stays where its first slice was.
      const EvenSplit split(call.count, size());
      ReduceScatterVCall reduce = split.Reduce(call, rank());
      reduce.output = call.scratch;
      COLLOPS_RETURN_IF_ERROR(ScatterInOrder(*this, reduce, keep));
      AllGatherVCall gather = split.Gather(call, rank());
      gather.x = call.scratch;
      return Gather(*this, gather, keep);
    }
    DataType type = DataType::kInt8;
    Reduction reduction = Reduction::kSum;
    COLLOPS_RETURN_IF_ERROR(FindReduction(call.dtype, call.op, &type, &reduction));
    return Run(*this, call, "HcclAllReduce", api_.all_reduce, const_cast<void*>(call.x),
               call.output, static_cast<uint64_t>(call.count), type, reduction);
  });
}

Status HcclCommunicator::DoBroadcast(const BroadcastCall& call) {
  return Enqueue(call, [&](KeepAlive*) -> Status {
    if (call.count == 0) return Ok();  // on every rank
    const Carriage carriage = CarriageOf(call.dtype);
    return Run(*this, call, "HcclBroadcast", api_.broadcast, call.data,
               static_cast<uint64_t>(call.count * carriage.scale), carriage.type,
               static_cast<uint32_t>(call.root));
  });
}

Status HcclCommunicator::DoMessages(const CallName& name, Transfer* list, int count, void* stream) {
  return EnqueueMessages(name.called, "HCCL", list, count, stream,
                         [&] { return PutMessages(*this, name, list, count, stream); });
}

Status HcclCommunicator::DoBarrier(const Agreement& agreement, void* stream) {
  return EnqueueBarrier(agreement, stream, [&] {
    return ToStatus(api_, api_.barrier(hccl(), stream), "HcclBarrier");
  });
}

}  // namespace collops::hccl
