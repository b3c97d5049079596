#pragma once

#include "collops/operators/framework/param.h"

namespace [[gnu::visibility("default")]] collops {

struct BroadcastParam {
  int rank = 0;
  int rankSize = 0;
  int rankRoot = 0;
  void* hcclComm = nullptr;
  CommMode commMode = COMM_MULTI_PROCESS;
  std::string backend = "hccl";
  std::string rankTableFile;
  std::string commDomain;
  uint8_t rsv[64] = {};
};

Status CheckParam(const BroadcastParam& param);

}  // namespace collops
