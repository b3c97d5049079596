#include "comm/communicator.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <vector>

#include "comm/registry.h"

namespace collops {
namespace {

// What each rank tells the others in a Split.
struct Choice {
  int64_t color;
  int64_t key;
  int64_t token;  // rank 0's names the split: no two splits, of any communicator, share it
};

constexpr int64_t kChoiceLength = sizeof(Choice) / sizeof(int64_t);

// The ranks with `color`, in the order of their keys and then of their ranks.
std::vector<int> Members(const std::vector<Choice>& choices, int64_t color) {
  std::vector<int> ranks;
  for (size_t r = 0; r < choices.size(); ++r) {
    if (choices[r].color == color) ranks.push_back(static_cast<int>(r));
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return choices[static_cast<size_t>(a)].key < choices[static_cast<size_t>(b)].key;
  });
  return ranks;
}

// Runs `call` and says what it was and how long it took.
template <typename Call>
Status Traced(const CommunicatorSpec& spec, uint64_t sequence, const char* name,
              const std::string& sizes, Call&& call) {
  const auto start = std::chrono::steady_clock::now();
  const Status status = call();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  const std::string domain = spec.comm_domain.empty() ? "-" : spec.comm_domain;
  Trace(Concat("r", spec.rank, "/", spec.rank_size, " ", domain, " ", spec.backend, " ", name,
               " seq=", sequence, sizes, " ", took.count(), " ms",
               status.ok() ? "" : Concat(" ", ErrorName(status.code()))));
  return status;
}

// Elements in, type, elements out.
std::string Sizes(int64_t sent, DType dtype, int64_t received) {
  return Concat(" send=", sent, " ", Name(dtype), " recv=", received);
}

int64_t Sum(const int64_t* counts, int size) {
  return std::accumulate(counts, counts + size, int64_t{0});
}

}  // namespace

Communicator::~Communicator() {
  for (const auto& [name, part] : kept_parts_) {
    if (part != nullptr) part->Close("the communicator that it is a part of is gone");
  }
}

uint64_t Communicator::CountCall() {
  const uint64_t sequence = num_calls_.load(std::memory_order_relaxed) + 1;
  num_calls_.store(sequence, std::memory_order_relaxed);
  return sequence;
}

Status Communicator::AllGatherV(const AllGatherVCall& call) {
  const uint64_t sequence = CountCall();
  if (!traced_) return DoAllGatherV(call);
  const std::string sizes =
      Sizes(call.recv_counts[rank()], call.dtype, Sum(call.recv_counts, size()));
  return Traced(spec_, sequence, Name(call.kind), sizes, [&] { return DoAllGatherV(call); });
}

Status Communicator::ReduceScatterV(const ReduceScatterVCall& call) {
  const uint64_t sequence = CountCall();
  if (!traced_) return DoReduceScatterV(call);
  const std::string sizes =
      Sizes(Sum(call.send_counts, size()), call.dtype, call.send_counts[rank()]);
  return Traced(spec_, sequence, Name(call.kind), sizes, [&] { return DoReduceScatterV(call); });
}

Status Communicator::AllReduce(const AllReduceCall& call) {
  const uint64_t sequence = CountCall();
  if (!traced_) return DoAllReduce(call);
  return Traced(spec_, sequence, Name(CallKind::kAllReduce),
                Sizes(call.count, call.dtype, call.count), [&] { return DoAllReduce(call); });
}

Status Communicator::Broadcast(const BroadcastCall& call) {
  const uint64_t sequence = CountCall();
  if (!traced_) return DoBroadcast(call);
  const int64_t sent = rank() == call.root ? call.count : 0;
  return Traced(spec_, sequence, Name(CallKind::kBroadcast), Sizes(sent, call.dtype, call.count),
                [&] { return DoBroadcast(call); });
}

Status Communicator::Barrier() {
  const uint64_t sequence = CountCall();
  if (!traced_) return DoBarrier();
  return Traced(spec_, sequence, Name(CallKind::kBarrier), "", [&] { return DoBarrier(); });
}

Status Communicator::RunFused(const FusedCallSpec& spec, const FusedBody& body) {
  const uint64_t sequence = CountCall();
  if (!traced_) return DoRunFused(spec, body);
  const std::string sizes = Sizes(spec.x_count, spec.dtype, spec.output_count);
  return Traced(spec_, sequence, Name(spec.kind), sizes, [&] { return DoRunFused(spec, body); });
}

Status Communicator::DoRunFused(const FusedCallSpec& spec, const FusedBody& /*body*/) {
  return Error(ERROR_UNSUPPORTED, Name(spec.kind), ": backend ", spec_.backend,
               " has no windows for a fused call");
}

Status Communicator::Compare(const AllGatherVCall& call) {
  return Error(ERROR_UNSUPPORTED, Name(call.kind), ": ", spec_.backend, " compares no calls");
}

Status Communicator::Compare(const ReduceScatterVCall& call) {
  return Error(ERROR_UNSUPPORTED, Name(call.kind), ": ", spec_.backend, " compares no calls");
}

Status Communicator::Split(int color, int key, std::shared_ptr<Communicator>* part) {
  return MakePart(color, key, false, part);
}

Status Communicator::MakePart(int color, int key, bool kept, std::shared_ptr<Communicator>* part) {
  std::vector<int64_t> counts(static_cast<size_t>(size()), kChoiceLength);
  std::vector<int64_t> displs(counts.size());
  for (size_t r = 0; r < displs.size(); ++r) displs[r] = static_cast<int64_t>(r) * kChoiceLength;
  const Choice own{color, key, std::random_device()()};
  std::vector<Choice> choices(counts.size());
  AllGatherVCall call;
  call.kind = CallKind::kSplit;
  call.dtype = DType::kInt64;
  call.x = &own;
  call.output = choices.data();
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  RETURN_IF_ERROR(AllGatherV(call));

  part->reset();
  if (color < 0) return Ok();
  const std::vector<int> members = Members(choices, color);
  CommunicatorSpec spec = spec_;
  spec.rank = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  spec.rank_size = static_cast<int>(members.size());
  spec.comm_domain = Concat(spec_.comm_domain, "/split ", choices[0].token, ".", color);
  // Until the part has met, only its parent sees that a member will not come. A kept part lives no
  // longer than its parent; another one does, so that leaving the parent says nothing about it.
  spec.watch = [parent = weak_from_this(), members, kept]() -> Status {
    const std::shared_ptr<Communicator> living = parent.lock();
    return living == nullptr ? Ok() : living->FindLossAmong(members, kept);
  };
  return Registry::Instance().Get(spec, part);
}

Status Communicator::KeptSplit(const std::string& name, int color, int key,
                               std::shared_ptr<Communicator>* part) {
  const auto kept = kept_parts_.find(name);
  if (kept == kept_parts_.end()) {
    RETURN_IF_ERROR(MakePart(color, key, true, part));
    kept_parts_[name] = *part;
    return Ok();
  }
  *part = kept->second;
  return Ok();
}

}  // namespace collops
