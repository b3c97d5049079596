// How often the weight is read: as often as by the product alone, whatever the number of ranks and
// the order in which their rows arrive. Counted in the kernels, in calls of several processes.

#include <algorithm>
#include <atomic>
#include <limits>

#include "collops/kernels/gemm/gemm_kernels.h"
#include "collops/kernels/thread_pool.h"
#include "operators/linear_parallel/linear_call.h"

namespace collops {
namespace {

using kernels::GemmKernels;
using linear_call::Case;
using linear_call::How;
using linear_call::kType2;
using linear_call::kType4;
using linear_call::NumRanks;
using linear_call::Outputs;

// Kernels that count the elements of the weight that they load, on any thread of this process.
class CountingKernels {
 public:
  // Those of a weight that was packed before are loaded once for all rows that are multiplied by a
  // block without another in between. For one thread.
  static void Install(LinearPlan* plan, bool packed) {
    original_ = plan->gemm.kernels;
    counting_ = *original_;
    counting_.pack_columns = [](const void* source, int64_t ld, int64_t rows, int64_t k,
                                uint32_t* panel) {
      loaded_ += rows * k;
      original_->pack_columns(source, ld, rows, k, panel);
    };
    counting_.pack_straight = [](const void* source, int64_t ld, int64_t k, int64_t columns,
                                 int64_t panel_units, uint32_t* panels) {
      loaded_ += columns * k;
      original_->pack_straight(source, ld, k, columns, panel_units, panels);
    };
    if (packed) counting_.multiply = &MultiplyPacked;
    plan->gemm.kernels = &counting_;
    loaded_ = 0;
    last_ = nullptr;
  }
  static int64_t loaded() { return loaded_; }

 private:
  static void MultiplyPacked(const uint32_t* a, int64_t rows, const uint32_t* b, int64_t columns,
                             int64_t units, bool first, float* c, int64_t ldc,
                             const kernels::Meanwhile& meanwhile) {
    if (b != last_) loaded_ += columns * units * original_->k_per_unit;
    last_ = b;
    original_->multiply(a, rows, b, columns, units, first, c, ldc, meanwhile);
  }

  static inline const GemmKernels* original_ = nullptr;
  static inline GemmKernels counting_ = {};
  static inline std::atomic<int64_t> loaded_{0};
  static inline const uint32_t* last_ = nullptr;
};

struct Passes {
  Case c;
  int threads = 1;
  bool packed = false;
  bool window = false;
};

Case Gathering(std::vector<int64_t> rows, int64_t k, int64_t n, bool trans_weight = true) {
  const auto size = static_cast<int>(rows.size());
  return {kType2, size, 1, true, {std::move(rows)}, {}, 0, k, n, trans_weight, false};
}

// Equal rows on a grid.
Case OnGrid(int ag_dim, int rs_dim, int64_t rows, int64_t k, int64_t n) {
  const std::vector<int64_t> gather(static_cast<size_t>(ag_dim), rows);
  std::vector<int64_t> scatter(static_cast<size_t>(rs_dim), ag_dim * rows / rs_dim);
  scatter.back() += ag_dim * rows % rs_dim;
  return {kType4,
          ag_dim,
          rs_dim,
          true,
          std::vector<std::vector<int64_t>>(static_cast<size_t>(rs_dim), gather),
          std::vector<std::vector<int64_t>>(static_cast<size_t>(ag_dim), scatter),
          0,
          k,
          n,
          true,
          false};
}

std::vector<Passes> AllPasses() {
  constexpr int64_t kLong = 128, kWide = 3840;
  return {
      {Gathering({1, 1}, kLong, kWide)},
      {Gathering({64, 64}, kLong, kWide)},
      {Gathering({2047, 1}, kLong, kWide), 2},
      {Gathering({200, 0, 30}, kLong, kWide, false)},
      {Gathering({64, 64, 64, 64}, kLong, kWide), 4},
      {Gathering({64, 64, 64, 64}, kLong, kWide), 1, true},
      {Gathering(std::vector<int64_t>(8, 64), kLong, kWide)},
      {Gathering(std::vector<int64_t>(8, 64), kLong, kWide), 1, false, true},
      {Gathering(std::vector<int64_t>(16, 1), kLong, kWide)},
      {Gathering(std::vector<int64_t>(16, 5), kLong, kWide), 2},
      {OnGrid(2, 2, 64, kLong, kWide)},
      {OnGrid(4, 2, 64, kLong, kWide)},
      {OnGrid(8, 1, 32, kLong, kWide)},
      {OnGrid(8, 2, 16, kLong, kWide), 1, true},
  };
}

// The least of some calls: on fewer cores than ranks some rank may be late in any of them, and is
// not waited for without end.
double CountPasses(const Passes& passes, Communicator* comm) {
  How how;
  how.window = passes.window;
  how.packed = passes.packed;
  how.before = [&](LinearPlan* plan) {
    CountingKernels::Install(plan, passes.packed);
    EXPECT_EQ(comm->Barrier().message(), "");
  };
  Outputs outputs;
  double least = std::numeric_limits<double>::max();
  for (int call = 0; call < 5; ++call) {
    EXPECT_EQ(Run(passes.c, how, comm, &outputs).message(), "");
    least = std::min(least, static_cast<double>(CountingKernels::loaded()) /
                                static_cast<double>(passes.c.k * passes.c.n));
  }
  return least;
}

TEST(TheWeightIsLoadedOnceWhateverTheNumberOfRanks) {
  for (const Passes& passes : AllPasses()) {
    ranks::Run(NumRanks(passes.c), [&](int /*rank*/, Communicator& comm) {
      kernels::ForceNumThreads(passes.threads);
      const double count = CountPasses(passes, &comm);
      EXPECT_TRUE(count > 0.999);
      if (count > 1.1) {
        check::Fail(__FILE__, __LINE__,
                    Concat(comm.size(), " ranks, ", RowsOf(passes.c, comm.rank()), " of ",
                           passes.c.gather[0].size(), " groups of rows, ", passes.threads,
                           " threads: ", count, " passes over the weight"));
      }
    });
  }
}

}  // namespace
}  // namespace collops
