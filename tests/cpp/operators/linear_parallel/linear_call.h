// One call of LinearParallel on all ranks: its tensors, what must come out, and the call itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "collops/operators/linear_parallel/engine.h"
#include "collops/operators/linear_parallel/product.h"
#include "kernels/half_reference.h"
#include "ranks.h"

namespace linear_call {

using collops::DType;
using Param = collops::LinearParallelParam;

struct Case {
  Param::ParallelType type;
  int ag_dim;
  int rs_dim;
  bool inner_is_ag;
  // Rows of each member, by group: gather[g] is the list of the g-th gathering group.
  std::vector<std::vector<int64_t>> gather;
  std::vector<std::vector<int64_t>> scatter;
  int64_t rows;  // of x, where nothing is gathered
  int64_t k;
  int64_t n;
  bool trans_weight;
  bool residual;
  DType dtype = DType::kFloat32;
  bool gathered = false;  // the gathered x is an output, too
  int seed = 0;           // other data
  int leaves = 0;
};

constexpr auto kType0 = Param::LINEAR_ALL_REDUCE;
constexpr auto kType1 = Param::LINEAR_REDUCE_SCATTER;
constexpr auto kType2 = Param::ALL_GATHER_LINEAR;
constexpr auto kType3 = Param::PURE_LINEAR;
constexpr auto kType4 = Param::ALL_GATHER_LINEAR_REDUCE_SCATTER;

// 700001 floats are 2.8 MB: a chunk of 8 MiB has 2 rows.
inline Case Chunks() {
  return {kType2, 3, 1, true, {{4, 0, 3}}, {}, 0, 700001, 2, true, true};
}

inline int NumRanks(const Case& c) {
  return c.ag_dim * c.rs_dim;
}

// The places of a rank: (in its gathering group, in its scattering group).
inline std::pair<int, int> Places(const Case& c, int rank) {
  if (c.type != Param::ALL_GATHER_LINEAR_REDUCE_SCATTER) {
    return c.ag_dim > 1 ? std::make_pair(rank, 0) : std::make_pair(0, rank);
  }
  if (c.inner_is_ag) return {rank % c.ag_dim, rank / c.ag_dim};
  return {rank / c.rs_dim, rank % c.rs_dim};
}

inline int RankAt(const Case& c, int ag, int rs) {
  for (int r = 0; r < NumRanks(c); ++r) {
    if (Places(c, r) == std::make_pair(ag, rs)) return r;
  }
  return -1;
}

// The number at a place of a rank's tensor: small integers, or anything between -1 and 1.
inline float Value(bool exact, int seed, int rank, int tensor, int64_t index) {
  uint64_t hash =
      static_cast<uint64_t>(index * 131 + rank * 17 + tensor * 7 + seed * 1000003LL + 1);
  hash = (hash ^ (hash >> 15)) * 0x9e3779b97f4a7c15U;
  const auto bits = static_cast<uint32_t>(hash >> 32);
  if (exact) return static_cast<float>(static_cast<int>(bits % 7) - 3);
  return static_cast<float>(bits) / 2147483648.0F - 1.0F;
}

enum Tensor { kX, kWeight, kResidual };

inline std::vector<float> Numbers(const Case& c, bool exact, int rank, Tensor tensor,
                                  int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = Value(exact, c.seed, rank, tensor, i);
  }
  return values;
}

inline int64_t RowsOf(const Case& c, int rank) {
  if (c.gather.empty()) return c.rows;
  const auto [ag, rs] = Places(c, rank);
  return c.gather[static_cast<size_t>(rs)][static_cast<size_t>(ag)];
}

// Values as they lie in memory, rounded once.
template <typename Value>
std::vector<std::byte> Stored(DType dtype, const std::vector<Value>& values) {
  const auto item = static_cast<size_t>(collops::SizeOf(dtype));
  std::vector<std::byte> bytes(values.size() * item);
  for (size_t i = 0; i < values.size(); ++i) {
    half_reference::Write(dtype, double{values[i]}, &bytes[i * item]);
  }
  return bytes;
}

// T of a rank: its group's rows times its weight.
inline std::vector<double> Product(const Case& c, int rank) {
  const int rs = Places(c, rank).second;
  const std::vector<float> weight = Numbers(c, true, rank, kWeight, c.n * c.k);
  std::vector<double> product;
  for (int a = 0; a < c.ag_dim; ++a) {
    const int member = c.gather.empty() ? rank : RankAt(c, a, rs);
    const int64_t rows = RowsOf(c, member);
    const std::vector<float> x = Numbers(c, true, member, kX, rows * c.k);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < c.k; ++p) {
          const int64_t at = c.trans_weight ? j * c.k + p : p * c.n + j;
          sum += double{x[static_cast<size_t>(i * c.k + p)]} * weight[static_cast<size_t>(at)];
        }
        product.push_back(sum);
      }
    }
    if (c.gather.empty()) break;
  }
  return product;
}

// What a rank must get of exact data, in memory.
inline std::vector<std::byte> Expected(const Case& c, int rank) {
  const auto [ag, rs] = Places(c, rank);
  std::vector<double> sum = Product(c, rank);
  const bool sums = c.type != Param::ALL_GATHER_LINEAR && c.type != Param::PURE_LINEAR;
  for (int s = 0; sums && s < c.rs_dim; ++s) {
    if (s == rs) continue;
    const std::vector<double> part = Product(c, RankAt(c, ag, s));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  if (!c.scatter.empty()) {
    const std::vector<int64_t>& rows = c.scatter[static_cast<size_t>(ag)];
    int64_t begin = 0;
    for (int s = 0; s < rs; ++s) begin += rows[static_cast<size_t>(s)];
    const int64_t end = begin + rows[static_cast<size_t>(rs)];
    sum = std::vector<double>(sum.begin() + begin * c.n, sum.begin() + end * c.n);
  }
  const std::vector<float> residual = Numbers(c, true, rank, kResidual, c.n);
  for (size_t i = 0; c.residual && i < sum.size(); ++i) {
    sum[i] += residual[i % static_cast<size_t>(c.n)];
  }
  return Stored(c.dtype, sum);
}

// The rows of a rank's gathering group.
inline std::vector<std::byte> Gathered(const Case& c, bool exact, int rank) {
  std::vector<float> all;
  for (int a = 0; a < c.ag_dim; ++a) {
    const int member = RankAt(c, a, Places(c, rank).second);
    const std::vector<float> x = Numbers(c, exact, member, kX, RowsOf(c, member) * c.k);
    all.insert(all.end(), x.begin(), x.end());
  }
  return Stored(c.dtype, all);
}

inline Param MakeParam(const Case& c, int rank) {
  const auto [ag, rs] = Places(c, rank);
  Param param;
  param.type = c.type;
  param.transWeight = c.trans_weight;
  param.hasResidual = c.residual;
  param.keepIntermediate = c.gathered;
  param.rank = rank;
  param.rankSize = NumRanks(c);
  param.sumLeaves = c.leaves;
  if (c.type == Param::ALL_GATHER_LINEAR_REDUCE_SCATTER) {
    param.twoDimTPInfo.agDim = static_cast<uint16_t>(c.ag_dim);
    param.twoDimTPInfo.rsDim = static_cast<uint16_t>(c.rs_dim);
    param.twoDimTPInfo.innerDimIsAg = c.inner_is_ag ? 1 : 0;
  }
  if (!c.gather.empty()) param.gatherRows = c.gather[static_cast<size_t>(rs)];
  if (!c.scatter.empty()) param.scatterRows = c.scatter[static_cast<size_t>(ag)];
  return param;
}

inline collops::TensorDesc Desc(DType dtype, std::vector<int64_t> dims) {
  collops::TensorDesc desc;
  desc.dtype = dtype;
  desc.shape.num_dims = static_cast<int>(dims.size());
  std::copy(dims.begin(), dims.end(), desc.shape.dims);
  return desc;
}

struct Outputs {
  std::vector<std::byte> output;
  std::vector<std::byte> gathered;
};

// How a rank runs a case.
struct How {
  bool exact = true;
  const collops::Engine* engine = &collops::kWindows;
  bool window = false;
  bool packed = false;  // the weight is, before the call
  // Right before the call; may change what was planned.
  std::function<void(collops::LinearPlan* plan)> before = nullptr;
};

// The case's x, in plain memory or in a window.
class Input {
 public:
  Input(const Case& c, const How& how, collops::Communicator* comm)
      : plain_(Stored(c.dtype,
                      Numbers(c, how.exact, comm->rank(), kX, RowsOf(c, comm->rank()) * c.k))) {
    if (!how.window) return;
    const auto bytes = static_cast<int64_t>(plain_.size());
    EXPECT_EQ(comm->AllocateWindow(bytes, &window_).message(), "");
    if (bytes > 0) std::memcpy(window_->data(), plain_.data(), plain_.size());
  }
  const void* data() const { return window_ == nullptr ? plain_.data() : window_->data(); }

 private:
  std::vector<std::byte> plain_;
  std::shared_ptr<collops::Window> window_;
};

// Runs the case once on this rank. The memory around is poisoned before.
inline collops::Status Run(const Case& c, const How& how, collops::Communicator* comm,
                           Outputs* outputs) {
  const int rank = comm->rank();
  const Param param = MakeParam(c, rank);
  collops::LinearPlan plan;
  const collops::LinearLayout& layout = plan.layout;
  std::vector<collops::TensorDesc> inputs = {
      Desc(c.dtype, {RowsOf(c, rank), c.k}),
      Desc(c.dtype,
           c.trans_weight ? std::vector<int64_t>{c.n, c.k} : std::vector<int64_t>{c.k, c.n})};
  if (c.residual) inputs.push_back(Desc(c.dtype, {c.n}));
  EXPECT_EQ(MakeLinearLayout(param, rank, comm->size(), inputs, &plan.layout).message(), "");
  plan.rank_size = comm->size();
  plan.dtype = plan.output_dtype = c.dtype;
  plan.engine = how.engine;
  COLLOPS_RETURN_IF_ERROR(PlanLinear(&plan));

  const Input x(c, how, comm);
  const auto weight = Stored(c.dtype, Numbers(c, how.exact, rank, kWeight, c.n * c.k));
  const auto residual = Stored(c.dtype, Numbers(c, how.exact, rank, kResidual, c.n));
  constexpr std::byte kPoison{0xa5};
  const auto item = static_cast<size_t>(collops::SizeOf(c.dtype));
  outputs->output.assign(static_cast<size_t>(layout.output[0] * c.n) * item, kPoison);
  collops::LinearTensors tensors;
  tensors.x = x.data();
  tensors.weight = weight.data();
  const auto packed = how.packed ? collops::PackWeight(plan.gemm, weight.data()) : nullptr;
  tensors.packed_weight = packed.get();
  if (how.before) how.before(&plan);
  if (c.residual) tensors.residual = residual.data();
  tensors.output = outputs->output.data();
  if (c.gathered) {
    outputs->gathered.assign(static_cast<size_t>(layout.gathered[0] * c.k) * item, kPoison);
    tensors.gathered = outputs->gathered.data();
  }
  std::vector<std::byte> workspace(static_cast<size_t>(plan.memory.bytes) + 1, kPoison);
  collops::Agreement agreement("LinearParallel");
  AddLinearTerms(param, plan, &agreement);
  return RunLinear(plan, tensors, agreement, workspace.data() + 1, comm, nullptr);
}

// The groups' communicators of the pipeline meet by the job's name.
inline void NameTheJob() {
  setenv("COLLOPS_JOB_ID", ranks::FreshJob().id.c_str(), 1);
}

}  // namespace linear_call
