#pragma once

#include <cstdint>
#include <string>

#include "comm/communicator.h"
#include "core/dtype.h"
#include "core/status.h"

namespace collops {

// ATB's parameter structs of the collectives in which every rank has the same shape; as params.h.

struct AllGatherParam {
  int rank = 0;
  int rankSize = 0;
  int rankRoot = 0;
  std::string backend = "hccl";
  void* hcclComm = nullptr;
  CommMode commMode = COMM_MULTI_PROCESS;
  std::string rankTableFile;
  std::string commDomain;
  uint8_t rsv[64] = {};
};

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

struct AllReduceParam {
  // ATB's numbers, which are not LinearParallelParam's.
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
  DType outDataType = DType::kUndefined;  // as in ATB, read only where the call is quantised
  uint8_t rsv[64] = {};
};

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

bool operator==(const AllGatherParam& a, const AllGatherParam& b);
bool operator==(const ReduceScatterParam& a, const ReduceScatterParam& b);
bool operator==(const AllReduceParam& a, const AllReduceParam& b);
bool operator==(const BroadcastParam& a, const BroadcastParam& b);
bool operator==(const AllToAllParam& a, const AllToAllParam& b);

std::string ToJson(const AllGatherParam& param);
std::string ToJson(const ReduceScatterParam& param);
std::string ToJson(const AllReduceParam& param);
std::string ToJson(const BroadcastParam& param);
std::string ToJson(const AllToAllParam& param);
Status FromJson(const std::string& text, AllGatherParam* param);
Status FromJson(const std::string& text, ReduceScatterParam* param);
Status FromJson(const std::string& text, AllReduceParam* param);
Status FromJson(const std::string& text, BroadcastParam* param);
Status FromJson(const std::string& text, AllToAllParam* param);

}  // namespace collops
