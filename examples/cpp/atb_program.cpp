// A program in ATB's style, which runs on a CPU: four processes gather different numbers of rows,
// then multiply them on a grid of 2 x 2 ranks. Only its includes differ from those of a program for
// ATB.
//
//   COLLOPS_BACKEND=shm COLLOPS_JOB_ID=$$ build/example/atb_program
//   COLLOPS_BACKEND=shm collops run -n 4 build/example/atb_program
#include <sys/wait.h>
#include <unistd.h>

#include <collops/atb.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#define CHECK_STATUS(call)                                            \
  do {                                                                \
    const int status_ = (call);                                       \
    if (status_ != 0) {                                               \
      std::printf("%s:%d: status %d\n", __FILE__, __LINE__, status_); \
      return status_;                                                 \
    }                                                                 \
  } while (0)

namespace {

constexpr int kRanks = 4;
constexpr int64_t kColumns = 8;
constexpr int64_t kRows[kRanks] = {3, 0, 2, 2};  // of each rank's x

struct Rank {
  int rank = 0;
  aclrtStream stream = nullptr;
  atb::Context* context = nullptr;
};

// A tensor in device memory; its contents are not set. An empty one has no address, because
// aclrtMalloc refuses 0 bytes.
int MakeTensor(aclDataType dtype, const std::vector<int64_t>& shape, atb::Tensor* tensor) {
  tensor->desc.dtype = dtype;
  tensor->desc.format = ACL_FORMAT_ND;
  tensor->desc.shape.dimNum = shape.size();
  for (size_t i = 0; i < shape.size(); ++i) tensor->desc.shape.dims[i] = shape[i];
  tensor->dataSize = atb::Utils::GetTensorSize(*tensor);
  if (tensor->dataSize == 0) return ACL_SUCCESS;
  return aclrtMalloc(&tensor->deviceData, tensor->dataSize, ACL_MEM_MALLOC_HUGE_FIRST);
}

// Counts and displacements are in host memory, as ATB wants them.
atb::Tensor HostTensor(std::vector<int64_t>* numbers) {
  atb::Tensor tensor;
  tensor.desc.dtype = ACL_INT64;
  tensor.desc.format = ACL_FORMAT_ND;
  tensor.desc.shape.dimNum = 1;
  tensor.desc.shape.dims[0] = static_cast<int64_t>(numbers->size());
  tensor.hostData = numbers->data();
  tensor.dataSize = atb::Utils::GetTensorSize(tensor);
  return tensor;
}

void FreeTensors(const atb::SVector<atb::Tensor>& tensors) {
  for (const atb::Tensor& tensor : tensors) aclrtFree(tensor.deviceData);
}

// Both phases.
int RunOperation(atb::Operation* operation, const atb::VariantPack& pack, const Rank& rank) {
  uint64_t bytes = 0;
  CHECK_STATUS(operation->Setup(pack, bytes, rank.context));
  void* workspace = nullptr;
  if (bytes > 0) CHECK_STATUS(aclrtMalloc(&workspace, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK_STATUS(operation->Execute(pack, static_cast<uint8_t*>(workspace), bytes, rank.context));
  CHECK_STATUS(aclrtSynchronizeStream(rank.stream));
  if (workspace != nullptr) CHECK_STATUS(aclrtFree(workspace));
  return atb::ErrorType::NO_ERROR;
}

int Cast(const atb::Tensor& from, const atb::Tensor& to, const Rank& rank) {
  atb::infer::ElewiseParam param;
  param.elewiseType = atb::infer::ElewiseParam::ELEWISE_CAST;
  param.outTensorType = to.desc.dtype;
  atb::Operation* operation = nullptr;
  CHECK_STATUS(atb::CreateOperation(param, &operation));
  atb::VariantPack pack;
  pack.inTensors = {from};
  pack.outTensors = {to};
  CHECK_STATUS(RunOperation(operation, pack, rank));
  return atb::DestroyOperation(operation);
}

// A float16 tensor with these values.
int MakeFloat16(const std::vector<float>& values, const std::vector<int64_t>& shape,
                const Rank& rank, atb::Tensor* tensor) {
  if (values.empty()) return MakeTensor(ACL_FLOAT16, shape, tensor);
  atb::Tensor wide;
  CHECK_STATUS(MakeTensor(ACL_FLOAT, shape, &wide));
  CHECK_STATUS(aclrtMemcpy(wide.deviceData, wide.dataSize, values.data(),
                           values.size() * sizeof(float), ACL_MEMCPY_HOST_TO_DEVICE));
  CHECK_STATUS(MakeTensor(ACL_FLOAT16, shape, tensor));
  CHECK_STATUS(Cast(wide, *tensor, rank));
  return aclrtFree(wide.deviceData);
}

int ReadFloat16(const atb::Tensor& tensor, const Rank& rank, std::vector<float>* values) {
  atb::Tensor wide;
  const int64_t* const dims = tensor.desc.shape.dims;
  CHECK_STATUS(MakeTensor(ACL_FLOAT, {dims, dims + tensor.desc.shape.dimNum}, &wide));
  CHECK_STATUS(Cast(tensor, wide, rank));
  values->resize(atb::Utils::GetTensorNumel(tensor));
  CHECK_STATUS(aclrtMemcpy(values->data(), values->size() * sizeof(float), wide.deviceData,
                           wide.dataSize, ACL_MEMCPY_DEVICE_TO_HOST));
  return aclrtFree(wide.deviceData);
}

// The rows of all ranks, in their order; each element of a row of rank r is r + 1.
int GatherRows(const Rank& rank, std::vector<float>* gathered) {
  atb::infer::AllGatherVParam param;
  param.rank = rank.rank;
  param.rankSize = kRanks;
  param.backend = "hccl";
  param.commMode = atb::infer::CommMode::COMM_MULTI_PROCESS;
  param.commDomain = "rows";
  atb::Operation* operation = nullptr;
  CHECK_STATUS(atb::CreateOperation(param, &operation));

  std::vector<int64_t> counts;
  for (const int64_t rows : kRows) counts.push_back(rows * kColumns);
  std::vector<int64_t> displs(kRanks, 0);
  std::partial_sum(counts.begin(), counts.end() - 1, displs.begin() + 1);
  std::vector<int64_t> send_count = {counts[rank.rank]};
  const int64_t all_rows = std::accumulate(kRows, kRows + kRanks, int64_t{0});

  atb::VariantPack pack;
  pack.inTensors.resize(5);
  const std::vector<float> values(counts[rank.rank], static_cast<float>(rank.rank + 1));
  CHECK_STATUS(MakeFloat16(values, {kRows[rank.rank], kColumns}, rank, &pack.inTensors[0]));
  pack.inTensors[1] = HostTensor(&send_count);
  pack.inTensors[2] = HostTensor(&counts);
  pack.inTensors[3] = HostTensor(&displs);
  CHECK_STATUS(MakeTensor(ACL_FLOAT16, {all_rows}, &pack.inTensors[4]));  // only its length counts
  pack.outTensors.resize(1);
  CHECK_STATUS(MakeTensor(ACL_FLOAT16, {all_rows, kColumns}, &pack.outTensors[0]));

  CHECK_STATUS(RunOperation(operation, pack, rank));
  CHECK_STATUS(ReadFloat16(pack.outTensors[0], rank, gathered));
  FreeTensors(pack.inTensors);
  FreeTensors(pack.outTensors);
  return atb::DestroyOperation(operation);
}

// On the 2 x 2 grid: neighbours gather their rows, and ranks two apart add their products.
int MultiplyOnGrid(const Rank& rank, std::vector<float>* product) {
  atb::infer::LinearParallelParam param;
  param.transWeight = false;
  param.rank = rank.rank;
  param.rankSize = kRanks;
  param.backend = "lcoc";
  param.type = atb::infer::LinearParallelParam::ALL_GATHER_LINEAR_REDUCE_SCATTER;
  param.twoDimTPInfo.agDim = 2;
  param.twoDimTPInfo.rsDim = 2;
  param.outDataType = ACL_FLOAT16;
  param.commDomain = "grid";
  atb::Operation* operation = nullptr;
  CHECK_STATUS(atb::CreateOperation(param, &operation));

  const std::vector<float> x(2 * kColumns, static_cast<float>(rank.rank + 1));
  const std::vector<float> weight(kColumns * 3, 0.5f);
  atb::VariantPack pack;
  pack.inTensors.resize(2);
  CHECK_STATUS(MakeFloat16(x, {2, kColumns}, rank, &pack.inTensors[0]));
  CHECK_STATUS(MakeFloat16(weight, {kColumns, 3}, rank, &pack.inTensors[1]));
  pack.outTensors.resize(1);
  CHECK_STATUS(MakeTensor(ACL_FLOAT16, {2, 3}, &pack.outTensors[0]));

  CHECK_STATUS(RunOperation(operation, pack, rank));
  CHECK_STATUS(ReadFloat16(pack.outTensors[0], rank, product));
  FreeTensors(pack.inTensors);
  FreeTensors(pack.outTensors);
  return atb::DestroyOperation(operation);
}

int CheckResults(const std::vector<float>& gathered, const std::vector<float>& product, int index) {
  std::vector<float> rows;
  for (int r = 0; r < kRanks; ++r) rows.insert(rows.end(), kRows[r] * kColumns, r + 1.0f);
  // The first half of the grid's rows are those of ranks 0 and 2, the other those of 1 and 3.
  const float sum = kColumns * 0.5f * (index < 2 ? 1 + 3 : 2 + 4);
  const bool right = gathered == rows && product == std::vector<float>(2 * 3, sum);
  if (!right) std::printf("rank %d: wrong results\n", index);
  return right ? 0 : 1;
}

int RunRank(int index) {
  Rank rank;
  rank.rank = index;
  CHECK_STATUS(aclInit(nullptr));
  CHECK_STATUS(aclrtSetDevice(index));
  CHECK_STATUS(atb::CreateContext(&rank.context));
  CHECK_STATUS(aclrtCreateStream(&rank.stream));
  CHECK_STATUS(rank.context->SetExecuteStream(rank.stream));

  std::vector<float> gathered;
  std::vector<float> product;
  CHECK_STATUS(GatherRows(rank, &gathered));
  CHECK_STATUS(MultiplyOnGrid(rank, &product));
  CHECK_STATUS(CheckResults(gathered, product, index));

  CHECK_STATUS(aclrtDestroyStream(rank.stream));
  CHECK_STATUS(atb::DestroyContext(rank.context));
  CHECK_STATUS(aclrtResetDevice(index));
  return aclFinalize();
}

}  // namespace

int main() {
  // Where a launcher has started this process as one of the ranks, it starts no others.
  if (const char* rank = std::getenv("RANK")) return RunRank(std::atoi(rank));
  for (int rank = 0; rank < kRanks; ++rank) {
    if (fork() == 0) return RunRank(rank);
  }
  int failed = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    int status = 0;
    wait(&status);
    failed += status != 0 ? 1 : 0;
  }
  if (failed == 0) std::printf("4 ranks gathered their rows and multiplied on a grid\n");
  return failed == 0 ? 0 : 1;
}
