#include "collops/operators/linear_parallel/param.h"

#include "collops/operators/framework/param_check.h"
#include "collops/operators/json/struct_fields.h"

namespace collops {
namespace {

constexpr const char* kOp = "LinearParallel";

using P = LinearParallelParam;

// Experts and quantisation are known by ATB's names and do not exist here.
Status CheckType(const P& param) {
  const int type = static_cast<int>(param.type);
  COLLOPS_CHECK_ARG(
      param.type != P::ALLTOALLVC_ALL_GATHER_GMM && param.type != P::GMM_REDUCE_SCATTER_ALLTOALLVC,
      ERROR_INVALID_PARAM, kOp, ": type ", type, " (", Name(param.type),
      ") multiplies for a mixture of experts, which is not supported: use types 0 to 4");
  COLLOPS_CHECK_ARG(type >= P::LINEAR_ALL_REDUCE && type <= P::ALL_GATHER_LINEAR_REDUCE_SCATTER,
                    ERROR_INVALID_PARAM, kOp, ": type must be in [0, 4], got ", type);
  return Ok();
}

const char* NameOf(P::QuantType type) {
  constexpr const char* kNames[] = {"QUANT_TYPE_PER_TENSOR", "QUANT_TYPE_PER_CHANNEL",
                                    "QUANT_TYPE_PER_GROUP", "QUANT_TYPE_PER_TOKEN"};
  const bool known = type >= P::QUANT_TYPE_PER_TENSOR && type < P::QUANT_TYPE_MAX;
  return known ? kNames[static_cast<int>(type)] : "unknown";
}

Status CheckNotQuantised(const P& param) {
  COLLOPS_CHECK_ARG(param.quantType == P::QUANT_TYPE_UNQUANT, ERROR_INVALID_PARAM, kOp,
                    ": quantType ", static_cast<int>(param.quantType), " (",
                    NameOf(param.quantType),
                    ") asks for a quantised product, which is not supported: leave it at -1 ",
                    "(QUANT_TYPE_UNQUANT)");
  return Ok();
}

Status CheckGridReserved(const P::TwoDimTPInfo& info) {
  for (int i = 0; i < 3; ++i) {
    COLLOPS_CHECK_ARG(info.rsv[i] == 0, ERROR_INVALID_PARAM, kOp, ": twoDimTPInfo.rsv[", i,
                      "] is reserved, it must be 0, got ", static_cast<int>(info.rsv[i]));
  }
  return Ok();
}

// What ATB's mc2 takes is less than what runs it here.
Status CheckMc2(const P& param) {
  if (param.backend != "mc2") return Ok();
  constexpr const char* kElse = "; use another backend, such as \"hccl\"";
  COLLOPS_CHECK_ARG(!param.hasResidual, ERROR_INVALID_PARAM, kOp,
                    ": backend \"mc2\" does not support hasResidual", kElse);
  COLLOPS_CHECK_ARG(param.commMode == COMM_MULTI_THREAD, ERROR_INVALID_PARAM, kOp,
                    ": backend \"mc2\" supports only commMode 1 (COMM_MULTI_THREAD), got ",
                    static_cast<int>(param.commMode), kElse);
  COLLOPS_CHECK_ARG(param.quantType == P::QUANT_TYPE_UNQUANT, ERROR_INVALID_PARAM, kOp,
                    ": backend \"mc2\" does not support quantType, got ",
                    static_cast<int>(param.quantType));
  COLLOPS_CHECK_ARG(param.type == P::LINEAR_REDUCE_SCATTER, ERROR_INVALID_PARAM, kOp,
                    ": backend \"mc2\" supports only type 1 (LINEAR_REDUCE_SCATTER), got ",
                    static_cast<int>(param.type), kElse);
  return Ok();
}

}  // namespace

Status CheckParam(const P& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup(kOp, GroupOf(param), kAllNames));
  COLLOPS_RETURN_IF_ERROR(CheckGridReserved(param.twoDimTPInfo));
  COLLOPS_RETURN_IF_ERROR(CheckMc2(param));
  COLLOPS_RETURN_IF_ERROR(CheckType(param));
  COLLOPS_RETURN_IF_ERROR(CheckNotQuantised(param));
  COLLOPS_CHECK_ARG(!param.keepIntermediate || param.type == P::ALL_GATHER_LINEAR,
                    ERROR_INVALID_PARAM, kOp,
                    ": keepIntermediate needs type 2 (ALL_GATHER_LINEAR), got type ",
                    static_cast<int>(param.type), " (", Name(param.type), ")");
  return CheckDistributed(kOp, GroupOf(param));
}

const char* Name(LinearParallelParam::ParallelType type) {
  switch (type) {
    case LinearParallelParam::UNDEFINED:
      return "UNDEFINED";
    case LinearParallelParam::LINEAR_ALL_REDUCE:
      return "LINEAR_ALL_REDUCE";
    case LinearParallelParam::LINEAR_REDUCE_SCATTER:
      return "LINEAR_REDUCE_SCATTER";
    case LinearParallelParam::ALL_GATHER_LINEAR:
      return "ALL_GATHER_LINEAR";
    case LinearParallelParam::PURE_LINEAR:
      return "PURE_LINEAR";
    case LinearParallelParam::ALL_GATHER_LINEAR_REDUCE_SCATTER:
      return "ALL_GATHER_LINEAR_REDUCE_SCATTER";
    case LinearParallelParam::ALLTOALLVC_ALL_GATHER_GMM:
      return "ALLTOALLVC_ALL_GATHER_GMM";
    case LinearParallelParam::GMM_REDUCE_SCATTER_ALLTOALLVC:
      return "GMM_REDUCE_SCATTER_ALLTOALLVC";
    case LinearParallelParam::MAX:
      return "MAX";
  }
  return "MAX";
}

using TwoDimTPInfo = P::TwoDimTPInfo;
using MoeInfo = P::MoeInfo;

template <>
const StructFields<TwoDimTPInfo>& FieldsOf() {
  static const StructFields<TwoDimTPInfo> table = {
      "twoDimTPInfo",
      Field<&TwoDimTPInfo::agDim>("agDim"),
      Field<&TwoDimTPInfo::rsDim>("rsDim"),
      Field<&TwoDimTPInfo::innerDimIsAg>("innerDimIsAg"),
      Field<&TwoDimTPInfo::rsv>("rsv"),
  };
  return table;
}

template <>
const StructFields<MoeInfo>& FieldsOf() {
  static const StructFields<MoeInfo> table = {
      "moeInfo",
      Field<&MoeInfo::localExpertNums>("localExpertNums"),
      Field<&MoeInfo::epSize>("epSize"),
      Field<&MoeInfo::tpSize>("tpSize"),
  };
  return table;
}

bool operator==(const TwoDimTPInfo& a, const TwoDimTPInfo& b) {
  return SameFields(a, b);
}

bool operator==(const MoeInfo& a, const MoeInfo& b) {
  return SameFields(a, b);
}

// Found by Field, like those of json_value.h, through the namespace of the struct.
static void WriteJson(const TwoDimTPInfo& info, Json* to) {
  WriteObject(info, to);
}

static void WriteJson(const MoeInfo& info, Json* to) {
  WriteObject(info, to);
}

static Status ReadJson(const Json& json, const std::string& where, TwoDimTPInfo* info) {
  return ReadObject(json, where.c_str(), info);
}

static Status ReadJson(const Json& json, const std::string& where, MoeInfo* info) {
  return ReadObject(json, where.c_str(), info);
}

template <>
const StructFields<P>& FieldsOf() {
  static const StructFields<P> table = {
      "LinearParallelParam",
      Field<&P::transWeight>("transWeight"),
      RankFields<P>(),
      Field<&P::hasResidual>("hasResidual"),
      Field<&P::backend>("backend"),
      Field<&P::hcclComm>("hcclComm"),
      Field<&P::commMode>("commMode"),
      Field<&P::rankTableFile>("rankTableFile"),
      Field<&P::type>("type"),
      Field<&P::keepIntermediate>("keepIntermediate"),
      Field<&P::quantType>("quantType"),
      Field<&P::quantGroupSize>("quantGroupSize"),
      Field<&P::outDataType>("outDataType"),
      Field<&P::commDomain>("commDomain"),
      Field<&P::twoDimTPInfo>("twoDimTPInfo"),
      Field<&P::moeInfo>("moeInfo"),
      Field<&P::rsv>("rsv"),
      Field<&P::gatherRows>("gatherRows"),
      Field<&P::scatterRows>("scatterRows"),
  };
  return table;
}
template bool operator==(const P& a, const P& b);
template std::string ToJson(const P& param);
template Status FromJson(const std::string& text, P* param);

}  // namespace collops
