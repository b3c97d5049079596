#pragma once

#include "collops/operators/framework/param.h"

namespace [[gnu::visibility("default")]] collops {

struct ReduceScatterParam {
  int rank = 0;
  int rankSize = 0;
  int rankRoot = 0;
  std::string reduceType = "sum";
  void* hcclComm = nullptr;
  CommMode commMode = COMM_MULTI_PROCESS;
  std::string backend = "lccl";
  std::string rankTableFile;
  std::string commDomain;
  uint8_t rsv[64] = {};
};

Status CheckParam(const ReduceScatterParam& param);

}  // namespace collops
