#include "collops/operators/send/param.h"

#include "collops/operators/framework/param_check.h"
#include "collops/operators/json/struct_fields.h"

namespace collops {

template <>
const StructFields<SendParam>& FieldsOf() {
  using P = SendParam;
  static const StructFields<P> table("SendParam", RankFields<P>(), Field<&P::destRank>("destRank"),
                                     CommunicatorFields<P>(), Field<&P::rsv>("rsv"));
  return table;
}
template bool operator==(const SendParam& a, const SendParam& b);
template std::string ToJson(const SendParam& param);
template Status FromJson(const std::string& text, SendParam* param);

Status CheckParam(const SendParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("Send", GroupOf(param), kEngineNames));
  COLLOPS_RETURN_IF_ERROR(CheckDistributed("Send", GroupOf(param)));
  return param.rankSize == 0 ? Ok() : CheckRanks(param, param.rank, param.rankSize);
}

Status CheckRanks(const SendParam& param, int rank, int rank_size) {
  return CheckPeer("Send", "destRank", param.destRank, rank, rank_size);
}

}  // namespace collops
