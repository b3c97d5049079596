#include "collops/operators/reduce_scatter_v/param.h"

#include "collops/operators/framework/param_check.h"
#include "collops/operators/json/struct_fields.h"

namespace collops {

template <>
const StructFields<ReduceScatterVParam>& FieldsOf() {
  using P = ReduceScatterVParam;
  static const StructFields<P> table(
      "ReduceScatterVParam", RankFields<P>(), Field<&P::sendCounts>("sendCounts"),
      Field<&P::sdispls>("sdispls"), Field<&P::recvCount>("recvCount"),
      Field<&P::reduceType>("reduceType"), CommunicatorFields<P>(/*backend_first=*/false),
      Field<&P::rsv>("rsv"));
  return table;
}
template bool operator==(const ReduceScatterVParam& a, const ReduceScatterVParam& b);
template std::string ToJson(const ReduceScatterVParam& param);
template Status FromJson(const std::string& text, ReduceScatterVParam* param);

Status CheckParam(const ReduceScatterVParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("ReduceScatterV", GroupOf(param), kEngineNames));
  const std::string& type = param.reduceType;
  COLLOPS_CHECK_ARG(type == "sum" || type == "max" || type == "min", ERROR_INVALID_PARAM,
                    "ReduceScatterV: reduceType must be \"sum\", \"max\" or \"min\", got \"", type,
                    "\"");
  return CheckDistributed("ReduceScatterV", GroupOf(param));
}

}  // namespace collops
