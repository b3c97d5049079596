#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collops/comm/communicator.h"
#include "collops/core/status.h"
#include "collops/operators/linear_parallel/engine.h"
#include "collops/operators/linear_parallel/linear_operation.h"

// LinearParallel's types with experts: rows go from the ranks that have them to the experts that
// multiply them (ALLTOALLVC_ALL_GATHER_GMM), or from the experts back (GMM_REDUCE_SCATTER_
// ALLTOALLVC). Rank r is member r % tp_size of place r / tp_size; the experts of a place are on all
// its members, each with its part of the weights.

namespace collops {

// What is known of a call by its shapes.
struct ExpertsLayout {
  bool to_experts = true;  // else from them
  int rank = 0;
  int rank_size = 1;
  int tp_size = 1;
  int64_t experts = 1;  // of a place
  int64_t x_rows = 0;
  int64_t output_rows = 0;
  int64_t k = 0;
  int64_t n = 0;
  bool trans_weight = true;

  int place(int of_rank) const { return of_rank / tp_size; }
  // Rows that this rank's experts may have, and rows that are this rank's own.
  int64_t most_expert_rows() const { return to_experts ? output_rows : x_rows; }
  int64_t most_own_rows() const { return to_experts ? x_rows : output_rows; }
};

// What messages call the arguments: by the struct's names, or the plain level's.
struct ExpertsVoice {
  const char* called = "LinearParallel";
  const char* table = "globalTokensPerExpertMatrix";
  const char* most = "maxOutputSize";
  const char* transposed = "with transWeight true it is [experts, n, k]";
  const char* as_it_is = "with transWeight false it is [experts, k, n]";
};

// How many rows go where in one call. A rank's own rows are sorted by expert, over all places. The
// rows of its experts lie expert by expert, within one by the ranks they are from, and within that
// in the order of that rank. Made by each call, as the numbers change with every one.
class ExpertRows {
 public:
  // `to`: rows of this rank for expert l of rank r, at [r * experts + l]. `from`: rows of rank s
  // for expert l of this rank, at [s * experts + l]. None is negative, and an int64 holds their
  // sums.
  ExpertRows(const ExpertsLayout& layout, std::vector<int64_t> to, std::vector<int64_t> from);

  // From a table of all places: tokens[s][e] rows of each rank of place s for expert e, counted
  // over all places. Numbers below 0 and sums that no int64 holds are ERROR_INVALID_PARAM.
  static Status FromTable(const ExpertsLayout& layout, const ExpertsVoice& voice,
                          const std::vector<int64_t>& tokens, std::unique_ptr<ExpertRows>* rows);

  // No tensor is too short for them, else ERROR_INVALID_TENSOR_DIM.
  Status CheckFit(const ExpertsLayout& layout, const ExpertsVoice& voice) const;

  int64_t own() const { return own_; }                // of this rank
  int64_t of_experts() const { return of_experts_; }  // of this rank's experts, of all ranks

  // Of this rank's rows, those for the place of a rank: how many, and where they begin.
  const int64_t* to_rank() const { return to_rank_.data(); }
  const int64_t* begin_of() const { return begin_of_.data(); }
  // Those for one expert of that rank.
  int64_t to(int rank, int64_t expert) const { return to_[Cell(rank, expert)]; }
  int64_t begin_to(int rank, int64_t expert) const { return to_begin_[Cell(rank, expert)]; }
  // Rows of a rank for this rank's experts.
  const int64_t* from_rank() const { return from_rank_.data(); }

  int64_t for_expert(int64_t expert) const { return for_expert_[static_cast<size_t>(expert)]; }
  // Among the rows of this rank's experts.
  int64_t begin_of_expert(int64_t expert) const {
    return expert_begin_[static_cast<size_t>(expert)];
  }
  // Rows of a rank for one of the experts, and where they begin among those of that rank for all.
  int64_t from(int rank, int64_t expert) const { return from_[Cell(rank, expert)]; }
  int64_t begin_from(int rank, int64_t expert) const { return from_begin_[Cell(rank, expert)]; }
  // Where they begin among the rows of this rank's experts.
  int64_t begin_at_expert(int rank, int64_t expert) const { return at_begin_[Cell(rank, expert)]; }

  const std::vector<int64_t>& to_cells() const { return to_; }
  const std::vector<int64_t>& from_cells() const { return from_; }
  // Of all cells of the table, which the ranks compare; 0 if there is none.
  int64_t table_hash() const { return table_hash_; }

 private:
  size_t Cell(int rank, int64_t expert) const {
    return static_cast<size_t>(rank * experts_ + expert);
  }

  int64_t experts_;
  std::vector<int64_t> to_;
  std::vector<int64_t> from_;
  std::vector<int64_t> to_begin_;
  std::vector<int64_t> from_begin_;
  std::vector<int64_t> at_begin_;
  std::vector<int64_t> to_rank_;
  std::vector<int64_t> begin_of_;
  std::vector<int64_t> from_rank_;
  std::vector<int64_t> for_expert_;
  std::vector<int64_t> expert_begin_;
  int64_t own_ = 0;
  int64_t of_experts_ = 0;
  int64_t table_hash_ = 0;
};

// A planned call; the numbers of rows are not in it.
struct ExpertsPlan : PlanDetails {
  ExpertsLayout layout;
  ExpertsVoice voice;
  DType dtype = DType::kUndefined;         // of x and the weight
  DType output_dtype = DType::kUndefined;  // and of the residual
  bool has_residual = false;
  DType scale_dtype = DType::kUndefined;  // of what is int8: float32, or int64 with one in its half
  bool has_token_scale = false;
  kernels::StreamCompute* stream_compute = nullptr;  // null on the CPU
  kernels::GemmPlan gemm = {};                       // on the CPU

  // Places in the workspace.
  int64_t scales = 0;        // in float32
  int64_t moved_scales = 0;  // of the rows from other ranks, in the order of these
  int64_t row_scales = 0;    // of the rows that are multiplied at a time
  int64_t moved = 0;     // rows from other ranks, or products for them, one rank after the other
  int64_t partials = 0;  // products in float32 of this rank's rows, of each member of a place
  int64_t tile = 0;
  // The CPU's.
  int64_t panels = 0;
  int64_t edge = 0;  // rows of a panel that are from several ranks
  int64_t weight_block = 0;
  // A device's.
  bool converts = false;  // operands become float32, because products of their type do not
  int64_t float_rows = 0;
  int64_t float_weight = 0;  // of one expert
  int64_t scratch = 0;       // of the products and sums
  int64_t scratch_bytes = 0;
  int64_t bytes = 0;  // of the workspace

  // Whether products leave in float32, to be added up or to meet the residual before they are
  // rounded.
  bool sends_partials() const { return !layout.to_experts && (layout.tp_size > 1 || has_residual); }
  // Of the products that leave, or of the rows that come.
  DType product_dtype() const { return sends_partials() ? DType::kFloat32 : output_dtype; }
  DType moved_dtype() const { return layout.to_experts ? dtype : product_dtype(); }
  bool is_quantised() const { return scale_dtype != DType::kUndefined; }
};

// Plans the memory of a call of which all is set but the product and the places, else
// ERROR_INVALID_TENSOR_SIZE.
Status PlanExperts(ExpertsPlan* plan);

struct ExpertsTensors {
  const void* x = nullptr;
  const void* weight = nullptr;       // [experts, n, k], or [experts, k, n] without trans_weight
  const void* scale = nullptr;        // [experts, n] of what is int8, or null
  const void* token_scale = nullptr;  // of x's rows, or null
  const void* residual = nullptr;     // [n], or null
  void* output = nullptr;
  void* rows = nullptr;  // the rows of this rank's experts are wanted here, or null
};

// Before RunExperts(): with an error of this rank, which is returned, the other ranks hear of it
// before anything moves. On a device the ranks agree here, on the host; on the CPU later.
Status MeetForExperts(const ExpertsPlan& plan, const Agreement& agreement, const Status& own,
                      Communicator* communicator, void* stream);

// Runs a planned call with rows that fit. `agreement` has the numbers of rows of each pair.
// `workspace` has plan.bytes bytes, of any alignment; on a device its memory, which the stream
// uses.
Status RunExperts(const ExpertsPlan& plan, const ExpertRows& rows, const ExpertsTensors& tensors,
                  const Agreement& agreement, void* workspace, Communicator* communicator,
                  void* stream);

// These two on a device.
Status PlanExpertStreams(ExpertsPlan* plan);
Status RunExpertStreams(const ExpertsPlan& plan, const ExpertRows& rows,
                        const ExpertsTensors& tensors, const Agreement& agreement, void* workspace,
                        Communicator* communicator, void* stream);

// The weight fits x, and scales and residual the weight; their numbers of dims are right. Fills in
// k, n and trans_weight; the layout's experts and x_rows are set.
Status CheckExpertInputs(const ExpertsVoice& voice, const LinearSettings& settings,
                         const std::vector<TensorDesc>& inputs, ExpertsLayout* layout);

// Whether rows of this type can be exchanged, and products where they are.
// `compute`: of the communicator's device, if there is one.
Status CheckExpertSupport(const Communicator& communicator, kernels::StreamCompute* compute,
                          DType dtype);

// The struct's fields of experts, in ATB's order.
Status CheckExperts(const LinearParallelParam& param);

// Types 5 and 6. Inputs: x, weight [, scale] [, residual] [, token scales], the table of rows, and
// a tensor as long as the output.
class ExpertsParallel : public LinearOperation {
 public:
  explicit ExpertsParallel(const LinearSettings& settings);

 protected:
  Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override;
  Status CheckSupport(DType dtype) const override;
  Status Complete(Plan* plan) const override;
  void AgreeOn(const Plan& plan, Agreement* agreement) const override;
  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override;
};

}  // namespace collops
