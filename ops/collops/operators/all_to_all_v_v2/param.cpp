#include "collops/operators/all_to_all_v_v2/param.h"

#include "collops/operators/framework/param_check.h"
#include "collops/operators/json/struct_fields.h"

namespace collops {

template <>
const StructFields<AllToAllVV2Param>& FieldsOf() {
  using P = AllToAllVV2Param;
  static const StructFields<P> table("AllToAllVV2Param", RankFields<P>(), CommunicatorFields<P>(),
                                     Field<&P::rsv>("rsv"));
  return table;
}
template bool operator==(const AllToAllVV2Param& a, const AllToAllVV2Param& b);
template std::string ToJson(const AllToAllVV2Param& param);
template Status FromJson(const std::string& text, AllToAllVV2Param* param);

Status CheckParam(const AllToAllVV2Param& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("AllToAllVV2", GroupOf(param), kEngineNames));
  return CheckDistributed("AllToAllVV2", GroupOf(param));
}

}  // namespace collops
