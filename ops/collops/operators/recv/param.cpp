#include "collops/operators/recv/param.h"

#include "collops/operators/framework/param_check.h"
#include "collops/operators/json/struct_fields.h"

namespace collops {

template <>
const StructFields<RecvParam>& FieldsOf() {
  using P = RecvParam;
  static const StructFields<P> table("RecvParam", RankFields<P>(), Field<&P::srcRank>("srcRank"),
                                     CommunicatorFields<P>(), Field<&P::rsv>("rsv"));
  return table;
}
template bool operator==(const RecvParam& a, const RecvParam& b);
template std::string ToJson(const RecvParam& param);
template Status FromJson(const std::string& text, RecvParam* param);

Status CheckParam(const RecvParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("Recv", GroupOf(param), kEngineNames));
  COLLOPS_RETURN_IF_ERROR(CheckDistributed("Recv", GroupOf(param)));
  return param.rankSize == 0 ? Ok() : CheckRanks(param, param.rank, param.rankSize);
}

Status CheckRanks(const RecvParam& param, int rank, int rank_size) {
  return CheckPeer("Recv", "srcRank", param.srcRank, rank, rank_size);
}

}  // namespace collops
