#include "operators/recv/param.h"

#include "operators/framework/param_check.h"
#include "operators/json/struct_fields.h"

namespace collops {

template <>
const StructFields<RecvParam>& FieldsOf() {
  using P = RecvParam;
  static const StructFields<P> table = {
      "RecvParam",
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
  return table;
}
template bool operator==(const RecvParam& a, const RecvParam& b);
template std::string ToJson(const RecvParam& param);
template Status FromJson(const std::string& text, RecvParam* param);

Status CheckParam(const RecvParam& param) {
  RETURN_IF_ERROR(CheckGroup("Recv", GroupOf(param), kEngineNames));
  RETURN_IF_ERROR(CheckDistributed("Recv", GroupOf(param)));
  return param.rankSize == 0 ? Ok() : CheckRanks(param, param.rank, param.rankSize);
}

Status CheckRanks(const RecvParam& param, int rank, int rank_size) {
  return CheckPeer("Recv", "srcRank", param.srcRank, rank, rank_size);
}

}  // namespace collops
