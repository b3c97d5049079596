#include "collops/operators/all_to_all_v/param.h"

#include <array>

#include "collops/operators/framework/param_check.h"
#include "collops/operators/json/struct_fields.h"

namespace collops {

namespace {

// A list of the struct and its name.
struct NamedList {
  const char* name;
  const std::vector<int64_t>& numbers;
};

std::array<NamedList, 4> ListsOf(const AllToAllVParam& param) {
  return {{{"sendCounts", param.sendCounts},
           {"sdispls", param.sdispls},
           {"recvCounts", param.recvCounts},
           {"rdispls", param.rdispls}}};
}

}  // namespace

template <>
const StructFields<AllToAllVParam>& FieldsOf() {
  using P = AllToAllVParam;
  static const StructFields<P> table(
      "AllToAllVParam", RankFields<P>(), Field<&P::sendCounts>("sendCounts"),
      Field<&P::sdispls>("sdispls"), Field<&P::recvCounts>("recvCounts"),
      Field<&P::rdispls>("rdispls"), CommunicatorFields<P>(), Field<&P::rsv>("rsv"));
  return table;
}
template bool operator==(const AllToAllVParam& a, const AllToAllVParam& b);
template std::string ToJson(const AllToAllVParam& param);
template Status FromJson(const std::string& text, AllToAllVParam* param);

Status CheckRanks(const AllToAllVParam& param, int /*rank*/, int rank_size) {
  for (const NamedList& list : ListsOf(param)) {
    COLLOPS_CHECK_ARG(list.numbers.size() == static_cast<size_t>(rank_size), ERROR_INVALID_PARAM,
                      "AllToAllV: ", list.name, " must have ", rank_size,
                      " numbers, one per rank, got ", list.numbers.size());
  }
  return Ok();
}

Status CheckParam(const AllToAllVParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("AllToAllV", GroupOf(param), kEngineNames));
  COLLOPS_RETURN_IF_ERROR(CheckDistributed("AllToAllV", GroupOf(param)));
  if (param.rankSize != 0) COLLOPS_RETURN_IF_ERROR(CheckRanks(param, param.rank, param.rankSize));
  for (const NamedList& list : ListsOf(param)) {
    for (size_t r = 0; r < list.numbers.size(); ++r) {
      COLLOPS_CHECK_ARG(list.numbers[r] >= 0, ERROR_INVALID_PARAM, "AllToAllV: ", list.name, "[", r,
                        "] must be >= 0, got ", list.numbers[r]);
    }
  }
  return Ok();
}

}  // namespace collops
