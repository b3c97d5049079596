#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "collops/operators/atb/types.h"
#include "collops/operators/params.h"

namespace collops {
namespace [[gnu::visibility("default")]] atb {
namespace infer {

// ATB's structs (atb/infer_op_params.h), which are collops's own.

using collops::COMM_UNDEFINED, collops::COMM_MULTI_PROCESS, collops::COMM_MULTI_THREAD;
using collops::CommMode;

using collops::AllGatherParam, collops::AllGatherVParam, collops::AllToAllParam,
    collops::AllToAllVParam, collops::AllToAllVV2Param, collops::BroadcastParam, collops::RecvParam,
    collops::ReduceScatterParam, collops::ReduceScatterVParam, collops::SendParam;

// A struct of collops with `outDataType` as ACL's number.
template <typename Base>
struct WithAclDataType : Base {
  aclDataType outDataType = ACL_DT_UNDEFINED;
};
using AllReduceParam = WithAclDataType<collops::AllReduceParam>;
using LinearParallelParam = WithAclDataType<collops::LinearParallelParam>;

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
template <typename Base>
Base Own(const WithAclDataType<Base>& param) {
  Base own = param;
  own.outDataType = static_cast<DType>(param.outDataType);
  return own;
}

template <typename Param, typename = void>
constexpr bool kIsCollective = false;
template <typename Param>
constexpr bool kIsCollective<Param, std::void_t<IfParam<Param>>> = true;

template <typename Param>
collops::Status Make(const Param& param, std::unique_ptr<collops::Operation>* operation) {
  if constexpr (kIsCollective<Param>) {
    return collops::CreateOperation(Own(param), operation);
  } else {
    static_assert(kIsCollective<Param>, "atb::CreateOperation needs a struct of atb::infer");
    return Ok();
  }
}
collops::Status Make(const ElewiseParam& param, std::unique_ptr<collops::Operation>* operation);
collops::Status Make(const TransdataParam& param, std::unique_ptr<collops::Operation>* operation);

}  // namespace infer
}  // namespace atb

// The functions of operators/params.h.

template <typename Base>
Status CreateOperation(const atb::infer::WithAclDataType<Base>& param,
                       std::unique_ptr<Operation>* operation) {
  return CreateOperation(Own(param), operation);
}
template <typename Base>
Status CreateOperation(const atb::infer::WithAclDataType<Base>& param,
                       const OperationOptions& options, std::unique_ptr<Operation>* operation) {
  return CreateOperation(Own(param), options, operation);
}
template <typename Base>
Status UpdateOperation(const atb::infer::WithAclDataType<Base>& param,
                       std::unique_ptr<Operation>* operation) {
  return UpdateOperation(Own(param), operation);
}
template <typename Base>
Status InferShape(const atb::infer::WithAclDataType<Base>& param, int rank_size,
                  const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>* outputs) {
  return InferShape(Own(param), rank_size, inputs, outputs);
}
template <typename Base>
bool operator==(const atb::infer::WithAclDataType<Base>& a,
                const atb::infer::WithAclDataType<Base>& b) {
  return Own(a) == Own(b);
}
template <typename Base>
std::string ToJson(const atb::infer::WithAclDataType<Base>& param) {
  return ToJson(Own(param));
}
template <typename Base>
Status FromJson(const std::string& text, atb::infer::WithAclDataType<Base>* param) {
  Base own;
  COLLOPS_RETURN_IF_ERROR(FromJson(text, &own));
  static_cast<Base&>(*param) = own;
  param->outDataType = static_cast<aclDataType>(own.outDataType);
  return Ok();
}

}  // namespace collops
