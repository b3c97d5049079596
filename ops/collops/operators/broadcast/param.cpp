#include "collops/operators/broadcast/param.h"

#include "collops/operators/framework/param_check.h"
#include "collops/operators/json/struct_fields.h"

namespace collops {

template <>
const StructFields<BroadcastParam>& FieldsOf() {
  using P = BroadcastParam;
  static const StructFields<P> table("BroadcastParam", RankFields<P>(),
                                     CommunicatorFields<P>(/*backend_first=*/false),
                                     Field<&P::rsv>("rsv"));
  return table;
}
template bool operator==(const BroadcastParam& a, const BroadcastParam& b);
template std::string ToJson(const BroadcastParam& param);
template Status FromJson(const std::string& text, BroadcastParam* param);

Status CheckParam(const BroadcastParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("Broadcast", GroupOf(param), kLcclToo));
  return CheckDistributed("Broadcast", GroupOf(param));
}

}  // namespace collops
