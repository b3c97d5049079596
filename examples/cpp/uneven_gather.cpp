// AllGatherV from C++ between four threads of this process, with rows that do not divide evenly.
// Build it against an installed collops:
//
//   cmake --install build --prefix /opt/collops
//   cmake -S examples/cpp -B build/example -DCMAKE_PREFIX_PATH=/opt/collops
//   cmake --build build/example && build/example/uneven_gather
#include <collops/collops.h>

#include <cstdio>
#include <thread>
#include <vector>

namespace {

constexpr int kRanks = 4;
constexpr int64_t kColumns = 3;
constexpr int64_t kRows[kRanks] = {3, 0, 2, 1};  // one rank has nothing

collops::TensorView View(void* data, collops::DType dtype, collops::Shape shape) {
  collops::TensorView view;
  view.desc = {dtype, collops::Format::kND, shape};
  view.data = data;
  return view;
}

collops::Status Gather(int rank, std::vector<float>* everything) {
  collops::AllGatherVParam param;
  param.rank = rank;
  param.rankSize = kRanks;
  param.backend = "shm";
  param.commMode = collops::COMM_MULTI_THREAD;
  param.commDomain = "example";
  std::unique_ptr<collops::Operation> operation;
  COLLOPS_RETURN_IF_ERROR(collops::CreateOperation(param, &operation));

  // Counts and displacements are elements, equal on every rank.
  int64_t counts[kRanks];
  int64_t displs[kRanks];
  int64_t rows = 0;
  for (int r = 0; r < kRanks; ++r) {
    counts[r] = kRows[r] * kColumns;
    displs[r] = rows * kColumns;
    rows += kRows[r];
  }
  std::vector<float> x(static_cast<size_t>(counts[rank]), static_cast<float>(rank));
  everything->resize(static_cast<size_t>(rows * kColumns));

  std::vector<uint16_t> y(static_cast<size_t>(rows));  // only a length: the output's rows

  using collops::DType;
  collops::VariantPack pack;
  pack.inputs = {View(x.data(), DType::kFloat32, {kRows[rank], kColumns}),
                 View(&counts[rank], DType::kInt64, {1}), View(counts, DType::kInt64, {kRanks}),
                 View(displs, DType::kInt64, {kRanks}), View(y.data(), DType::kFloat16, {rows})};
  pack.outputs = {View(everything->data(), DType::kFloat32, {rows, kColumns})};

  uint64_t bytes = 0;
  COLLOPS_RETURN_IF_ERROR(operation->GetWorkspaceSize(pack, &bytes));
  std::vector<char> workspace(bytes);
  return operation->Execute(pack, workspace.data(), bytes, nullptr);
}

}  // namespace

int main() {
  std::vector<float> results[kRanks];
  collops::Status statuses[kRanks];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] { statuses[rank] = Gather(rank, &results[rank]); });
  }
  for (std::thread& thread : threads) thread.join();

  const std::vector<float> want = {0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 3, 3, 3};
  for (int rank = 0; rank < kRanks; ++rank) {
    if (!statuses[rank].ok() || results[rank] != want) {
      std::printf("rank %d: %s\n", rank, statuses[rank].message().c_str());
      return 1;
    }
  }
  std::printf("6 rows of 4 ranks, gathered on each of them\n");
  return 0;
}
