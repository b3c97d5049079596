#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "collops/comm/agreement.h"
#include "collops/comm/communicator.h"
#include "collops/core/status.h"
#include "collops/operators/plain/plain_tensors.h"
#include "collops/operators/plain/row_blocks.h"

namespace collops {

// One of the plain level's products, but for its tensors.
struct ProductSpec {
  int64_t ag_dim = 0;  // of the product that gathers and scatters, as the two below
  int64_t rs_dim = 0;
  bool inner_dim_is_ag = true;
  std::optional<Rows> gather_rows;   // none: the call gathers nothing
  std::optional<Rows> scatter_rows;  // none: as numpy.array_split shares them out
  int64_t leaves = 0;                // of the sum over ranks (LinearParallelParam::sumLeaves)
  std::optional<Rows> sum_columns;   // none: equally long leaves, shared out evenly
  bool trans_weight = false;
  bool averages = false;
  bool has_scale = false;  // with a bias, which may be empty, before it
  bool has_residual = false;
  bool has_x_scale = false;
  int64_t group_size = 0;
  DType out_dtype = DType::kUndefined;
  std::optional<int64_t> max_rows;  // of a grouped product
  bool returns_rows = false;        // and those that all_to_all_matmul has exchanged
};

// A call of the plain level, but for the memory of its tensors: what its plan is made from.
struct PlainCall {
  enum Method {
    kAllGather,
    kAllGatherV,
    kAllReduce,
    kAllToAllV,
    kBroadcast,
    kGatherV,
    kReduce,
    kReduceScatter,
    kReduceScatterV,
    kScatterV,
    kAllReducePartials,
    kReduceScatterVPartials,
    kAllGatherMatmul,
    kMatmulReduceScatter,
    kMatmulAllReduce,
    kAllGatherMatmulReduceScatter,
    kMatmul,  // of this rank alone
    kAllToAllVGroupedMatmul,
    kGroupedMatmulAllToAllV,
    kAllToAllMatmul,
    kMatmulAllToAll,
  };

  explicit PlainCall(Method of) : method(of) {}

  Method method;
  RowShape x;  // before Normalise() its dim is as the caller says it
  DType dtype = DType::kUndefined;
  Device device;
  // Of all_to_allv: send_sizes and recv_sizes; of a grouped product: its counts, rank by rank.
  std::optional<Rows> sizes;
  Rows receives;
  int64_t root = 0;
  ReduceOp op = ReduceOp::kSum;
  int num_tensors = 1;             // of the list that x is in
  int64_t leaves = 0;              // of all ranks' partial sums; 0: x is none of them
  Rows leaf_begins;                // of each rank, and their number; none: cut evenly
  ProductSpec product;             // of a product alone, as the next one
  std::vector<TensorDesc> inputs;  // x, the weight [, bias, scale] [, residual] [, x_scale]; or
                                   // the first partial sum

  // The method's name; that of the call among the ranks; and, where the ranks first tell each other
  // their rows, these two of that. They live as long as the process.
  const char* name() const;
  const char* operation() const;
  const char* asking_name() const;
  const char* asking_operation() const;

  // Whether it multiplies rows by experts on other ranks.
  static bool IsGrouped(Method of) {
    return of == kAllToAllVGroupedMatmul || of == kGroupedMatmulAllToAllV;
  }
  bool is_grouped() const { return IsGrouped(method); }
  // Whether it gathers the rows that it multiplies.
  static bool GathersRows(Method of) {
    return of == kAllGatherMatmul || of == kAllGatherMatmulReduceScatter;
  }
  int64_t experts() const { return inputs[1].shape[0]; }

  // Checks the dim, and counts it from 0. `label` is what the method calls x.
  Status Normalise(const char* label);
};

// All that is known of a call of the plain level before the memory of its tensors is: made once for
// tensors of one type and shape and the call's arguments, and used by every call that has them.
// Any thread may use it; waits in Run() alone.
class PlainPlan {
 public:
  // `method` is for messages, `operation` the name by which the ranks know the call; both live as
  // long as the process.
  PlainPlan(const char* method, const char* operation) : method_(method), operation_(operation) {}
  PlainPlan(const PlainPlan&) = delete;
  PlainPlan& operator=(const PlainPlan&) = delete;
  virtual ~PlainPlan() = default;

  const char* method() const { return method_; }
  const char* operation() const { return operation_; }

  // Rows of every rank, where the call has any.
  virtual Rows rows() const { return {}; }

  // The result's shape, where it is not x's with other rows.
  virtual std::vector<int64_t> output_shape() const { return {}; }
  // Its type, where it is not x's.
  virtual DType output_dtype() const { return DType::kUndefined; }

  // Whether the tensors are what the call takes. Asks no other rank.
  virtual Status Check(const Communicator& communicator, const PlainTensors& tensors) const = 0;

  // Bytes of workspace that the caller has to pass for tensors of a device; 0 for what Check()
  // refuses. On the CPU a plan has its own memory.
  virtual uint64_t DeviceWorkspace(const Communicator& /*communicator*/,
                                   const PlainTensors& /*tensors*/) const {
    return 0;
  }

  // The call. What Check() refuses is told to the ranks that wait in it, too.
  virtual Status Run(Communicator* communicator, const PlainTensors& tensors) const = 0;

 private:
  const char* method_;
  const char* operation_;
};

// Whether a call takes scratch memory.
template <typename Call, typename = void>
struct HasScratch : std::false_type {};
template <typename Call>
struct HasScratch<Call, std::void_t<decltype(Call::scratch)>> : std::true_type {};

// A plan whose call is one of the communicator's.
template <typename Call>
class PlanOf : public PlainPlan {
 public:
  using Method = Status (Communicator::*)(const Call&);

  PlanOf(const char* method, const char* operation, Method call)
      : PlainPlan(method, operation), call_(call), agreement_(operation) {}

  Status Check(const Communicator& communicator, const PlainTensors& tensors) const final {
    Call call;
    return Prepare(communicator, tensors, &call);
  }

  Status Run(Communicator* communicator, const PlainTensors& tensors) const final {
    Call call;
    const Status status = Prepare(*communicator, tensors, &call);
    if (!status.ok()) {
      // The caller's own fault is what it hears of, whatever becomes of the refusal.
      static_cast<void>(communicator->Refuse(method(), status));
      return status;
    }
    std::call_once(agreed_, [&] { AgreeOn(*communicator, tensors.x, &agreement_); });
    call.agreement = &agreement_;
    call.stream = tensors.stream;
    if constexpr (HasScratch<Call>::value) call.scratch = tensors.workspace;
    return (communicator->*call_)(call);
  }

 protected:
  // Checks the tensors, and fills in the call.
  virtual Status Prepare(const Communicator& communicator, const PlainTensors& tensors,
                         Call* call) const = 0;
  // What the ranks agree on; the same in every call of the plan.
  virtual void AgreeOn(const Communicator& communicator, const PlainTensor& x,
                       Agreement* agreement) const = 0;

 private:
  Method call_;
  mutable std::once_flag agreed_;
  mutable Agreement agreement_;
};

// Plans a call, or says why there is none; each is in its operator's .cpp.
using PlanPointer = std::shared_ptr<const PlainPlan>;
// all_gather and all_gatherv.
Status PlanGather(const PlainCall& call, const Communicator& group, PlanPointer* plan);
// reduce_scatter, reduce_scatterv, and reduce, of which the root gets all rows.
Status PlanScatter(const PlainCall& call, const Communicator& group, PlanPointer* plan);
// all_to_allv, gatherv and scatterv.
Status PlanExchange(const PlainCall& call, const Communicator& group, PlanPointer* plan);
Status PlanAllReduce(const PlainCall& call, const Communicator& group, PlanPointer* plan);
// all_reduce and reduce_scatterv of partial sums.
Status PlanPartialSums(const PlainCall& call, Communicator& group, PlanPointer* plan);
// This rank's partial sums may be the leaves from `begin` on. Asks no other rank.
Status CheckOwnLeaves(const PlainCall& call, int64_t begin);
// The ranks' leaves follow each other: of each rank its first leaf and how many it has.
Status CheckLeafBegins(const PlainCall& call, const Rows& begins_and_counts, Rows* begins);
Status PlanBroadcast(const PlainCall& call, const Communicator& group, PlanPointer* plan);
// A product; it keeps the communicator.
Status PlanProduct(const PlainCall& call, std::shared_ptr<Communicator> group, PlanPointer* plan);
// A grouped product, of one call only: its counts change with every call.
Status PlanGrouped(const PlainCall& call, Communicator& group, PlanPointer* plan);
// all_to_all_matmul and matmul_all_to_all.
Status PlanExchangedProduct(const PlainCall& call, const Communicator& group, PlanPointer* plan);
// What of a gathering product is known before the ranks tell each other their rows; and the rows of
// this rank's gather group among those of all ranks.
Status CheckGathering(const PlainCall& call, const Communicator& group);
Rows RowsToGather(const PlainCall& call, int rank, const Rows& all);
// What of a grouped product does not depend on what other ranks send.
Status CheckGrouped(const PlainCall& call, const Communicator& group);

}  // namespace collops
