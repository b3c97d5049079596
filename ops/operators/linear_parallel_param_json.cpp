#include "operators/json_fields.h"
#include "operators/linear_parallel_param.h"

namespace collops {
namespace {

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
  using P = LinearParallelParam;
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
