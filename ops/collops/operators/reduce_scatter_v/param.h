#pragma once

#include "collops/operators/framework/param.h"

namespace [[gnu::visibility("default")]] collops {

struct ReduceScatterVParam {
  int rank = 0;
  int rankSize = 0;
  int rankRoot = 0;
  std::vector<int64_t> sendCounts;  // as in ATB; not used: the input tensors are
  std::vector<int64_t> sdispls;
  int64_t recvCount = 0;
  std::string reduceType = "sum";
  void* hcclComm = nullptr;
  CommMode commMode = COMM_MULTI_PROCESS;
  std::string backend = "hccl";
  std::string rankTableFile;
  std::string commDomain;
  uint8_t rsv[64] = {};
};

Status CheckParam(const ReduceScatterVParam& param);

}  // namespace collops
