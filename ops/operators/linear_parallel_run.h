#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "core/status.h"
#include "kernels/gemm.h"
#include "operators/linear_parallel_layout.h"

namespace collops {

// How LinearParallel runs: chosen when a call is planned.
enum class LinearEngine {
  kLocal,     // one GEMM, nobody else
  kFused,     // computes while rows arrive and partial sums leave, over windows
  kPipeline,  // collectives and GEMMs one after the other, over two buffers
};

// Where a call's scratch memory lies, in bytes from the start of the workspace. All engines pack
// the gathered rows once, and one block of the weight at a time.
struct LinearMemory {
  std::vector<int64_t> panels;  // of each member that is gathered from
  int64_t raw_rows = 0;         // few rows, until all of them are there
  int64_t weight_block = 0;
  int64_t tile = 0;        // float32, total_rows x the columns of a strip; not there where kFused
                           // sums partial products, whose two tiles are shared memory
  int64_t sum = 0;         // kPipeline: this rank's sums of a strip
  int64_t gathered = 0;    // kPipeline: rows as they are gathered
  int64_t bytes = 0;       // of the workspace
  int64_t tile_slots = 0;  // kFused: how many strips' tiles are kept
  int64_t tile_bytes = 0;  // kFused: shared memory for all of them
};

// One planned call.
struct LinearPlan {
  LinearLayout layout;
  int rank_size = 0;
  DType dtype = DType::kUndefined;
  kernels::GemmPlan gemm{};
  LinearEngine engine = LinearEngine::kLocal;
  LinearMemory memory;
};

// Whether what the ranks computed is summed over a group.
inline bool SumsPartials(const LinearPlan& plan) {
  return plan.layout.scatter.ranks.size() > 1;
}

// The tensors of one call.
struct LinearTensors {
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* packed_weight = nullptr;  // by kernels::PackWeight, or null
  const void* residual = nullptr;       // [n], or null
  void* output = nullptr;
  void* gathered = nullptr;  // the gathered x is wanted here, or null
};

// What the ranks compare before anything moves.
void AddLinearTerms(const LinearParallelParam& param, const LinearPlan& plan, Agreement* agreement);

// The engine for this communicator, unless COLLOPS_FUSED=0 asks for the pipeline.
LinearEngine ChooseLinearEngine(const LinearLayout& layout, const Communicator& communicator);

LinearPlan PlanLinear(const LinearLayout& layout, DType dtype, int rank_size, LinearEngine engine);

// Runs a planned call. `workspace` has plan.memory.bytes bytes, of any alignment.
Status RunLinear(const LinearPlan& plan, const LinearTensors& tensors, const Agreement& agreement,
                 void* workspace, Communicator* communicator);

}  // namespace collops
