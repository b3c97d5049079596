#include "collops/operators/all_gather/param.h"

#include "collops/operators/framework/param_check.h"
#include "collops/operators/json/struct_fields.h"

namespace collops {

template <>
const StructFields<AllGatherParam>& FieldsOf() {
  using P = AllGatherParam;
  static const StructFields<P> table("AllGatherParam", RankFields<P>(), CommunicatorFields<P>(),
                                     Field<&P::rsv>("rsv"));
  return table;
}
template bool operator==(const AllGatherParam& a, const AllGatherParam& b);
template std::string ToJson(const AllGatherParam& param);
template Status FromJson(const std::string& text, AllGatherParam* param);

Status CheckParam(const AllGatherParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("AllGather", GroupOf(param), kLcclToo));
  return CheckDistributed("AllGather", GroupOf(param));
}

}  // namespace collops
