#include "operators/exchange_params.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "operators/json_fields.h"

namespace collops {
namespace {

// What both have.
template <typename Param>
bool SameGroup(const Param& a, const Param& b) {
  const auto fields = [](const Param& p) {
    return std::tie(p.rank, p.rankSize, p.rankRoot, p.backend, p.hcclComm, p.commMode,
                    p.rankTableFile, p.commDomain);
  };
  return fields(a) == fields(b) &&
         std::equal(std::begin(a.rsv), std::end(a.rsv), std::begin(b.rsv));
}

auto Lists(const AllToAllVParam& p) {
  return std::tie(p.sendCounts, p.sdispls, p.recvCounts, p.rdispls);
}

const std::vector<JsonField<AllToAllVParam>>& AllToAllVFields() {
  using P = AllToAllVParam;
  static const std::vector<JsonField<P>> fields = {
      Field<&P::rank>("rank"),
      Field<&P::rankSize>("rankSize"),
      Field<&P::rankRoot>("rankRoot"),
      Field<&P::sendCounts>("sendCounts"),
      Field<&P::sdispls>("sdispls"),
      Field<&P::recvCounts>("recvCounts"),
      Field<&P::rdispls>("rdispls"),
      Field<&P::backend>("backend"),
      Field<&P::hcclComm>("hcclComm"),
      Field<&P::commMode>("commMode"),
      Field<&P::rankTableFile>("rankTableFile"),
      Field<&P::commDomain>("commDomain"),
      Field<&P::rsv>("rsv"),
  };
  return fields;
}

const std::vector<JsonField<AllToAllVV2Param>>& AllToAllVV2Fields() {
  using P = AllToAllVV2Param;
  static const std::vector<JsonField<P>> fields = {
      Field<&P::rank>("rank"),
      Field<&P::rankSize>("rankSize"),
      Field<&P::rankRoot>("rankRoot"),
      Field<&P::backend>("backend"),
      Field<&P::hcclComm>("hcclComm"),
      Field<&P::commMode>("commMode"),
      Field<&P::rankTableFile>("rankTableFile"),
      Field<&P::commDomain>("commDomain"),
      Field<&P::rsv>("rsv"),
  };
  return fields;
}

}  // namespace

bool operator==(const AllToAllVParam& a, const AllToAllVParam& b) {
  return SameGroup(a, b) && Lists(a) == Lists(b);
}

bool operator==(const AllToAllVV2Param& a, const AllToAllVV2Param& b) {
  return SameGroup(a, b);
}

std::string ToJson(const AllToAllVParam& param) {
  return WriteStruct(param, AllToAllVFields());
}

std::string ToJson(const AllToAllVV2Param& param) {
  return WriteStruct(param, AllToAllVV2Fields());
}

Status FromJson(const std::string& text, AllToAllVParam* param) {
  return ReadStruct(text, "AllToAllVParam", AllToAllVFields(), param);
}

Status FromJson(const std::string& text, AllToAllVV2Param* param) {
  return ReadStruct(text, "AllToAllVV2Param", AllToAllVV2Fields(), param);
}

}  // namespace collops
