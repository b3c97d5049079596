#include "operators/linear_parallel/param.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "operators/json_fields.h"

namespace collops {
namespace {

constexpr const char* kOp = "LinearParallel";

using P = LinearParallelParam;

// Experts and quantisation are known by ATB's names and do not exist here.
Status CheckType(const P& param) {
  const int type = static_cast<int>(param.type);
  CHECK_ARG(
      param.type != P::ALLTOALLVC_ALL_GATHER_GMM && param.type != P::GMM_REDUCE_SCATTER_ALLTOALLVC,
      ERROR_INVALID_PARAM, kOp, ": type ", type, " (", Name(param.type),
      ") multiplies for a mixture of experts, which is not supported: use types 0 to 4");
  CHECK_ARG(type >= P::LINEAR_ALL_REDUCE && type <= P::ALL_GATHER_LINEAR_REDUCE_SCATTER,
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
  CHECK_ARG(param.quantType == P::QUANT_TYPE_UNQUANT, ERROR_INVALID_PARAM, kOp, ": quantType ",
            static_cast<int>(param.quantType), " (", NameOf(param.quantType),
            ") asks for a quantised product, which is not supported: leave it at -1 ",
            "(QUANT_TYPE_UNQUANT)");
  return Ok();
}

Status CheckGridReserved(const P::TwoDimTPInfo& info) {
  for (int i = 0; i < 3; ++i) {
    CHECK_ARG(info.rsv[i] == 0, ERROR_INVALID_PARAM, kOp, ": twoDimTPInfo.rsv[", i,
              "] is reserved, it must be 0, got ", static_cast<int>(info.rsv[i]));
  }
  return Ok();
}

// What ATB's mc2 takes is less than what runs it here.
Status CheckMc2(const P& param) {
  if (param.backend != "mc2") return Ok();
  constexpr const char* kElse = "; another backend, such as \"hccl\", does";
  CHECK_ARG(!param.hasResidual, ERROR_INVALID_PARAM, kOp, ": backend \"mc2\" takes no hasResidual",
            kElse);
  CHECK_ARG(param.commMode == COMM_MULTI_THREAD, ERROR_INVALID_PARAM, kOp,
            ": backend \"mc2\" takes no commMode but 1 (COMM_MULTI_THREAD), got ",
            static_cast<int>(param.commMode), kElse);
  CHECK_ARG(param.quantType == P::QUANT_TYPE_UNQUANT, ERROR_INVALID_PARAM, kOp,
            ": backend \"mc2\" takes no quantType, got ", static_cast<int>(param.quantType));
  CHECK_ARG(param.type == P::LINEAR_REDUCE_SCATTER, ERROR_INVALID_PARAM, kOp,
            ": backend \"mc2\" takes no type but 1 (LINEAR_REDUCE_SCATTER), got ",
            static_cast<int>(param.type), kElse);
  return Ok();
}

template <typename Struct>
bool SameRsv(const Struct& a, const Struct& b) {
  return std::equal(std::begin(a.rsv), std::end(a.rsv), std::begin(b.rsv));
}

auto Fields(const LinearParallelParam& p) {
  return std::tie(p.transWeight, p.rank, p.rankSize, p.rankRoot, p.hasResidual, p.backend,
                  p.hcclComm, p.commMode, p.rankTableFile, p.type, p.keepIntermediate, p.quantType,
                  p.quantGroupSize, p.outDataType, p.commDomain, p.twoDimTPInfo, p.moeInfo,
                  p.gatherRows, p.scatterRows);
}

using TwoDimTPInfo = LinearParallelParam::TwoDimTPInfo;
using MoeInfo = LinearParallelParam::MoeInfo;

const std::vector<JsonField<TwoDimTPInfo>>& TwoDimFields() {
  using I = TwoDimTPInfo;
  static const std::vector<JsonField<I>> fields = {
      Field<&I::agDim>("agDim"),
      Field<&I::rsDim>("rsDim"),
      Field<&I::innerDimIsAg>("innerDimIsAg"),
      Field<&I::rsv>("rsv"),
  };
  return fields;
}

const std::vector<JsonField<MoeInfo>>& MoeFields() {
  using I = MoeInfo;
  static const std::vector<JsonField<I>> fields = {
      Field<&I::localExpertNums>("localExpertNums"),
      Field<&I::epSize>("epSize"),
      Field<&I::tpSize>("tpSize"),
  };
  return fields;
}

}  // namespace

Status CheckLinearKind(const P& param) {
  RETURN_IF_ERROR(CheckGridReserved(param.twoDimTPInfo));
  RETURN_IF_ERROR(CheckMc2(param));
  RETURN_IF_ERROR(CheckType(param));
  RETURN_IF_ERROR(CheckNotQuantised(param));
  CHECK_ARG(!param.keepIntermediate || param.type == P::ALL_GATHER_LINEAR, ERROR_INVALID_PARAM, kOp,
            ": keepIntermediate needs type 2 (ALL_GATHER_LINEAR), got type ",
            static_cast<int>(param.type), " (", Name(param.type), ")");
  return Ok();
}

bool operator==(const LinearParallelParam::TwoDimTPInfo& a,
                const LinearParallelParam::TwoDimTPInfo& b) {
  return a.agDim == b.agDim && a.rsDim == b.rsDim && a.innerDimIsAg == b.innerDimIsAg &&
         SameRsv(a, b);
}

bool operator==(const LinearParallelParam::MoeInfo& a, const LinearParallelParam::MoeInfo& b) {
  return a.localExpertNums == b.localExpertNums && a.epSize == b.epSize && a.tpSize == b.tpSize;
}

bool operator==(const LinearParallelParam& a, const LinearParallelParam& b) {
  return Fields(a) == Fields(b) && SameRsv(a, b);
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

// Found by Field, like those of json_value.h, through the namespace of the struct.
static Json WriteJson(const TwoDimTPInfo& info) {
  return WriteObject(info, TwoDimFields());
}

static Json WriteJson(const MoeInfo& info) {
  return WriteObject(info, MoeFields());
}

static Status ReadJson(const Json& json, const std::string& where, TwoDimTPInfo* info) {
  return ReadObject(json, where.c_str(), TwoDimFields(), info);
}

static Status ReadJson(const Json& json, const std::string& where, MoeInfo* info) {
  return ReadObject(json, where.c_str(), MoeFields(), info);
}

namespace {

const std::vector<JsonField<LinearParallelParam>>& LinearParallelFields() {
  static const std::vector<JsonField<P>> fields = {
      Field<&P::transWeight>("transWeight"),
      Field<&P::rank>("rank"),
      Field<&P::rankSize>("rankSize"),
      Field<&P::rankRoot>("rankRoot"),
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
  return fields;
}

}  // namespace

std::string ToJson(const LinearParallelParam& param) {
  return WriteStruct(param, LinearParallelFields());
}

Status FromJson(const std::string& text, LinearParallelParam* param) {
  return ReadStruct(text, "LinearParallelParam", LinearParallelFields(), param);
}

}  // namespace collops
