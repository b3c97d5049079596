#pragma once

#include "collops/core/dtype.h"
#include "collops/operators/framework/param.h"

namespace [[gnu::visibility("default")]] collops {

struct AllReduceParam {
  // ATB's numbers, which differ from LinearParallelParam's.
  enum QuantType : int {
    QUANT_TYPE_UNQUANT = 0,
    QUANT_TYPE_UNDEFINED = 0,
    QUANT_TYPE_PER_TENSOR = 1,
    QUANT_TYPE_PER_CHANNEL = 2,
    QUANT_TYPE_MAX = 3,
  };

  int rank = 0;
  int rankSize = 0;
  int rankRoot = 0;
  std::string allReduceType = "sum";
  std::string backend = "hccl";
  void* hcclComm = nullptr;
  CommMode commMode = COMM_MULTI_PROCESS;
  std::string rankTableFile;
  std::string commDomain;
  QuantType quantType = QUANT_TYPE_UNQUANT;
  DType outDataType = DType::kUndefined;  // as in ATB, read only if the call is quantised
  uint8_t rsv[64] = {};
};

Status CheckParam(const AllReduceParam& param);

}  // namespace collops
