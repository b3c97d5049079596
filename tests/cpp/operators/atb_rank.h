// Ranks that are threads, in ATB's style.
#ifndef COLLOPS_TESTS_CPP_ATB_RANK_H_
#define COLLOPS_TESTS_CPP_ATB_RANK_H_

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "collops/atb.h"

inline atb::Tensor MakeTensor(aclDataType dtype, const std::vector<int64_t>& sizes, void* data) {
  atb::Tensor tensor;
  tensor.desc.dtype = dtype;
  tensor.desc.format = ACL_FORMAT_ND;
  tensor.desc.shape.dimNum = sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i) tensor.desc.shape.dims[i] = sizes[i];
  tensor.deviceData = data;
  tensor.dataSize = atb::Utils::GetTensorSize(tensor);
  return tensor;
}

inline bool Says(const std::string& part) {
  return std::string(aclGetRecentErrMsg()).find(part) != std::string::npos;
}

inline atb::infer::AllReduceParam TwoThreads(int rank, const std::string& domain) {
  atb::infer::AllReduceParam param;
  param.rank = rank;
  param.rankSize = 2;
  param.backend = "shm";
  param.commMode = atb::infer::COMM_MULTI_THREAD;
  param.commDomain = domain;
  return param;
}

// What one rank needs for an AllReduce of two floats.
struct Rank {
  Rank(int rank, const std::string& domain) {
    EXPECT_EQ(atb::CreateContext(&context), atb::NO_ERROR);
    EXPECT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
    EXPECT_EQ(context->SetExecuteStream(stream), atb::NO_ERROR);
    EXPECT_EQ(atb::CreateOperation(TwoThreads(rank, domain), &operation), atb::NO_ERROR);
    x[0] = static_cast<float>(rank + 1);
    pack.inTensors = {MakeTensor(ACL_FLOAT, {2}, x)};
    pack.outTensors = {MakeTensor(ACL_FLOAT, {2}, y)};
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    EXPECT_EQ(atb::DestroyOperation(operation), atb::NO_ERROR);
    EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
    EXPECT_EQ(atb::DestroyContext(context), atb::NO_ERROR);
  }
  atb::Status Setup() { return operation->Setup(pack, bytes, context); }
  atb::Status Execute() { return operation->Execute(pack, nullptr, bytes, context); }

  atb::Context* context = nullptr;
  aclrtStream stream = nullptr;
  atb::Operation* operation = nullptr;
  float x[2] = {0, 5};
  float y[2] = {-1, -1};
  atb::VariantPack pack;
  uint64_t bytes = 99;
};

// Runs `body` as two ranks, which are threads.
inline void OnTwoRanks(const std::string& domain, const std::function<void(int, Rank&)>& body) {
  std::thread other([&] {
    Rank rank(1, domain);
    body(1, rank);
  });
  {
    Rank rank(0, domain);
    body(0, rank);
  }
  other.join();
}

#endif  // COLLOPS_TESTS_CPP_ATB_RANK_H_
