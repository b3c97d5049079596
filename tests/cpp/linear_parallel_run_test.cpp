// LinearParallel over processes and threads: fused and as a pipeline, against a plain loop on exact
// data, and against each other, bit for bit, on random data.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "operators/linear_parallel_run.h"
#include "ranks.h"

namespace collops {
namespace {

using Param = LinearParallelParam;

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
};

int NumRanks(const Case& c) {
  return c.ag_dim * c.rs_dim;
}

// The places of a rank: (in its gathering group, in its scattering group).
std::pair<int, int> Places(const Case& c, int rank) {
  if (c.type != Param::ALL_GATHER_LINEAR_REDUCE_SCATTER) {
    return c.ag_dim > 1 ? std::make_pair(rank, 0) : std::make_pair(0, rank);
  }
  if (c.inner_is_ag) return {rank % c.ag_dim, rank / c.ag_dim};
  return {rank / c.rs_dim, rank % c.rs_dim};
}

int RankAt(const Case& c, int ag, int rs) {
  for (int r = 0; r < NumRanks(c); ++r) {
    if (Places(c, r) == std::make_pair(ag, rs)) return r;
  }
  return -1;
}

// The number at a place of a rank's tensor: small integers, or anything between -1 and 1.
float Value(bool exact, int rank, int tensor, int64_t index) {
  uint64_t hash = static_cast<uint64_t>(index * 131 + rank * 17 + tensor * 7 + 1);
  hash = (hash ^ (hash >> 15)) * 0x9e3779b97f4a7c15U;
  const auto bits = static_cast<uint32_t>(hash >> 32);
  if (exact) return static_cast<float>(static_cast<int>(bits % 7) - 3);
  return static_cast<float>(bits) / 2147483648.0F - 1.0F;
}

std::vector<float> Tensor(bool exact, int rank, int tensor, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = Value(exact, rank, tensor, i);
  }
  return values;
}

int64_t RowsOf(const Case& c, int rank) {
  if (c.gather.empty()) return c.rows;
  const auto [ag, rs] = Places(c, rank);
  return c.gather[static_cast<size_t>(rs)][static_cast<size_t>(ag)];
}

// T of a rank: its group's rows times its weight.
std::vector<double> Product(const Case& c, int rank) {
  const auto [ag, rs] = Places(c, rank);
  static_cast<void>(ag);
  const std::vector<float> weight = Tensor(true, rank, 1, c.n * c.k);
  std::vector<double> product;
  for (int a = 0; a < c.ag_dim; ++a) {
    const int member = c.gather.empty() ? rank : RankAt(c, a, rs);
    const int64_t rows = RowsOf(c, member);
    const std::vector<float> x = Tensor(true, member, 0, rows * c.k);
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

std::vector<double> Expected(const Case& c, int rank) {
  const auto [ag, rs] = Places(c, rank);
  std::vector<double> sum = Product(c, rank);
  const bool sums = c.type != Param::ALL_GATHER_LINEAR && c.type != Param::PURE_LINEAR;
  if (sums) {
    std::fill(sum.begin(), sum.end(), 0.0);
    for (int s = 0; s < c.rs_dim; ++s) {
      const std::vector<double> part = Product(c, RankAt(c, ag, s));
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
  }
  if (!c.scatter.empty()) {
    const std::vector<int64_t>& rows = c.scatter[static_cast<size_t>(ag)];
    int64_t begin = 0;
    for (int s = 0; s < rs; ++s) begin += rows[static_cast<size_t>(s)];
    const int64_t end = begin + rows[static_cast<size_t>(rs)];
    sum = std::vector<double>(sum.begin() + begin * c.n, sum.begin() + end * c.n);
  }
  const std::vector<float> residual = Tensor(true, rank, 2, c.n);
  for (size_t i = 0; c.residual && i < sum.size(); ++i) {
    sum[i] += residual[i % static_cast<size_t>(c.n)];
  }
  return sum;
}

Param MakeParam(const Case& c, int rank) {
  const auto [ag, rs] = Places(c, rank);
  Param param;
  param.type = c.type;
  param.transWeight = c.trans_weight;
  param.hasResidual = c.residual;
  param.rank = rank;
  param.rankSize = NumRanks(c);
  if (c.type == Param::ALL_GATHER_LINEAR_REDUCE_SCATTER) {
    param.twoDimTPInfo.agDim = static_cast<uint16_t>(c.ag_dim);
    param.twoDimTPInfo.rsDim = static_cast<uint16_t>(c.rs_dim);
    param.twoDimTPInfo.innerDimIsAg = c.inner_is_ag ? 1 : 0;
  }
  if (!c.gather.empty()) param.gatherRows = c.gather[static_cast<size_t>(rs)];
  if (!c.scatter.empty()) param.scatterRows = c.scatter[static_cast<size_t>(ag)];
  return param;
}

TensorDesc Desc(std::vector<int64_t> dims) {
  TensorDesc desc;
  desc.dtype = DType::kFloat32;
  desc.shape.num_dims = static_cast<int>(dims.size());
  std::copy(dims.begin(), dims.end(), desc.shape.dims);
  return desc;
}

// Runs the case once on this rank with one engine and returns the output.
std::vector<float> RunOnce(const Case& c, bool exact, LinearEngine engine, Communicator* comm,
                           LinearParts* parts, bool window) {
  const int rank = comm->rank();
  const int64_t rows = RowsOf(c, rank);
  const Param param = MakeParam(c, rank);
  LinearLayout layout;
  std::vector<TensorDesc> inputs = {Desc({rows, c.k}),
                                    c.trans_weight ? Desc({c.n, c.k}) : Desc({c.k, c.n})};
  if (c.residual) inputs.push_back(Desc({c.n}));
  EXPECT_EQ(MakeLinearLayout(param, rank, comm->size(), inputs, &layout).message(), "");
  const LinearPlan plan = PlanLinear(layout, DType::kFloat32, comm->size(), engine);

  const std::vector<float> plain = Tensor(exact, rank, 0, rows * c.k);
  const int64_t x_bytes = static_cast<int64_t>(plain.size() * sizeof(float));
  std::shared_ptr<Window> memory;
  LinearTensors tensors;
  tensors.x = plain.data();
  if (window) {
    EXPECT_EQ(comm->AllocateWindow(x_bytes, &memory).message(), "");
    std::memcpy(memory->data(), plain.data(), static_cast<size_t>(x_bytes));
    tensors.x = memory->data();
  }
  const std::vector<float> weight = Tensor(exact, rank, 1, c.n * c.k);
  const std::vector<float> residual = Tensor(exact, rank, 2, c.n);
  std::vector<float> output(static_cast<size_t>(layout.output[0] * c.n), NAN);
  tensors.weight = weight.data();
  if (c.residual) tensors.residual = residual.data();
  tensors.output = output.data();
  std::vector<std::byte> workspace(static_cast<size_t>(plan.memory.bytes) + 1);
  const LinearTerms terms = MakeLinearTerms(param, layout);
  EXPECT_EQ(RunLinear(plan, tensors, terms, workspace.data() + 1, comm, parts).message(), "");
  return output;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<Case> Cases() {
  const auto kType0 = Param::LINEAR_ALL_REDUCE;
  const auto kType1 = Param::LINEAR_REDUCE_SCATTER;
  const auto kType2 = Param::ALL_GATHER_LINEAR;
  const auto kType4 = Param::ALL_GATHER_LINEAR_REDUCE_SCATTER;
  return {
      {kType0, 1, 3, true, {}, {}, 11, 70, 1000, true, true},
      {kType1, 1, 2, true, {}, {{3, 5}}, 8, 300, 800, false, false},
      {kType1, 1, 3, true, {}, {{0, 7, 4}}, 11, 65, 400, true, true},
      {kType2, 2, 1, true, {{3, 5}}, {}, 0, 300, 800, true, true},
      {kType2, 4, 1, true, {{9, 0, 1, 40}}, {}, 0, 1030, 500, false, false},
      {kType4, 2, 2, true, {{5, 6}, {1, 10}}, {{4, 7}, {11, 0}}, 0, 513, 900, true, true},
      {kType4, 2, 2, false, {{5, 6}, {11, 0}}, {{4, 7}, {2, 9}}, 0, 64, 385, false, false},
      {kType4,
       3,
       2,
       true,
       {{5, 6, 2}, {1, 10, 2}},
       {{4, 9}, {13, 0}, {6, 7}},
       0,
       40,
       1,
       true,
       false},
      {kType4,
       3,
       2,
       false,
       {{5, 6, 2}, {1, 10, 2}},
       {{4, 9}, {13, 0}, {6, 7}},
       0,
       3,
       777,
       true,
       true},
      {kType4, 1, 3, true, {{6}, {6}, {6}}, {{1, 2, 3}}, 0, 9, 9, true, false},
      {kType4, 3, 1, true, {{1, 2, 3}}, {{6}, {6}, {6}}, 0, 9, 9, true, false},
      // Long enough for the stage, and more rows than one part holds.
      {kType4,
       2,
       2,
       true,
       {{300, 20}, {20, 300}},
       {{160, 160}, {250, 70}},
       0,
       1500,
       40,
       true,
       false},
      {kType2, 2, 1, true, {{30, 26}}, {}, 0, 70000, 5, true, false},
      {kType4, 2, 2, true, {{0, 0}, {0, 0}}, {{0, 0}, {0, 0}}, 0, 5, 6, true, true},
  };
}

// The groups' communicators of the pipeline meet by the job's name.
void NameTheJob() {
  setenv("COLLOPS_JOB_ID", ranks::FreshJob().id.c_str(), 1);
}

void CheckCase(const Case& c, int rank, Communicator* comm) {
  LinearParts parts;
  const std::vector<double> expected = Expected(c, rank);
  for (const bool window : {false, true}) {
    for (const LinearEngine engine : {LinearEngine::kFused, LinearEngine::kPipeline}) {
      const std::vector<float> got = RunOnce(c, true, engine, comm, &parts, window);
      EXPECT_EQ(got.size(), expected.size());
      int wrong = 0;
      for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
        wrong += double{got[i]} == expected[i] ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0);
    }
  }
  const std::vector<float> fused = RunOnce(c, false, LinearEngine::kFused, comm, &parts, true);
  EXPECT_TRUE(SameBits(fused, RunOnce(c, false, LinearEngine::kFused, comm, &parts, false)));
  EXPECT_TRUE(SameBits(fused, RunOnce(c, false, LinearEngine::kPipeline, comm, &parts, false)));
}

TEST(EveryTypeAndGridOverProcesses) {
  for (const Case& c : Cases()) {
    NameTheJob();
    ranks::Run(NumRanks(c), [&](int rank, Communicator& comm) { CheckCase(c, rank, &comm); });
  }
}

TEST(EveryTypeAndGridOverThreads) {
  for (const Case& c : Cases()) {
    NameTheJob();
    ranks::RunThreads(NumRanks(c),
                      [&](int rank, Communicator& comm) { CheckCase(c, rank, &comm); });
  }
}

// One communicator, other shapes, types and tile sizes from call to call.
TEST(ShapesAlternateOnOneCommunicator) {
  std::vector<Case> cases;
  for (const Case& c : Cases()) {
    if (NumRanks(c) == 4) cases.push_back(c);
  }
  NameTheJob();
  ranks::Run(4, [&](int rank, Communicator& comm) {
    for (int round = 0; round < 3; ++round) {
      for (const Case& c : cases) CheckCase(c, rank, &comm);
    }
  });
}

}  // namespace
}  // namespace collops
