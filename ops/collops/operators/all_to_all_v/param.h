#pragma once

#include "collops/operators/framework/param.h"

namespace [[gnu::visibility("default")]] collops {

struct AllToAllVParam {
  int rank = 0;
  int rankSize = 0;
  int rankRoot = 0;
  std::vector<int64_t> sendCounts;  // elements for each rank
  std::vector<int64_t> sdispls;     // where they begin in x
  std::vector<int64_t> recvCounts;  // elements from each rank
  std::vector<int64_t> rdispls;     // where they begin in the output
  std::string backend = "hccl";
  void* hcclComm = nullptr;
  CommMode commMode = COMM_MULTI_PROCESS;
  std::string rankTableFile;
  std::string commDomain;
  uint8_t rsv[64] = {};
};

Status CheckParam(const AllToAllVParam& param);

// Checks that the four lists have an element per rank. Part of CheckParam if rankSize is set.
Status CheckRanks(const AllToAllVParam& param, int rank, int rank_size);

}  // namespace collops
