#include "collops/operators/all_reduce/param.h"

#include "collops/operators/framework/param_check.h"
#include "collops/operators/json/struct_fields.h"

namespace collops {

template <>
const StructFields<AllReduceParam>& FieldsOf() {
  using P = AllReduceParam;
  static const StructFields<P> table("AllReduceParam", RankFields<P>(),
                                     Field<&P::allReduceType>("allReduceType"),
                                     CommunicatorFields<P>(), Field<&P::quantType>("quantType"),
                                     Field<&P::outDataType>("outDataType"), Field<&P::rsv>("rsv"));
  return table;
}
template bool operator==(const AllReduceParam& a, const AllReduceParam& b);
template std::string ToJson(const AllReduceParam& param);
template Status FromJson(const std::string& text, AllReduceParam* param);

Status CheckParam(const AllReduceParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("AllReduce", GroupOf(param), kLcclToo));
  COLLOPS_RETURN_IF_ERROR(
      CheckReduceType("AllReduce", "allReduceType", param.allReduceType, param.backend));
  COLLOPS_CHECK_ARG(
      param.quantType == AllReduceParam::QUANT_TYPE_UNQUANT, ERROR_INVALID_PARAM,
      "AllReduce: quantType ", static_cast<int>(param.quantType),
      " asks for a quantised AllReduce, which is not supported: leave quantType at 0 ",
      "(QUANT_TYPE_UNQUANT) and outDataType out");
  return CheckDistributed("AllReduce", GroupOf(param));
}

}  // namespace collops
