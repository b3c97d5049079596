#include "operators/message_params.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "operators/json_fields.h"

namespace collops {
namespace {

template <typename Param>
bool SameGroup(const Param& a, const Param& b) {
  const auto fields = [](const Param& p) {
    return std::tie(p.rank, p.rankSize, p.rankRoot, p.backend, p.hcclComm, p.commMode,
                    p.rankTableFile, p.commDomain);
  };
  return fields(a) == fields(b) &&
         std::equal(std::begin(a.rsv), std::end(a.rsv), std::begin(b.rsv));
}

const std::vector<JsonField<SendParam>>& SendFields() {
  using P = SendParam;
  static const std::vector<JsonField<P>> fields = {
      Field<&P::rank>("rank"),
      Field<&P::rankSize>("rankSize"),
      Field<&P::rankRoot>("rankRoot"),
      Field<&P::destRank>("destRank"),
      Field<&P::backend>("backend"),
      Field<&P::hcclComm>("hcclComm"),
      Field<&P::commMode>("commMode"),
      Field<&P::rankTableFile>("rankTableFile"),
      Field<&P::commDomain>("commDomain"),
      Field<&P::rsv>("rsv"),
  };
  return fields;
}

const std::vector<JsonField<RecvParam>>& RecvFields() {
  using P = RecvParam;
  static const std::vector<JsonField<P>> fields = {
      Field<&P::rank>("rank"),
      Field<&P::rankSize>("rankSize"),
      Field<&P::rankRoot>("rankRoot"),
      Field<&P::srcRank>("srcRank"),
      Field<&P::backend>("backend"),
      Field<&P::hcclComm>("hcclComm"),
      Field<&P::commMode>("commMode"),
      Field<&P::rankTableFile>("rankTableFile"),
      Field<&P::commDomain>("commDomain"),
      Field<&P::rsv>("rsv"),
  };
  return fields;
}

Status CheckPeer(const char* op, const char* field, int64_t peer, int rank, int rank_size) {
  CHECK_ARG(peer < rank_size, ERROR_INVALID_PARAM, op, ": ", field, " must be in [0, ", rank_size,
            "), got ", peer);
  CHECK_ARG(peer != rank, ERROR_INVALID_PARAM, op, ": ", field, " ", peer,
            " is this rank itself: name another one");
  return Ok();
}

}  // namespace

bool operator==(const SendParam& a, const SendParam& b) {
  return SameGroup(a, b) && a.destRank == b.destRank;
}

bool operator==(const RecvParam& a, const RecvParam& b) {
  return SameGroup(a, b) && a.srcRank == b.srcRank;
}

std::string ToJson(const SendParam& param) {
  return WriteStruct(param, SendFields());
}

std::string ToJson(const RecvParam& param) {
  return WriteStruct(param, RecvFields());
}

Status FromJson(const std::string& text, SendParam* param) {
  return ReadStruct(text, "SendParam", SendFields(), param);
}

Status FromJson(const std::string& text, RecvParam* param) {
  return ReadStruct(text, "RecvParam", RecvFields(), param);
}

Status CheckPeer(const SendParam& param, int rank, int rank_size) {
  return CheckPeer("Send", "destRank", param.destRank, rank, rank_size);
}

Status CheckPeer(const RecvParam& param, int rank, int rank_size) {
  return CheckPeer("Recv", "srcRank", param.srcRank, rank, rank_size);
}

}  // namespace collops
