#include <array>
#include <optional>
#include <utility>

#include "collops/operators/framework/blocks.h"
#include "collops/operators/framework/make_operator.h"
#include "collops/operators/framework/struct_fields.h"
#include "collops/operators/plain/plans.h"

namespace collops {
namespace {

// One rank's part in an all-to-all, in elements: each list has a number per rank. Owned by the
// plan.
struct ExchangeLists {
  const std::vector<int64_t>& send_counts;
  const std::vector<int64_t>& sdispls;
  const std::vector<int64_t>& recv_counts;
  const std::vector<int64_t>& rdispls;
};

// Base of AllToAllV and AllToAllVV2: output.flat[rdispls[q] : rdispls[q] + recvCounts[q]] = x of
// rank q, flat, from its sdispls[rank] on, for every rank q. The two differ in where the lists come
// from and in the messages of their checks.
class ExchangeOperation : public CollectiveOperation {
 public:
  ExchangeOperation(OpSignature signature, int root)
      : CollectiveOperation(std::move(signature)), root_(root) {}

 protected:
  // The lists of a complete plan.
  virtual ExchangeLists ListsOf(const Plan& plan) const = 0;

  // An output of `count` elements of x's type: one row, as in ATB.
  static TensorDesc OneRow(const TensorDesc& x, int64_t count) {
    TensorDesc output = x;
    output.shape = {1, count};
    return output;
  }

  Status CheckSupport(DType dtype) const override {
    return communicator().Supports(Primitive::kExchange, dtype, ReduceOp::kSum);
  }

  void AgreeOn(const Plan& plan, Agreement* agreement) const override {
    const ExchangeLists lists = ListsOf(plan);
    AddTerms(TermsOf(plan, root_), agreement);
    agreement->Pairwise("sendCounts", lists.send_counts.data(), "recvCounts",
                        lists.recv_counts.data(), communicator().rank(), communicator().size());
  }

  Status Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/,
             void* stream) override {
    const ExchangeLists lists = ListsOf(plan);
    auto call = CallOf<ExchangeVCall>(plan, stream);
    call.x = pack.inputs[0].data;
    call.send_counts = lists.send_counts.data();
    call.sdispls = lists.sdispls.data();
    call.output = pack.outputs[0].data;
    call.recv_counts = lists.recv_counts.data();
    call.rdispls = lists.rdispls.data();
    return communicator().ExchangeV(call);
  }

 private:
  const int root_;
};

// The struct's lists.
struct Lists {
  std::vector<int64_t> send_counts;
  std::vector<int64_t> sdispls;
  std::vector<int64_t> recv_counts;
  std::vector<int64_t> rdispls;
};

// A plan's reference to the lists.
struct HeldLists : PlanDetails {
  explicit HeldLists(std::shared_ptr<const Lists> held) : lists(std::move(held)) {}
  std::shared_ptr<const Lists> lists;
};

// All-to-all with counts and displacements in the struct. Input: x; the output is [1, n], where n
// is the sum of recvCounts.
class AllToAllV : public ExchangeOperation {
 public:
  explicit AllToAllV(const AllToAllVParam& param)
      : ExchangeOperation(
            OpSignature{"AllToAllV", {{"x", Role::kData, kMovable, kAnyNumDims, Extent::kAny}}},
            param.rankRoot),
        lists_(std::make_shared<Lists>(
            Lists{param.sendCounts, param.sdispls, param.recvCounts, param.rdispls})) {}

 protected:
  ExchangeLists ListsOf(const Plan& plan) const override {
    const Lists& lists = *static_cast<const HeldLists&>(*plan.details).lists;
    return {lists.send_counts, lists.sdispls, lists.recv_counts, lists.rdispls};
  }

  // The lists come from the struct, so they are checked completely here, without tensors.
  Status DescribeOutputs(const RankPlace& /*place*/, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override {
    const RankBlocks blocks = {lists_->recv_counts, lists_->rdispls};
    COLLOPS_RETURN_IF_ERROR(CheckEnds(kSlices, {lists_->send_counts, lists_->sdispls},
                                      Numel(inputs[0].shape), ERROR_INVALID_PARAM));
    int64_t count = 0;
    COLLOPS_CHECK_ARG(AddUp(lists_->recv_counts, &count), ERROR_INVALID_PARAM,
                      "AllToAllV: the sum of recvCounts does not fit into 64 bits");
    COLLOPS_CHECK_ARG(count > 0, ERROR_INVALID_PARAM,
                      "AllToAllV: all recvCounts are 0: this rank must receive something; ",
                      "comm.all_to_allv allows ranks that do not");
    COLLOPS_RETURN_IF_ERROR(CheckEnds(kBlocks, blocks, count, ERROR_INVALID_PARAM));
    COLLOPS_RETURN_IF_ERROR(CheckDisjoint(kBlocks, blocks));
    outputs->assign(1, OneRow(inputs[0], count));
    return Ok();
  }

  Status Complete(Plan* plan) const override {
    plan->details = std::make_unique<HeldLists>(lists_);
    return Ok();
  }

 private:
  static constexpr BlockWords kSlices = {"AllToAllV", "slice", "sdispls", "sendCounts", "x's"};
  static constexpr BlockWords kBlocks = {"AllToAllV", "block", "rdispls", "recvCounts",
                                         "the output's"};

  // Shared with the plans, which may outlive the operation.
  const std::shared_ptr<const Lists> lists_;
};

// All-to-all with counts and displacements as inputs: x, sendCounts, sdispls, recvCounts, rdispls,
// y. The output is [1, n], where n is the length of y and the sum of recvCounts.
class AllToAllVV2 : public ExchangeOperation {
 public:
  explicit AllToAllVV2(const AllToAllVV2Param& param)
      : ExchangeOperation(
            OpSignature{"AllToAllVV2",
                        {{"x", Role::kData, kMovable, kAnyNumDims, Extent::kAny},
                         {"sendCounts", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kRankSize},
                         {"sdispls", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kRankSize},
                         {"recvCounts", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kRankSize},
                         {"rdispls", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kRankSize},
                         {"y", Role::kLength, SetOf(DType::kInt8), 1, Extent::kAny}}},
            param.rankRoot) {}

 protected:
  ExchangeLists ListsOf(const Plan& plan) const override {
    const Counts& counts = plan.counts;
    return {counts[kSendCounts], counts[kSdispls], counts[kRecvCounts], counts[kRdispls]};
  }

  Status DescribeOutputs(const RankPlace& /*place*/, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override {
    outputs->assign(1, OneRow(inputs[kX], inputs[kY].shape[0]));
    return Ok();
  }

  Status CheckCounts(const Plan& plan) const override {
    const ExchangeLists lists = ListsOf(plan);
    const RankBlocks blocks = {lists.recv_counts, lists.rdispls};
    const int64_t length = Numel(plan.outputs[0].shape);
    COLLOPS_RETURN_IF_ERROR(
        CheckEnds(kSlices, {lists.send_counts, lists.sdispls}, Numel(plan.inputs[kX].shape)));
    COLLOPS_RETURN_IF_ERROR(CheckEnds(kBlocks, blocks, length));
    // An output without gaps: its length is the sum of the blocks.
    int64_t sum = 0;
    COLLOPS_CHECK_ARG(AddUp(lists.recv_counts, &sum), ERROR_INVALID_TENSOR_DIM,
                      "AllToAllVV2: the sum of recvCounts does not fit into 64 bits");
    COLLOPS_CHECK_ARG(lists.recv_counts.empty() || sum == length, ERROR_INVALID_TENSOR_DIM,
                      "AllToAllVV2: recvCounts add up to ", sum, " but y has length ", length,
                      ": they must be equal");
    COLLOPS_RETURN_IF_ERROR(CheckNotNegative(signature(), plan.counts));
    return CheckDisjoint(kBlocks, blocks);
  }

 private:
  enum Input { kX, kSendCounts, kSdispls, kRecvCounts, kRdispls, kY };
  static constexpr BlockWords kSlices = {"AllToAllVV2", "slice", "sdispls", "sendCounts", "x's"};
  static constexpr BlockWords kBlocks = {"AllToAllVV2", "block", "rdispls", "recvCounts",
                                         "the output's"};
};

// A list of the struct and its name.
struct NamedList {
  const char* name;
  const std::vector<int64_t>& numbers;
};

std::array<NamedList, 4> NamedListsOf(const AllToAllVParam& param) {
  return {{{"sendCounts", param.sendCounts},
           {"sdispls", param.sdispls},
           {"recvCounts", param.recvCounts},
           {"rdispls", param.rdispls}}};
}

class ExchangePlan : public PlanOf<ExchangeVCall> {
 public:
  ExchangePlan(const PlainCall& call, RowBlocks sends, RowBlocks receives)
      : PlanOf(call.name(), call.operation(), &Communicator::ExchangeV),
        sends_(std::move(sends)),
        receives_(std::move(receives)),
        type_(call.x.type),
        shape_(ShapeBesideRows(call.x)),
        root_(static_cast<int>(call.root)),
        sizes_(call.method == PlainCall::kAllToAllV ? Rows() : *call.sizes) {}

  Rows rows() const override { return receives_.rows(); }

 protected:
  Status Prepare(const Communicator& communicator, const PlainTensors& tensors,
                 ExchangeVCall* call) const override {
    COLLOPS_RETURN_IF_ERROR(
        CheckPair(tensors, method(), sends_.total(), receives_.total(), communicator.device()));
    COLLOPS_RETURN_IF_ERROR(CheckApart(tensors, method(), std::nullopt, ""));
    call->dtype = tensors.x.view.desc.dtype;
    call->x = tensors.x.view.data;
    call->send_counts = sends_.counts();
    call->sdispls = sends_.displs();
    call->output = tensors.out.view.data;
    call->recv_counts = receives_.counts();
    call->rdispls = receives_.displs();
    return communicator.Supports(Primitive::kExchange, call->dtype, ReduceOp::kSum);
  }

  void AgreeOn(const Communicator& communicator, const PlainTensor& x,
               Agreement* agreement) const override {
    CollectiveTerms terms;
    terms.dtype = type_.empty() ? Name(x.view.desc.dtype) : type_.c_str();
    terms.root = root_;
    terms.x_shape = shape_;
    AddTerms(terms, agreement);
    agreement->InPlainWords(method(), 1);
    if (sizes_.empty()) {
      agreement->Pairwise("send_sizes", sends_.rows().data(), "recv_sizes", receives_.rows().data(),
                          communicator.rank(), communicator.size());
    } else {
      agreement->EqualList("sizes", sizes_.data(), communicator.size());
    }
  }

 private:
  const RowBlocks sends_;
  const RowBlocks receives_;
  const std::string type_;
  const Shape shape_;
  const int root_;
  const Rows sizes_;  // of a call with a root
};

// What this rank sends and receives, once all of it is checked.
Status FindExchangedRows(const PlainCall& call, int rank, int rank_size, Rows* sends,
                         Rows* receives) {
  const auto own = static_cast<size_t>(rank);
  const char* const name = call.name();
  const Rows& sizes = *call.sizes;
  if (call.method == PlainCall::kAllToAllV) {
    COLLOPS_RETURN_IF_ERROR(CheckSizes(name, "send_sizes", sizes, rank_size));
    COLLOPS_RETURN_IF_ERROR(CheckSum(name, "send_sizes", sizes, call.x));
    COLLOPS_RETURN_IF_ERROR(CheckSizes(name, "recv_sizes", call.receives, rank_size));
    COLLOPS_CHECK_ARG(sizes[own] == call.receives[own], ERROR_INVALID_PARAM, name, ": send_sizes[",
                      rank, "] is ", sizes[own], " but recv_sizes[", rank, "] is ",
                      call.receives[own], ": what this rank ", rank,
                      " sends to itself must be equal");
    *sends = sizes;
    *receives = call.receives;
    return Ok();
  }
  COLLOPS_RETURN_IF_ERROR(CheckRoot(name, call.root, rank_size));
  COLLOPS_RETURN_IF_ERROR(CheckSizes(name, "sizes", sizes, rank_size));
  const bool gathers = call.method == PlainCall::kGatherV;
  if (gathers) COLLOPS_RETURN_IF_ERROR(CheckOwnRows(name, sizes, rank, call.x));
  const Rows none(static_cast<size_t>(rank_size), 0);
  Rows at_root = none;
  at_root[static_cast<size_t>(call.root)] = sizes[own];
  const Rows of_root = rank == call.root ? sizes : none;
  *sends = gathers ? at_root : of_root;
  *receives = gathers ? of_root : at_root;
  return Ok();
}

}  // namespace

template <>
const FieldTable& FieldsOf<AllToAllVParam>() {
  using P = AllToAllVParam;
  static const auto fields = StructFields<P>("AllToAllVParam")
                                 .AddRank()
                                 .Add<&P::sendCounts>("sendCounts")
                                 .Add<&P::sdispls>("sdispls")
                                 .Add<&P::recvCounts>("recvCounts")
                                 .Add<&P::rdispls>("rdispls")
                                 .AddCommunicator()
                                 .Add<&P::rsv>("rsv");
  return fields.table;
}

Status CheckRanks(const AllToAllVParam& param, int /*rank*/, int rank_size) {
  for (const NamedList& list : NamedListsOf(param)) {
    COLLOPS_CHECK_ARG(list.numbers.size() == static_cast<size_t>(rank_size), ERROR_INVALID_PARAM,
                      "AllToAllV: ", list.name, " must have ", rank_size,
                      " numbers, one per rank, got ", list.numbers.size());
  }
  return Ok();
}

Status CheckParam(const AllToAllVParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("AllToAllV", param, kEngineNames));
  COLLOPS_RETURN_IF_ERROR(CheckDistributed("AllToAllV", param));
  if (param.rankSize != 0) COLLOPS_RETURN_IF_ERROR(CheckRanks(param, param.rank, param.rankSize));
  for (const NamedList& list : NamedListsOf(param)) {
    for (size_t r = 0; r < list.numbers.size(); ++r) {
      COLLOPS_CHECK_ARG(list.numbers[r] >= 0, ERROR_INVALID_PARAM, "AllToAllV: ", list.name, "[", r,
                        "] must be >= 0, got ", list.numbers[r]);
    }
  }
  return Ok();
}

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const AllToAllVParam& param) {
  return std::make_unique<AllToAllV>(param);
}
template struct ParamFunctions<AllToAllVParam>;

template <>
const FieldTable& FieldsOf<AllToAllVV2Param>() {
  using P = AllToAllVV2Param;
  static const auto fields =
      StructFields<P>("AllToAllVV2Param").AddRank().AddCommunicator().Add<&P::rsv>("rsv");
  return fields.table;
}

Status CheckParam(const AllToAllVV2Param& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("AllToAllVV2", param, kEngineNames));
  return CheckDistributed("AllToAllVV2", param);
}

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const AllToAllVV2Param& param) {
  return std::make_unique<AllToAllVV2>(param);
}
template struct ParamFunctions<AllToAllVV2Param>;

Status PlanExchange(const PlainCall& call, const Communicator& group, PlanPointer* plan) {
  Rows send_rows, receive_rows;
  COLLOPS_RETURN_IF_ERROR(
      FindExchangedRows(call, group.rank(), group.size(), &send_rows, &receive_rows));
  RowBlocks sends, receives;
  COLLOPS_RETURN_IF_ERROR(RowBlocks::Make(call.name(), call.x, send_rows, &sends));
  COLLOPS_RETURN_IF_ERROR(RowBlocks::Make(call.name(), call.x, receive_rows, &receives));
  *plan = std::make_shared<ExchangePlan>(call, std::move(sends), std::move(receives));
  return Ok();
}

}  // namespace collops
