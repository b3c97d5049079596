#pragma once

#include <cstdint>
#include <string>

#include "comm/communicator.h"
#include "core/status.h"

namespace collops {

// ATB's parameter structs of messages between two ranks; as params.h.

struct SendParam {
  int rank = 0;
  int rankSize = 0;
  int rankRoot = 0;
  uint32_t destRank = 1;  // who receives
  std::string backend = "hccl";
  void* hcclComm = nullptr;
  CommMode commMode = COMM_MULTI_PROCESS;
  std::string rankTableFile;
  std::string commDomain;
  uint8_t rsv[64] = {};
};

struct RecvParam {
  int rank = 0;
  int rankSize = 0;
  int rankRoot = 0;
  uint32_t srcRank = 1;  // who sends
  std::string backend = "hccl";
  void* hcclComm = nullptr;
  CommMode commMode = COMM_MULTI_PROCESS;
  std::string rankTableFile;
  std::string commDomain;
  uint8_t rsv[64] = {};
};

bool operator==(const SendParam& a, const SendParam& b);
bool operator==(const RecvParam& a, const RecvParam& b);

std::string ToJson(const SendParam& param);
std::string ToJson(const RecvParam& param);
Status FromJson(const std::string& text, SendParam* param);
Status FromJson(const std::string& text, RecvParam* param);

// The peer is another rank of the group: by the struct alone where it says rank and size, and once
// more with those of the communicator.
Status CheckPeer(const SendParam& param, int rank, int rank_size);
Status CheckPeer(const RecvParam& param, int rank, int rank_size);

}  // namespace collops
