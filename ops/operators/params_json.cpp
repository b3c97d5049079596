#include "operators/json_fields.h"
#include "operators/params.h"

namespace collops {
namespace {

const std::vector<JsonField<AllGatherVParam>>& AllGatherVFields() {
  using P = AllGatherVParam;
  static const std::vector<JsonField<P>> fields = {
      Field<&P::rank>("rank"),
      Field<&P::rankSize>("rankSize"),
      Field<&P::rankRoot>("rankRoot"),
      Field<&P::backend>("backend"),
      Field<&P::hcclComm>("hcclComm"),
      Field<&P::commMode>("commMode"),
      Field<&P::rankTableFile>("rankTableFile"),
      Field<&P::commDomain>("commDomain"),
      Field<&P::rsv>("rsv"),
  };
  return fields;
}

const std::vector<JsonField<ReduceScatterVParam>>& ReduceScatterVFields() {
  using P = ReduceScatterVParam;
  static const std::vector<JsonField<P>> fields = {
      Field<&P::rank>("rank"),
      Field<&P::rankSize>("rankSize"),
      Field<&P::rankRoot>("rankRoot"),
      Field<&P::sendCounts>("sendCounts"),
      Field<&P::sdispls>("sdispls"),
      Field<&P::recvCount>("recvCount"),
      Field<&P::reduceType>("reduceType"),
      Field<&P::hcclComm>("hcclComm"),
      Field<&P::commMode>("commMode"),
      Field<&P::backend>("backend"),
      Field<&P::rankTableFile>("rankTableFile"),
      Field<&P::commDomain>("commDomain"),
      Field<&P::rsv>("rsv"),
  };
  return fields;
}

}  // namespace

std::string ToJson(const AllGatherVParam& param) {
  return WriteStruct(param, AllGatherVFields());
}

std::string ToJson(const ReduceScatterVParam& param) {
  return WriteStruct(param, ReduceScatterVFields());
}

Status FromJson(const std::string& text, AllGatherVParam* param) {
  return ReadStruct(text, "AllGatherVParam", AllGatherVFields(), param);
}

Status FromJson(const std::string& text, ReduceScatterVParam* param) {
  return ReadStruct(text, "ReduceScatterVParam", ReduceScatterVFields(), param);
}

}  // namespace collops
