#pragma once

#include <cstdint>
#include <vector>

#include "core/status.h"
#include "operators/atb/acl.h"

namespace collops {
namespace [[gnu::visibility("default")]] atb {

// ATB's basic types (atb/types.h, atb/svector.h, atb/utils.h).

using Status = int32_t;
using ErrorType = ErrorCode;
using collops::NO_ERROR, collops::ERROR_INVALID_PARAM, collops::ERROR_INVALID_GRAPH,
    collops::ERROR_INTERNAL_ERROR, collops::ERROR_RT_FAIL, collops::ERROR_INVALID_IN_TENSOR_NUM,
    collops::ERROR_INVALID_TENSOR_DTYPE, collops::ERROR_INVALID_TENSOR_FORMAT,
    collops::ERROR_INVALID_TENSOR_DIM, collops::ERROR_INVALID_TENSOR_SIZE,
    collops::ERROR_OPERATION_NULL_RUNNER, collops::ERROR_GRAPH_INFERSHAPE_FUNC_FAIL,
    collops::ERROR_CANN_ERROR, collops::ERROR_INVALID_TENSOR_INI_MATCH,
    collops::ERROR_INVALID_TENSOR_ADDR, collops::ERROR_INVALID_TENSOR_NUM,
    collops::ERROR_INVALID_TENSOR_DIM_NUM, collops::ERROR_INVALID_SINGLE_OPERATION_PARAM,
    collops::ERROR_GRAPH_NODE_RESHAPE_FUNC_FAIL, collops::ERROR_INVALID_GRAPH_NODE_CHUNK,
    collops::ERROR_INVALID_CONTEXT_ADDR, collops::ERROR_INVALID_STREAM,
    collops::ERROR_INVALID_WORKSPACE_SIZE, collops::ERROR_INVALID_WORKSPACE_ADDR,
    collops::ERROR_INVALID_OPERATION_ADDR, collops::ERROR_HCCL_FAIL,
    collops::ERROR_OUT_OF_DEVICE_MEMORY, collops::ERROR_OUT_OF_HOST_MEMORY,
    collops::ERROR_COMM_EMPTY, collops::ERROR_COPY_HOST_MEMORY_FAIL;

constexpr uint32_t MAX_DIM = 8;

template <typename T>
using SVector = std::vector<T>;

struct Dims {
  int64_t dims[MAX_DIM];
  uint64_t dimNum = 0;
};

struct TensorDesc {
  aclDataType dtype = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_UNDEFINED;
  Dims shape;
};

// One of the two addresses is used: deviceData, or if that is null hostData.
struct Tensor {
  TensorDesc desc;
  void* deviceData = nullptr;
  void* hostData = nullptr;
  uint64_t dataSize = 0;
};

struct VariantPack {
  SVector<Tensor> inTensors;
  SVector<Tensor> outTensors;
};

class Utils {
 public:
  static uint64_t GetTensorSize(const Tensor& tensor) { return GetTensorSize(tensor.desc); }
  static uint64_t GetTensorSize(const TensorDesc& desc);
  static uint64_t GetTensorNumel(const Tensor& tensor) { return GetTensorNumel(tensor.desc); }
  static uint64_t GetTensorNumel(const TensorDesc& desc);
};

}  // namespace atb
}  // namespace collops
