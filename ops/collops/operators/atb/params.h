#pragma once

#include <memory>

#include "collops/operators/atb/types.h"
#include "collops/operators/create_operation.h"

namespace collops {
namespace [[gnu::visibility("default")]] atb {
namespace infer {

// ATB's structs (atb/infer_op_params.h), which are collops's own.

using collops::COMM_UNDEFINED, collops::COMM_MULTI_PROCESS, collops::COMM_MULTI_THREAD;
using collops::CommMode;

using collops::AllGatherParam, collops::AllGatherVParam, collops::AllToAllParam,
    collops::AllToAllVParam, collops::AllToAllVV2Param, collops::BroadcastParam, collops::RecvParam,
    collops::ReduceScatterParam, collops::ReduceScatterVParam, collops::SendParam;

struct AllReduceParam : collops::AllReduceParam {
  aclDataType outDataType = ACL_DT_UNDEFINED;
};

struct LinearParallelParam : collops::LinearParallelParam {
  aclDataType outDataType = ACL_DT_UNDEFINED;
};

// Conversions of numbers alone, with which ATB's programs make tensors of float16 and bfloat16.
struct ElewiseParam {
  enum ElewiseType : int { ELEWISE_UNDEFINED = 0, ELEWISE_CAST = 1 };
  ElewiseType elewiseType = ELEWISE_UNDEFINED;
  aclDataType outTensorType = ACL_DT_UNDEFINED;
};

// Refused: there is no operator that changes a format. ATB's programs compile with it.
struct TransdataParam {
  enum TransdataType : int { UNDEFINED = 0, FRACTAL_NZ_TO_ND = 1, ND_TO_FRACTAL_NZ = 2 };
  TransdataType transdataType = UNDEFINED;
};

// The struct that collops takes.
template <typename Param>
const Param& Own(const Param& param) {
  return param;
}
inline collops::AllReduceParam Own(const AllReduceParam& param) {
  collops::AllReduceParam own = param;
  own.outDataType = static_cast<DType>(param.outDataType);
  return own;
}
inline collops::LinearParallelParam Own(const LinearParallelParam& param) {
  collops::LinearParallelParam own = param;
  own.outDataType = static_cast<DType>(param.outDataType);
  return own;
}

template <typename Param>
collops::Status Make(const Param& param, std::unique_ptr<collops::Operation>* operation) {
  return collops::CreateOperation(Own(param), operation);
}
collops::Status Make(const ElewiseParam& param, std::unique_ptr<collops::Operation>* operation);
collops::Status Make(const TransdataParam& param, std::unique_ptr<collops::Operation>* operation);

}  // namespace infer
}  // namespace atb
}  // namespace collops
