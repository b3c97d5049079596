#include "operators/even_params.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace collops {
namespace {

// What all of them have.
template <typename Param>
bool SameGroup(const Param& a, const Param& b) {
  const auto fields = [](const Param& p) {
    return std::tie(p.rank, p.rankSize, p.rankRoot, p.backend, p.hcclComm, p.commMode,
                    p.rankTableFile, p.commDomain);
  };
  return fields(a) == fields(b) &&
         std::equal(std::begin(a.rsv), std::end(a.rsv), std::begin(b.rsv));
}

}  // namespace

bool operator==(const AllGatherParam& a, const AllGatherParam& b) {
  return SameGroup(a, b);
}

bool operator==(const ReduceScatterParam& a, const ReduceScatterParam& b) {
  return SameGroup(a, b) && a.reduceType == b.reduceType;
}

bool operator==(const AllReduceParam& a, const AllReduceParam& b) {
  return SameGroup(a, b) && a.allReduceType == b.allReduceType && a.quantType == b.quantType &&
         a.outDataType == b.outDataType;
}

bool operator==(const BroadcastParam& a, const BroadcastParam& b) {
  return SameGroup(a, b);
}

bool operator==(const AllToAllParam& a, const AllToAllParam& b) {
  return SameGroup(a, b) && a.transpose == b.transpose;
}

}  // namespace collops
