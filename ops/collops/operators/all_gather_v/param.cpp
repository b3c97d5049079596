#include "collops/operators/all_gather_v/param.h"

#include "collops/operators/framework/param_check.h"
#include "collops/operators/json/struct_fields.h"

namespace collops {

template <>
const StructFields<AllGatherVParam>& FieldsOf() {
  using P = AllGatherVParam;
  static const StructFields<P> table("AllGatherVParam", RankFields<P>(), CommunicatorFields<P>(),
                                     Field<&P::rsv>("rsv"));
  return table;
}
template bool operator==(const AllGatherVParam& a, const AllGatherVParam& b);
template std::string ToJson(const AllGatherVParam& param);
template Status FromJson(const std::string& text, AllGatherVParam* param);

Status CheckParam(const AllGatherVParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("AllGatherV", GroupOf(param), kEngineNames));
  return CheckDistributed("AllGatherV", GroupOf(param));
}

}  // namespace collops
