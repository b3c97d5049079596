#include "collops/operators/reduce_scatter/param.h"

#include "collops/operators/framework/param_check.h"
#include "collops/operators/json/struct_fields.h"

namespace collops {

template <>
const StructFields<ReduceScatterParam>& FieldsOf() {
  using P = ReduceScatterParam;
  static const StructFields<P> table(
      "ReduceScatterParam", RankFields<P>(), Field<&P::reduceType>("reduceType"),
      CommunicatorFields<P>(/*backend_first=*/false), Field<&P::rsv>("rsv"));
  return table;
}
template bool operator==(const ReduceScatterParam& a, const ReduceScatterParam& b);
template std::string ToJson(const ReduceScatterParam& param);
template Status FromJson(const std::string& text, ReduceScatterParam* param);

Status CheckParam(const ReduceScatterParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("ReduceScatter", GroupOf(param), kLcclToo));
  COLLOPS_RETURN_IF_ERROR(
      CheckReduceType("ReduceScatter", "reduceType", param.reduceType, param.backend));
  return CheckDistributed("ReduceScatter", GroupOf(param));
}

}  // namespace collops
