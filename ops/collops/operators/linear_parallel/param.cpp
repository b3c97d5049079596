#include "collops/operators/framework/param_check.h"
#include "collops/operators/framework/struct_fields.h"

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
  COLLOPS_RETURN_IF_ERROR(CheckGroup(kOp, param, kAllNames));
  const uint8_t (&grid_rsv)[3] = param.twoDimTPInfo.rsv;
  COLLOPS_RETURN_IF_ERROR(CheckReserved(kOp, "twoDimTPInfo.rsv", grid_rsv, sizeof(grid_rsv)));
  COLLOPS_RETURN_IF_ERROR(CheckMc2(param));
  COLLOPS_RETURN_IF_ERROR(CheckType(param));
  COLLOPS_RETURN_IF_ERROR(CheckNotQuantised(param));
  COLLOPS_CHECK_ARG(!param.keepIntermediate || param.type == P::ALL_GATHER_LINEAR,
                    ERROR_INVALID_PARAM, kOp,
                    ": keepIntermediate needs type 2 (ALL_GATHER_LINEAR), got type ",
                    static_cast<int>(param.type), " (", Name(param.type), ")");
  return CheckDistributed(kOp, param);
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
const FieldTable& FieldsOf<TwoDimTPInfo>() {
  using Info = TwoDimTPInfo;
  static const auto fields = StructFields<Info>("twoDimTPInfo")
                                 .Add<&Info::agDim>("agDim")
                                 .Add<&Info::rsDim>("rsDim")
                                 .Add<&Info::innerDimIsAg>("innerDimIsAg")
                                 .Add<&Info::rsv>("rsv");
  return fields.table;
}

template <>
const FieldTable& FieldsOf<MoeInfo>() {
  static const auto fields = StructFields<MoeInfo>("moeInfo")
                                 .Add<&MoeInfo::localExpertNums>("localExpertNums")
                                 .Add<&MoeInfo::epSize>("epSize")
                                 .Add<&MoeInfo::tpSize>("tpSize");
  return fields.table;
}

bool operator==(const TwoDimTPInfo& a, const TwoDimTPInfo& b) {
  return SameFields(a, b);
}

bool operator==(const MoeInfo& a, const MoeInfo& b) {
  return SameFields(a, b);
}

// Found by Field, like those of struct_fields.h, through the namespace of the struct.
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
const FieldTable& FieldsOf<P>() {
  static const auto fields = StructFields<P>("LinearParallelParam")
                                 .Add<&P::transWeight>("transWeight")
                                 .AddRank()
                                 .Add<&P::hasResidual>("hasResidual")
                                 .Add<&P::backend>("backend")
                                 .Add<&P::hcclComm>("hcclComm")
                                 .Add<&P::commMode>("commMode")
                                 .Add<&P::rankTableFile>("rankTableFile")
                                 .Add<&P::type>("type")
                                 .Add<&P::keepIntermediate>("keepIntermediate")
                                 .Add<&P::quantType>("quantType")
                                 .Add<&P::quantGroupSize>("quantGroupSize")
                                 .Add<&P::outDataType>("outDataType")
                                 .Add<&P::commDomain>("commDomain")
                                 .Add<&P::twoDimTPInfo>("twoDimTPInfo")
                                 .Add<&P::moeInfo>("moeInfo")
                                 .Add<&P::rsv>("rsv")
                                 .Add<&P::gatherRows>("gatherRows")
                                 .Add<&P::scatterRows>("scatterRows");
  return fields.table;
}

}  // namespace collops
