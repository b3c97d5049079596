#include "operators/linear_parallel_param.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace collops {
namespace {

template <typename Struct>
bool SameRsv(const Struct& a, const Struct& b) {
  return std::equal(std::begin(a.rsv), std::end(a.rsv), std::begin(b.rsv));
}

auto Fields(const LinearParallelParam& p) {
  return std::tie(p.transWeight, p.rank, p.rankSize, p.rankRoot, p.hasResidual, p.backend,
                  p.hcclComm, p.commMode, p.rankTableFile, p.type, p.keepIntermediate, p.quantType,
                  p.quantGroupSize, p.outDataType, p.commDomain, p.twoDimTPInfo, p.moeInfo,
                  p.gatherRows, p.scatterRows);
}

}  // namespace

bool operator==(const LinearParallelParam::TwoDimTPInfo& a,
                const LinearParallelParam::TwoDimTPInfo& b) {
  return a.agDim == b.agDim && a.rsDim == b.rsDim && a.innerDimIsAg == b.innerDimIsAg &&
         SameRsv(a, b);
}

bool operator==(const LinearParallelParam::MoeInfo& a, const LinearParallelParam::MoeInfo& b) {
  return a.localExpertNums == b.localExpertNums && a.epSize == b.epSize && a.tpSize == b.tpSize;
}

bool operator==(const LinearParallelParam& a, const LinearParallelParam& b) {
  return Fields(a) == Fields(b) && SameRsv(a, b);
}

const char* Name(LinearParallelParam::ParallelType type) {
  switch (type) {
    case LinearParallelParam::UNDEFINED:
      return "UNDEFINED";
    case LinearParallelParam::LINEAR_ALL_REDUCE:
      return "LINEAR_ALL_REDUCE";
    case LinearParallelParam::LINEAR_REDUCE_SCATTER:
      return "LINEAR_REDUCE_SCATTER";
    case LinearParallelParam::ALL_GATHER_LINEAR:
      return "ALL_GATHER_LINEAR";
    case LinearParallelParam::PURE_LINEAR:
      return "PURE_LINEAR";
    case LinearParallelParam::ALL_GATHER_LINEAR_REDUCE_SCATTER:
      return "ALL_GATHER_LINEAR_REDUCE_SCATTER";
    case LinearParallelParam::ALLTOALLVC_ALL_GATHER_GMM:
      return "ALLTOALLVC_ALL_GATHER_GMM";
    case LinearParallelParam::GMM_REDUCE_SCATTER_ALLTOALLVC:
      return "GMM_REDUCE_SCATTER_ALLTOALLVC";
    case LinearParallelParam::MAX:
      return "MAX";
  }
  return "MAX";
}

}  // namespace collops
