#pragma once

#include <memory>
#include <optional>
#include <string>

#include "collops/operators/plain/plain_plan.h"

namespace collops {

// The plans of the plain level's methods; each is made in its operator's .cpp.

// all_gatherv, and all_gather, whose x has the same shape on all ranks.
struct GatherSpec {
  const char* method;
  const char* operation;
  RowShape x;
  Rows sizes;
  int num_tensors = 1;  // tensors of a list that is gathered in one call after the other
  bool one_shape = false;
};

Status PlanGather(const GatherSpec& spec, int rank, int rank_size,
                  std::shared_ptr<const PlainPlan>* plan);

// A reduction of which each rank gets its rows: reduce_scatterv, reduce_scatter (all ranks get the
// same number of rows), and reduce (the root gets all rows).
struct ScatterSpec {
  enum Share { kSizes, kEqual, kRoot };

  const char* method;
  const char* operation;
  RowShape x;
  std::optional<Rows> sizes;  // for kSizes; none: shared out as numpy.array_split does
  Share share = kSizes;
  int64_t root = 0;  // for kRoot
  ReduceOp op = ReduceOp::kSum;
};

Status PlanScatter(const ScatterSpec& spec, int rank_size, std::shared_ptr<const PlainPlan>* plan);

// all_to_allv; also gatherv and scatterv, in which one rank receives or sends all rows.
struct ExchangeSpec {
  // kEach: each pair of ranks compares the rows sent with the rows expected.
  enum Share { kEach, kToRoot, kFromRoot };

  const char* method;
  const char* operation;
  RowShape x;  // its first dim is cut into rows
  Rows sends;  // of kEach: rows for each rank, and from each
  Rows receives;
  Rows sizes;  // else: the list that all ranks pass
  Share share = kEach;
  int64_t root = 0;
};

Status PlanExchange(const ExchangeSpec& spec, int rank, int rank_size,
                    std::shared_ptr<const PlainPlan>* plan);

// all_reduce: out may be x itself.
std::shared_ptr<const PlainPlan> PlanAllReduce(ReduceOp op);

// broadcast, in place on x. `type` names an element type that travels as bytes.
Status PlanBroadcast(int64_t root, const std::string& type, int rank_size,
                     std::shared_ptr<const PlainPlan>* plan);

// One of the plain level's products, but for its tensors.
struct ProductSpec {
  std::string method;
  int64_t ag_dim = 0;  // of the product that gathers and scatters, as the two below
  int64_t rs_dim = 0;
  bool inner_dim_is_ag = true;
  std::optional<Rows> gather_rows;   // none: all members have as many as x
  std::optional<Rows> scatter_rows;  // none: as numpy.array_split shares them out
  bool trans_weight = false;
  bool averages = false;
};

// `inputs`: x, the weight and the residual where there is one.
Status PlanProduct(const ProductSpec& spec, const std::vector<TensorDesc>& inputs,
                   std::shared_ptr<Communicator> communicator,
                   std::shared_ptr<const PlainPlan>* plan);

}  // namespace collops
