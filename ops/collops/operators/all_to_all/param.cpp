#include "collops/operators/all_to_all/param.h"

#include "collops/operators/framework/param_check.h"
#include "collops/operators/json/struct_fields.h"

namespace collops {

template <>
const StructFields<AllToAllParam>& FieldsOf() {
  using P = AllToAllParam;
  static const StructFields<P> table("AllToAllParam", RankFields<P>(), CommunicatorFields<P>(),
                                     Field<&P::transpose>("transpose"), Field<&P::rsv>("rsv"));
  return table;
}
template bool operator==(const AllToAllParam& a, const AllToAllParam& b);
template std::string ToJson(const AllToAllParam& param);
template Status FromJson(const std::string& text, AllToAllParam* param);

Status CheckParam(const AllToAllParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("AllToAll", GroupOf(param), kLcclToo));
  COLLOPS_CHECK_ARG(!param.transpose || param.backend != "hccl", ERROR_INVALID_PARAM,
                    "AllToAll: transpose does not exist on backend \"hccl\": use \"lccl\"");
  return CheckDistributed("AllToAll", GroupOf(param));
}

}  // namespace collops
