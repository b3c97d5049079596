#pragma once

#include <cstdint>

#include "collops/core/status.h"

namespace collops {
namespace [[gnu::visibility("default")]] atb {

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
    collops::ERROR_COMM_EMPTY, collops::ERROR_COPY_HOST_MEMORY_FAIL, collops::ERROR_TIMEOUT,
    collops::ERROR_PEER_LOST, collops::ERROR_RANK_MISMATCH, collops::ERROR_UNSUPPORTED,
    collops::ERROR_ABORTED;

}  // namespace atb
}  // namespace collops
