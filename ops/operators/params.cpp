#include "operators/params.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace collops {
namespace {

template <typename Param>
bool SameRsv(const Param& a, const Param& b) {
  return std::equal(std::begin(a.rsv), std::end(a.rsv), std::begin(b.rsv));
}

auto Fields(const AllGatherVParam& p) {
  return std::tie(p.rank, p.rankSize, p.rankRoot, p.backend, p.hcclComm, p.commMode,
                  p.rankTableFile, p.commDomain);
}

auto Fields(const ReduceScatterVParam& p) {
  return std::tie(p.rank, p.rankSize, p.rankRoot, p.sendCounts, p.sdispls, p.recvCount,
                  p.reduceType, p.hcclComm, p.commMode, p.backend, p.rankTableFile, p.commDomain);
}

}  // namespace

bool operator==(const AllGatherVParam& a, const AllGatherVParam& b) {
  return Fields(a) == Fields(b) && SameRsv(a, b);
}

bool operator==(const ReduceScatterVParam& a, const ReduceScatterVParam& b) {
  return Fields(a) == Fields(b) && SameRsv(a, b);
}

}  // namespace collops
