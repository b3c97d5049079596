#pragma once

#include "collops/operators/framework/param.h"

namespace [[gnu::visibility("default")]] collops {

// As AllToAllVParam, with counts and displacements as input tensors.
struct AllToAllVV2Param {
  int rank = -1;  // -1: from hcclComm, the rank table or the launcher
  int rankSize = 0;
  int rankRoot = 0;
  std::string backend = "hccl";
  void* hcclComm = nullptr;
  CommMode commMode = COMM_MULTI_PROCESS;
  std::string rankTableFile;
  std::string commDomain;
  uint8_t rsv[64] = {};
};

Status CheckParam(const AllToAllVV2Param& param);

}  // namespace collops
