#pragma once

#include <cstdint>

#include "collops/comm/backends/hccl/library/api.h"
#include "collops/core/status.h"

namespace collops::hccl {

// CANN's operators, declared here from aclnn's documents. Each is called in two phases: the first
// returns an executor, which is used once, and the bytes of workspace of the second.

using AclTensor = void*;
using AclScalar = void*;
using AclExecutor = void*;
using AclnnStatus = int32_t;                   // 0 is success
constexpr AclnnStatus kAclnnInvalid = 161002;  // the shapes or types are not supported

// aclDataType has collops' numbers (core/dtype.h). aclFormat:
constexpr int32_t kFormatNd = 2;
// cubeMathType: float32 is multiplied as float32.
constexpr int8_t kKeepType = 0;

struct Aclnn {
  AclTensor (*create_tensor)(const int64_t* dims, uint64_t num_dims, int32_t type,
                             const int64_t* strides, int64_t offset, int32_t format,
                             const int64_t* storage_dims, uint64_t num_storage_dims, void* data);
  AclnnStatus (*destroy_tensor)(AclTensor tensor);
  AclScalar (*create_scalar)(void* value, int32_t type);
  AclnnStatus (*destroy_scalar)(AclScalar scalar);

  AclnnStatus (*matmul_size)(AclTensor self, AclTensor mat2, AclTensor out, int8_t cube_math_type,
                             uint64_t* bytes, AclExecutor* executor);
  AclnnStatus (*matmul)(void* workspace, uint64_t bytes, AclExecutor executor, Stream stream);
  AclnnStatus (*cast_size)(AclTensor self, int32_t type, AclTensor out, uint64_t* bytes,
                           AclExecutor* executor);
  AclnnStatus (*cast)(void* workspace, uint64_t bytes, AclExecutor executor, Stream stream);
  AclnnStatus (*add_size)(AclTensor self, AclTensor other, AclScalar alpha, AclTensor out,
                          uint64_t* bytes, AclExecutor* executor);
  AclnnStatus (*add)(void* workspace, uint64_t bytes, AclExecutor executor, Stream stream);
};

// Opens libnnopbase.so and libopapi.so once per process, and leaves them open. ERROR_UNSUPPORTED
// with the loader's message if that fails.
Status LoadAclnn(const Aclnn** aclnn);

}  // namespace collops::hccl
