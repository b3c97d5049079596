#pragma once

#include "collops/operators/framework/param.h"

namespace [[gnu::visibility("default")]] collops {

struct RecvParam {
  int rank = 0;
  int rankSize = 0;
  int rankRoot = 0;
  uint32_t srcRank = 1;  // the sender
  std::string backend = "hccl";
  void* hcclComm = nullptr;
  CommMode commMode = COMM_MULTI_PROCESS;
  std::string rankTableFile;
  std::string commDomain;
  uint8_t rsv[64] = {};
};

Status CheckParam(const RecvParam& param);

// Checks that the peer is another rank of the group: with the struct's rank and rankSize if set,
// and again with the communicator's.
Status CheckRanks(const RecvParam& param, int rank, int rank_size);

}  // namespace collops
