#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/status.h"

namespace collops {

// ATB's parameter structs of the calls in which every rank sends every rank a slice of its own; as
// params.h.

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

// The same with counts and displacements as input tensors.
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

bool operator==(const AllToAllVParam& a, const AllToAllVParam& b);
bool operator==(const AllToAllVV2Param& a, const AllToAllVV2Param& b);

std::string ToJson(const AllToAllVParam& param);
std::string ToJson(const AllToAllVV2Param& param);
Status FromJson(const std::string& text, AllToAllVParam* param);
Status FromJson(const std::string& text, AllToAllVV2Param* param);

}  // namespace collops
