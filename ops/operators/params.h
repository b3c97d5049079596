#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/status.h"

namespace collops {

// ATB's parameter structs (atb/infer_op_params.h): names, order and defaults are ATB's.
// `hcclComm` is a caller-owned communicator of the backend that runs; `rsv` bytes must be zero.

struct AllGatherVParam {
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

struct ReduceScatterVParam {
  int rank = 0;
  int rankSize = 0;
  int rankRoot = 0;
  std::vector<int64_t> sendCounts;  // as in ATB, the input tensors are what is read
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

bool operator==(const AllGatherVParam& a, const AllGatherVParam& b);
bool operator==(const ReduceScatterVParam& a, const ReduceScatterVParam& b);

// JSON with ATB's camelCase keys and numbers for enums. `hcclComm` is never written. Reading: every
// key is optional, an unknown one is ERROR_INVALID_PARAM that names it.
std::string ToJson(const AllGatherVParam& param);
std::string ToJson(const ReduceScatterVParam& param);
Status FromJson(const std::string& text, AllGatherVParam* param);
Status FromJson(const std::string& text, ReduceScatterVParam* param);

}  // namespace collops
