#pragma once

#include <vector>

#include "collops/core/dtype.h"
#include "collops/operators/framework/param.h"

namespace [[gnu::visibility("default")]] collops {

// The two lists at the end are not in ATB's struct.
struct LinearParallelParam {
  // The collectives around the product.
  enum ParallelType : int {
    UNDEFINED = -1,
    LINEAR_ALL_REDUCE = 0,
    LINEAR_REDUCE_SCATTER = 1,
    ALL_GATHER_LINEAR = 2,
    PURE_LINEAR = 3,
    ALL_GATHER_LINEAR_REDUCE_SCATTER = 4,
    ALLTOALLVC_ALL_GATHER_GMM = 5,
    GMM_REDUCE_SCATTER_ALLTOALLVC = 6,
    MAX = 7,
  };

  enum QuantType : int {
    QUANT_TYPE_UNDEFINED = -1,
    QUANT_TYPE_UNQUANT = -1,
    QUANT_TYPE_PER_TENSOR = 0,
    QUANT_TYPE_PER_CHANNEL = 1,
    QUANT_TYPE_PER_GROUP = 2,
    QUANT_TYPE_PER_TOKEN = 3,
    QUANT_TYPE_MAX = 4,
  };

  // The grid of ALL_GATHER_LINEAR_REDUCE_SCATTER: agDim * rsDim ranks.
  struct TwoDimTPInfo {
    uint16_t agDim = 0;
    uint16_t rsDim = 0;
    uint8_t innerDimIsAg = 1;  // which axis has neighbouring ranks
    uint8_t rsv[3] = {};
  };

  // Read by the two types with experts alone, which are refused.
  struct MoeInfo {
    int16_t localExpertNums = 1;
    int8_t epSize = 1;
    int8_t tpSize = 1;
  };

  bool transWeight = true;  // the weight is [n, k], else [k, n]
  int rank = 0;
  int rankSize = 0;
  int rankRoot = 0;
  bool hasResidual = false;
  std::string backend = "hccl";
  void* hcclComm = nullptr;
  CommMode commMode = COMM_MULTI_PROCESS;
  std::string rankTableFile;
  ParallelType type = LINEAR_ALL_REDUCE;
  bool keepIntermediate = false;
  QuantType quantType = QUANT_TYPE_UNQUANT;
  int32_t quantGroupSize = 0;
  DType outDataType = DType::kUndefined;
  std::string commDomain;
  TwoDimTPInfo twoDimTPInfo;
  MoeInfo moeInfo;
  uint8_t rsv[52] = {};

  // Rows of x on each member of this rank's group that gathers, and rows of the output on each
  // member of its group that scatters. Empty: even, as in ATB.
  std::vector<int64_t> gatherRows;
  std::vector<int64_t> scatterRows;
};

bool operator==(const LinearParallelParam::TwoDimTPInfo& a,
                const LinearParallelParam::TwoDimTPInfo& b);
bool operator==(const LinearParallelParam::MoeInfo& a, const LinearParallelParam::MoeInfo& b);

Status CheckParam(const LinearParallelParam& param);

// "ALL_GATHER_LINEAR"; "MAX" for a number that is none of them.
const char* Name(LinearParallelParam::ParallelType type);

}  // namespace collops
