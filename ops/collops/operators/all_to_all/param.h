#pragma once

#include "collops/operators/framework/param.h"

namespace [[gnu::visibility("default")]] collops {

struct AllToAllParam {
  int rank = 0;
  int rankSize = 0;
  int rankRoot = 0;
  std::string backend = "hccl";
  void* hcclComm = nullptr;
  CommMode commMode = COMM_MULTI_PROCESS;
  std::string rankTableFile;
  std::string commDomain;
  bool transpose = false;
  uint8_t rsv[62] = {};
};

Status CheckParam(const AllToAllParam& param);

}  // namespace collops
