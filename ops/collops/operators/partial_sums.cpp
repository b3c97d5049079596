// all_reduce and reduce_scatterv of partial sums that the ranks hold, which are the leaves of one
// tree: a rank adds up its own whole subtrees, sends these sums to the owners of their blocks, and
// each owner adds up the sums of all ranks by the tree, so that no bit depends on who held what.
#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/control/control.h"
#include "collops/kernels/reduce/reduce.h"
#include "collops/kernels/stream_compute.h"
#include "collops/operators/plain/plans.h"

namespace collops {
namespace {

using kernels::StreamStep;
using kernels::SumTree;

// Scratch memory that a step of a call fills, about: on CPUs what stays in a cache.
constexpr int64_t kStepBytes = 8 << 20;
constexpr int64_t kDeviceStepBytes = 256 << 20;
constexpr int64_t kLeastStep = 4096;  // elements of a block
// All ranks' sums, up to which every rank gets all of them and adds them up itself.
constexpr int64_t kEveryoneBytes = 32 << 10;
constexpr int64_t kAlignment = 512;  // of every piece of scratch memory, in bytes

int64_t Padded(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

const void* At(const void* data, int64_t element, DType dtype) {
  return static_cast<const std::byte*>(data) + element * SizeOf(dtype);
}
void* At(void* data, int64_t element, DType dtype) {
  return static_cast<std::byte*>(data) + element * SizeOf(dtype);
}

// How deep in what waits a sum of several summands lies, at most.
int MostWaiting(const SumTree& tree) {
  int most = 0;
  int depth = 0;
  for (const uint8_t added : tree) {
    if (added > 0) most = std::max(most, depth);
    depth += 1 - added;
  }
  return most;
}

// kernels::SumByTree() on the stream of a device, for float32, float16 and bfloat16. `waiting`:
// memory for MostWaiting() sums.
struct StreamSums {
  kernels::StreamCompute& compute;
  std::byte* waiting;
  void* stream;

  Status Add(DType from, const void* const* summands, const SumTree& tree, int64_t count, DType to,
             void* const* sums) const {
    if (count == 0) return Ok();
    std::array<kernels::DeviceMatrix, kernels::kMostWaitingSums + 1> parts;
    size_t depth = 0;
    for (size_t i = 0; i < tree.size(); ++i) {
      parts[depth++] = Row(summands[i], from, count);
      for (int added = 0; added < tree[i]; ++added) {
        --depth;
        kernels::DeviceMatrix& sum = parts[depth - 1];
        StreamStep step;
        step.c = Row(waiting + static_cast<int64_t>(depth - 1) * Padded(count * 4), DType::kFloat32,
                     count);
        if (sum.dtype != DType::kFloat32) {
          COLLOPS_RETURN_IF_ERROR(Convert(sum, step.c));
          sum = step.c;
        }
        step.kind = StreamStep::kAdd;
        step.a = sum;
        step.b = parts[depth];
        COLLOPS_RETURN_IF_ERROR(compute.Run(step, nullptr, 0, stream));
        sum = step.c;
      }
    }
    for (size_t root = 0; root < depth; ++root) {
      if (parts[root].data == sums[root]) continue;
      COLLOPS_RETURN_IF_ERROR(Convert(parts[root], Row(sums[root], to, count)));
    }
    return Ok();
  }

 private:
  static kernels::DeviceMatrix Row(const void* data, DType dtype, int64_t count) {
    return {data, dtype, 1, count, count, false};
  }

  Status Convert(const kernels::DeviceMatrix& from, const kernels::DeviceMatrix& to) const {
    StreamStep step;
    step.kind = StreamStep::kConvert;
    step.a = from;
    step.c = to;
    return compute.Run(step, nullptr, 0, stream);
  }
};

class PartialSums : public PlainPlan {
 public:
  // `begins`: the first leaf of each rank, and the number of all.
  PartialSums(const PlainCall& call, Communicator& group, const Rows& begins, RowBlocks blocks)
      : PlainPlan(call.name(), call.operation()),
        gathers_(call.method == PlainCall::kAllReducePartials),
        rank_(static_cast<size_t>(group.rank())),
        num_leaves_(begins[rank_ + 1] - begins[rank_]),
        own_dtype_(call.dtype),
        dtype_(ReducedAs(call.dtype)),
        blocks_(std::move(blocks)),
        compute_(group.stream_compute()),
        own_tree_(kernels::TreeWithin(begins.back(), begins[rank_], begins[rank_ + 1])),
        tree_(kernels::TreeOfRoots(begins)),
        terms_(call.operation()) {
    FindRoots(begins);
    FindMemory();
    AgreeOn(call, group, begins.back());
  }

  Rows rows() const override { return blocks_.rows(); }

  Status Check(const Communicator& communicator, const PlainTensors& tensors) const override {
    const Device device = communicator.device();
    const int64_t numel = blocks_.total() / PartsOf(own_dtype_);
    const int64_t begin = gathers_ ? 0 : blocks_.begin(communicator.rank());
    const int64_t count = gathers_ ? blocks_.total() : blocks_.count(communicator.rank());
    const PlainTensor& out = tensors.out;
    COLLOPS_RETURN_IF_ERROR(CheckWhole(out, method(), "out", count / PartsOf(own_dtype_), device));
    COLLOPS_CHECK_ARG(out.view.desc.dtype == own_dtype_, ERROR_INVALID_TENSOR_INI_MATCH, method(),
                      ": out must be ", Name(own_dtype_), " as the partials, got ",
                      NameOfType(out.view.desc));
    COLLOPS_RETURN_IF_ERROR(CheckWritable(out, method(), "out"));
    for (int64_t leaf = 0; leaf < num_leaves_; ++leaf) {
      const PlainTensor& partial = Partial(tensors, leaf);
      const std::string label = Concat("partials[", leaf, "]");
      COLLOPS_RETURN_IF_ERROR(CheckWhole(partial, method(), label.c_str(), numel, device));
      const void* const data = partial.view.data;
      COLLOPS_CHECK_ARG(
          At(data, begin, dtype_) == out.view.data ||
              !Overlap(data, blocks_.total() * SizeOf(dtype_), out.view.data,
                       count * SizeOf(dtype_)),
          ERROR_INVALID_TENSOR_ADDR, method(), ": out overlaps ", label,
          " in memory: give it memory of its own, or pass ",
          gathers_ ? "one of the partials itself as out" : "this rank's own block of it as out");
    }
    if (device.kind != DeviceKind::kCpu) COLLOPS_RETURN_IF_ERROR(CheckDevice(communicator));
    COLLOPS_RETURN_IF_ERROR(communicator.Supports(Primitive::kExchange, moved_, ReduceOp::kSum));
    if (in_rank_order_)
      return communicator.Supports(Primitive::kEvenReduce, dtype_, ReduceOp::kSum);
    return gathers_ ? communicator.Supports(Primitive::kGather, dtype_, ReduceOp::kSum) : Ok();
  }

  uint64_t DeviceWorkspace(const Communicator& communicator,
                           const PlainTensors& tensors) const override {
    const bool is_refused = compute_ == nullptr || !Check(communicator, tensors).ok();
    return is_refused ? 0 : static_cast<uint64_t>(bytes_);
  }

  Status Run(Communicator* communicator, const PlainTensors& tensors) const override {
    Status status = Check(*communicator, tensors);
    void* memory = tensors.workspace;
    if (status.ok() && compute_ == nullptr) {
      memory = PlainScratch(static_cast<uint64_t>(bytes_));
      if (memory == nullptr) {
        status = Error(ERROR_OUT_OF_HOST_MEMORY, method(), ": no memory for ", bytes_,
                       " bytes of workspace");
      }
    }
    if (!status.ok()) {
      static_cast<void>(communicator->Refuse(method(), status));
      return status;
    }
    const auto place = reinterpret_cast<uintptr_t>(memory);
    const auto unaligned = static_cast<int64_t>(place % kAlignment);
    auto* const begin =
        static_cast<std::byte*>(memory) + (unaligned == 0 ? 0 : kAlignment - unaligned);
    if (compute_ == nullptr) return RunSteps(communicator, tensors, begin);
    status = compute_->OnDevice([&] { return RunSteps(communicator, tensors, begin); });
    if (status.ok()) return status;
    // The other ranks wait for what this one has not put on its stream.
    control::Control& control = ControlOf(*communicator);
    return control.Fail(status, control.step_number());
  }

 private:
  // What a rank sends, and whether it is sent as it is.
  void FindRoots(const Rows& begins) {
    const auto ranks = static_cast<size_t>(blocks_.size());
    bool adds = false;
    for (size_t r = 0; r < ranks; ++r) {
      const SumTree tree = kernels::TreeWithin(begins.back(), begins[r], begins[r + 1]);
      roots_.push_back(kernels::NumRoots(tree));
      adds = adds || roots_.back() < begins[r + 1] - begins[r];
    }
    // Leaves that no rank has added to others are exact as they are.
    moved_ = adds ? kernels::SummedAs(dtype_) : dtype_;
    sends_leaves_ = ranks == 1 || (num_leaves_ == 1 && moved_ == dtype_);
    // One sum of each rank, and the tree adds them one after the other.
    in_rank_order_ = gathers_ && compute_ == nullptr && ranks > 1 && moved_ == dtype_ &&
                     std::all_of(roots_.begin(), roots_.end(), [](int64_t n) { return n == 1; }) &&
                     std::all_of(tree_.begin() + 1, tree_.end(), [](int n) { return n == 1; });
    if (ranks > 1) return;
    roots_[0] = num_leaves_;
    moved_ = dtype_;
    tree_ = own_tree_;
  }

  // The same numbers of steps and of elements in them on all ranks.
  // HCCL gathers nothing in place, so on devices this rank's block has memory of its own.
  void FindMemory() {
    const int ranks = blocks_.size();
    const int64_t most_roots = *std::max_element(roots_.begin(), roots_.end());
    const int64_t all_roots = SumOf(roots_);
    const int64_t element = SizeOf(kernels::SummedAs(dtype_));
    const int64_t total = blocks_.total();
    everyone_adds_ = gathers_ && (ranks == 1 || all_roots * total * element <= kEveryoneBytes);
    int64_t longest = 1;
    for (int r = 0; r < ranks; ++r) {
      const int64_t end = blocks_.begin(r) + blocks_.count(r);
      parts_.push_back(everyone_adds_ ? Range{0, total} : Range{blocks_.begin(r), end});
      longest = std::max(longest, parts_.back().end - parts_.back().begin);
    }
    const int64_t least = compute_ == nullptr ? kStepBytes : kDeviceStepBytes;
    step_ = std::max(kLeastStep, least / (element * (most_roots * ranks + all_roots)));
    step_ = ranks == 1 ? longest : std::min(step_, longest);
    num_steps_ = (longest + step_ - 1) / step_;
    // Blocks of one sum in one step lie as they lie in the partials.
    is_whole_ = num_steps_ == 1 && (everyone_adds_ || roots_[rank_] == 1);
    const int64_t own = roots_[rank_];
    received_ = sends_leaves_ ? 0 : Padded(own * step_ * ranks * element);
    waiting_ = received_ + Padded((all_roots - own) * step_ * element);
    bytes_ = waiting_ + kAlignment;
    if (compute_ == nullptr) return;
    own_block_ = waiting_;
    const int64_t own_block = blocks_.count(static_cast<int>(rank_)) * SizeOf(dtype_);
    if (gathers_ && !everyone_adds_) waiting_ += Padded(own_block);
    bytes_ = waiting_ + kAlignment;
    const int64_t added = is_whole_ ? total : step_;
    bytes_ += std::max(MostWaiting(own_tree_) * Padded(added * element),
                       MostWaiting(tree_) * Padded(step_ * element));
  }

  void AgreeOn(const PlainCall& call, const Communicator& group, int64_t leaves) {
    PlainTensor x;
    x.view.desc.shape = Shape::From(call.x.sizes.data(), static_cast<int>(call.x.sizes.size()));
    x.numel = blocks_.total() / PartsOf(own_dtype_);
    CollectiveTerms terms;
    terms.dtype = Name(own_dtype_);
    AddSizeOf(group, x, &terms);
    AddTerms(terms, &terms_);
    terms_.Equal("leaves", leaves)
        .EqualList("sendCounts", blocks_.counts(), blocks_.size())
        .InPlainWords(gathers_ ? "all_reduce of partials" : "reduce_scatterv of partials",
                      blocks_.row_elements());
  }

  Status CheckDevice(const Communicator& communicator) const {
    const bool adds = dtype_ == DType::kFloat32 || kernels::SummedAs(dtype_) != dtype_;
    COLLOPS_CHECK_ARG(compute_ != nullptr && adds, ERROR_UNSUPPORTED, method(), ": backend ",
                      communicator.spec().backend,
                      " adds partials of float32, float16 and "
                      "bfloat16 alone, got ",
                      Name(own_dtype_));
    return compute_->Available();
  }

  static const PlainTensor& Partial(const PlainTensors& tensors, int64_t leaf) {
    return leaf == 0 ? tensors.x : tensors.others[static_cast<size_t>(leaf) - 1];
  }

  // Where this rank's sums go.
  void* OwnBlock(const PlainTensors& tensors, std::byte* memory) const {
    if (!gathers_ || everyone_adds_) return tensors.out.view.data;
    if (compute_ != nullptr) return memory + own_block_;
    return At(tensors.out.view.data, blocks_.begin(static_cast<int>(rank_)), dtype_);
  }

  // The elements that a rank adds up in a step.
  Range PartOf(size_t rank, int64_t step) const {
    const Range& all = parts_[rank];
    return {std::min(all.begin + step * step_, all.end),
            std::min(all.begin + (step + 1) * step_, all.end)};
  }

  Status RunSteps(Communicator* communicator, const PlainTensors& tensors,
                  std::byte* memory) const {
    if (in_rank_order_) return AddInRankOrder(communicator, tensors);
    for (int64_t step = 0; step < num_steps_; ++step) {
      COLLOPS_RETURN_IF_ERROR(RunStep(communicator, tensors, step, memory));
    }
    if (!gathers_ || everyone_adds_) return Ok();
    AllGatherVCall gather;
    gather.agreement = &terms_;
    gather.dtype = dtype_;
    gather.x = OwnBlock(tensors, memory);
    gather.output = tensors.out.view.data;
    gather.recv_counts = blocks_.counts();
    gather.rdispls = blocks_.displs();
    gather.stream = tensors.stream;
    return communicator->AllGatherV(gather);
  }

  // An AllReduce as without leaves; the result's memory holds this rank's sum.
  Status AddInRankOrder(Communicator* communicator, const PlainTensors& tensors) const {
    void* out = tensors.out.view.data;
    if (!sends_leaves_) COLLOPS_RETURN_IF_ERROR(AddOwn(tensors, 0, blocks_.total(), &out, nullptr));
    AllReduceCall reduce;
    reduce.agreement = &terms_;
    reduce.dtype = dtype_;
    reduce.x = sends_leaves_ ? Partial(tensors, 0).view.data : out;
    reduce.count = blocks_.total();
    reduce.output = out;
    return communicator->AllReduce(reduce);
  }

  // The leaves' elements from `begin` of the whole on, by the tree.
  Status AddOwn(const PlainTensors& tensors, int64_t begin, int64_t count, void* const* sums,
                std::byte* memory) const {
    std::vector<const void*> leaves;
    for (int64_t leaf = 0; leaf < num_leaves_; ++leaf) {
      leaves.push_back(At(Partial(tensors, leaf).view.data, begin, dtype_));
    }
    return Add(dtype_, leaves, own_tree_, count, moved_, sums, memory, tensors.stream);
  }

  Status Add(DType from, const std::vector<const void*>& summands, const SumTree& tree,
             int64_t count, DType to, void* const* sums, std::byte* memory, void* stream) const {
    if (compute_ != nullptr) {
      return StreamSums{*compute_, memory + waiting_, stream}.Add(from, summands.data(), tree,
                                                                  count, to, sums);
    }
    kernels::SumByTree(from, summands.data(), tree, count, to, sums);
    return Ok();
  }

  Status RunStep(Communicator* communicator, const PlainTensors& tensors, int64_t step,
                 std::byte* memory) const {
    const size_t ranks = roots_.size();
    const int64_t own = roots_[rank_];
    const Range part = PartOf(rank_, step);
    const int64_t length = part.end - part.begin;
    Rows sends(ranks), sdispls(ranks), receives(ranks), rdispls(ranks);
    int64_t sent = 0;
    int64_t received = 0;
    for (size_t r = 0; r < ranks; ++r) {
      const Range theirs = PartOf(r, step);
      const int64_t count = theirs.end - theirs.begin;
      // What everyone gets is there once.
      sdispls[r] = sends_leaves_ ? theirs.begin : is_whole_ && everyone_adds_ ? 0 : sent;
      rdispls[r] = received;
      sent += own * count;
      if (r != rank_) {
        sends[r] = own * count;
        receives[r] = roots_[r] * length;
        received += receives[r];
      }
      if (sends_leaves_ || is_whole_) continue;
      std::vector<void*> sums;
      for (int64_t i = 0; i < own; ++i) sums.push_back(At(memory, sdispls[r] + i * count, moved_));
      COLLOPS_RETURN_IF_ERROR(AddOwn(tensors, theirs.begin, count, sums.data(), memory));
    }
    if (is_whole_ && !sends_leaves_) {
      std::vector<void*> sums;
      for (int64_t i = 0; i < own; ++i) sums.push_back(At(memory, i * blocks_.total(), moved_));
      COLLOPS_RETURN_IF_ERROR(AddOwn(tensors, 0, blocks_.total(), sums.data(), memory));
    }
    Agreement agreement = terms_;
    agreement.PairwiseUnseen("the numbers of sums that one rank sends to another", sends.data(),
                             receives.data(), static_cast<int>(rank_), static_cast<int>(ranks));
    ExchangeVCall exchange;
    exchange.agreement = &agreement;
    exchange.dtype = moved_;
    exchange.x = sends_leaves_ ? Partial(tensors, 0).view.data : memory;
    exchange.send_counts = sends.data();
    exchange.sdispls = sdispls.data();
    exchange.output = memory + received_;
    exchange.recv_counts = receives.data();
    exchange.rdispls = rdispls.data();
    exchange.stream = tensors.stream;
    COLLOPS_RETURN_IF_ERROR(communicator->ExchangeV(exchange));
    std::vector<const void*> summands;
    for (size_t r = 0; r < ranks; ++r) {
      for (int64_t i = 0; i < roots_[r]; ++i) {
        const bool is_own = r == rank_;
        summands.push_back(is_own && sends_leaves_
                               ? At(Partial(tensors, i).view.data, sdispls[r], dtype_)
                           : is_own ? At(memory, sdispls[r] + i * length, moved_)
                                    : At(memory + received_, rdispls[r] + i * length, moved_));
      }
    }
    void* const out = At(OwnBlock(tensors, memory), part.begin - parts_[rank_].begin, dtype_);
    return Add(moved_, summands, tree_, length, dtype_, &out, memory, tensors.stream);
  }

  const bool gathers_;  // every rank gets all blocks
  const size_t rank_;
  const int64_t num_leaves_;  // of this rank
  const DType own_dtype_;
  const DType dtype_;       // as which elements are added
  const RowBlocks blocks_;  // in these
  kernels::StreamCompute* const compute_;
  const SumTree own_tree_;
  SumTree tree_;  // of the sums of all ranks
  Rows roots_;    // sums that each rank sends
  DType moved_ = DType::kUndefined;
  bool sends_leaves_ = false;  // from where they lie
  bool in_rank_order_ = false;
  bool everyone_adds_ = false;  // all blocks, so that none is gathered
  std::vector<Range> parts_;    // that each rank adds up
  bool is_whole_ = false;       // what is sent is added up at once
  int64_t step_ = 0;            // elements of a block that one step adds up
  int64_t num_steps_ = 0;
  int64_t received_ = 0;  // places in the scratch memory, which begins with what is sent
  int64_t own_block_ = 0;
  int64_t waiting_ = 0;
  int64_t bytes_ = 0;
  Agreement terms_;
};

Status CheckLeaves(const PlainCall& call) {
  COLLOPS_CHECK_ARG(call.op == ReduceOp::kSum, ERROR_INVALID_PARAM, call.name(),
                    ": op of partials= must be \"sum\", got \"", Name(call.op),
                    "\": for a mean divide the result");
  COLLOPS_CHECK_ARG(call.leaves >= 1 && call.leaves <= kernels::kMostLeaves, ERROR_INVALID_PARAM,
                    call.name(), ": leaves must be from 1 to ", kernels::kMostLeaves,
                    ", the number of partials of all ranks, got ", call.leaves);
  return Ok();
}

}  // namespace

Status CheckOwnLeaves(const PlainCall& call, int64_t begin) {
  COLLOPS_RETURN_IF_ERROR(CheckLeaves(call));
  const int64_t most = call.leaves - call.num_tensors;
  COLLOPS_CHECK_ARG(most >= 0, ERROR_INVALID_PARAM, call.name(), ": ", call.num_tensors,
                    " partials are more than the ", call.leaves, " leaves of all ranks");
  COLLOPS_CHECK_ARG(begin >= 0 && begin <= most, ERROR_INVALID_PARAM, call.name(),
                    ": leaf_begin must be from 0 to ", most, " for ", call.num_tensors, " of ",
                    call.leaves, " leaves, got ", begin);
  return Ok();
}

Status CheckLeafBegins(const PlainCall& call, const Rows& begins_and_counts, Rows* begins) {
  begins->assign(1, 0);
  for (size_t r = 0; 2 * r < begins_and_counts.size(); ++r) {
    const int64_t begin = begins_and_counts[2 * r];
    COLLOPS_CHECK_ARG(begin == begins->back(), ERROR_RANK_MISMATCH, call.name(),
                      ": leaf_begin of rank ", r, " is ", begin, ", but ",
                      r == 0 ? std::string("the first rank begins at 0")
                             : Concat("rank ", r - 1, " ends at leaf ", begins->back()),
                      ": the ranks' leaves must follow each other from 0 to ", call.leaves);
    begins->push_back(begin + begins_and_counts[2 * r + 1]);
  }
  COLLOPS_CHECK_ARG(begins->back() == call.leaves, ERROR_RANK_MISMATCH, call.name(), ": leaves is ",
                    call.leaves, ", but the last rank ", begins->size() - 2, " ends at leaf ",
                    begins->back(), ": the ranks' leaves must follow each other from 0 to ",
                    call.leaves);
  return Ok();
}

Status PlanPartialSums(const PlainCall& call, Communicator& group, PlanPointer* plan) {
  COLLOPS_RETURN_IF_ERROR(CheckLeaves(call));
  const auto rank = static_cast<size_t>(group.rank());
  Rows begins = call.leaf_begins;
  if (begins.empty()) {
    begins.push_back(0);
    for (const int64_t leaves : SplitEvenly(call.leaves, group.size())) {
      begins.push_back(begins.back() + leaves);
    }
    const int64_t own = begins[rank + 1] - begins[rank];
    COLLOPS_CHECK_ARG(call.num_tensors == own, ERROR_INVALID_PARAM, call.name(),
                      ": partials must be ", own, " tensors, this rank's even part of ",
                      call.leaves, " leaves among ", group.size(), " ranks, got ", call.num_tensors,
                      ": for another part pass leaf_begin= on every rank");
  }
  COLLOPS_RETURN_IF_ERROR(CheckReducible(call.inputs[0], ReduceOp::kSum, call.name()));
  RowShape x = call.x;
  Rows rows;
  if (call.method == PlainCall::kAllReducePartials) {
    int64_t elements = 1;
    for (const int64_t size : x.sizes) elements *= size;
    x.sizes = {elements};
    rows = SplitEvenly(elements, group.size());
  } else {
    rows = call.sizes ? *call.sizes : SplitEvenly(x.rows(), group.size());
    COLLOPS_RETURN_IF_ERROR(CheckSizes(call.name(), "sizes", rows, group.size()));
    COLLOPS_RETURN_IF_ERROR(CheckSum(call.name(), "sizes", rows, x));
  }
  x.unit = PartsOf(call.dtype);
  RowBlocks blocks;
  COLLOPS_RETURN_IF_ERROR(RowBlocks::Make(call.name(), x, rows, &blocks));
  *plan = std::make_shared<PartialSums>(call, group, begins, std::move(blocks));
  return Ok();
}

}  // namespace collops
