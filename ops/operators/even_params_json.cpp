#include "operators/even_params.h"
#include "operators/json_fields.h"

namespace collops {
namespace {

const std::vector<JsonField<AllGatherParam>>& AllGatherFields() {
  using P = AllGatherParam;
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

const std::vector<JsonField<ReduceScatterParam>>& ReduceScatterFields() {
  using P = ReduceScatterParam;
  static const std::vector<JsonField<P>> fields = {
      Field<&P::rank>("rank"),
      Field<&P::rankSize>("rankSize"),
      Field<&P::rankRoot>("rankRoot"),
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

const std::vector<JsonField<AllReduceParam>>& AllReduceFields() {
  using P = AllReduceParam;
  static const std::vector<JsonField<P>> fields = {
      Field<&P::rank>("rank"),
      Field<&P::rankSize>("rankSize"),
      Field<&P::rankRoot>("rankRoot"),
      Field<&P::allReduceType>("allReduceType"),
      Field<&P::backend>("backend"),
      Field<&P::hcclComm>("hcclComm"),
      Field<&P::commMode>("commMode"),
      Field<&P::rankTableFile>("rankTableFile"),
      Field<&P::commDomain>("commDomain"),
      Field<&P::quantType>("quantType"),
      Field<&P::outDataType>("outDataType"),
      Field<&P::rsv>("rsv"),
  };
  return fields;
}

const std::vector<JsonField<BroadcastParam>>& BroadcastFields() {
  using P = BroadcastParam;
  static const std::vector<JsonField<P>> fields = {
      Field<&P::rank>("rank"),
      Field<&P::rankSize>("rankSize"),
      Field<&P::rankRoot>("rankRoot"),
      Field<&P::hcclComm>("hcclComm"),
      Field<&P::commMode>("commMode"),
      Field<&P::backend>("backend"),
      Field<&P::rankTableFile>("rankTableFile"),
      Field<&P::commDomain>("commDomain"),
      Field<&P::rsv>("rsv"),
  };
  return fields;
}

const std::vector<JsonField<AllToAllParam>>& AllToAllFields() {
  using P = AllToAllParam;
  static const std::vector<JsonField<P>> fields = {
      Field<&P::rank>("rank"),
      Field<&P::rankSize>("rankSize"),
      Field<&P::rankRoot>("rankRoot"),
      Field<&P::backend>("backend"),
      Field<&P::hcclComm>("hcclComm"),
      Field<&P::commMode>("commMode"),
      Field<&P::rankTableFile>("rankTableFile"),
      Field<&P::commDomain>("commDomain"),
      Field<&P::transpose>("transpose"),
      Field<&P::rsv>("rsv"),
  };
  return fields;
}

}  // namespace

std::string ToJson(const AllGatherParam& param) {
  return WriteStruct(param, AllGatherFields());
}

std::string ToJson(const ReduceScatterParam& param) {
  return WriteStruct(param, ReduceScatterFields());
}

std::string ToJson(const AllReduceParam& param) {
  return WriteStruct(param, AllReduceFields());
}

std::string ToJson(const BroadcastParam& param) {
  return WriteStruct(param, BroadcastFields());
}

std::string ToJson(const AllToAllParam& param) {
  return WriteStruct(param, AllToAllFields());
}

Status FromJson(const std::string& text, AllGatherParam* param) {
  return ReadStruct(text, "AllGatherParam", AllGatherFields(), param);
}

Status FromJson(const std::string& text, ReduceScatterParam* param) {
  return ReadStruct(text, "ReduceScatterParam", ReduceScatterFields(), param);
}

Status FromJson(const std::string& text, AllReduceParam* param) {
  return ReadStruct(text, "AllReduceParam", AllReduceFields(), param);
}

Status FromJson(const std::string& text, BroadcastParam* param) {
  return ReadStruct(text, "BroadcastParam", BroadcastFields(), param);
}

Status FromJson(const std::string& text, AllToAllParam* param) {
  return ReadStruct(text, "AllToAllParam", AllToAllFields(), param);
}

}  // namespace collops
