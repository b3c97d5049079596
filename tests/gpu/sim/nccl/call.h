#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "driver/stream.h"

namespace collops_sim {

// ncclDataType_t, as numbers of nccl.h.
enum DataType {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBfloat16,
  kFloat8e4m3,
  kFloat8e5m2,
  kNumTypes
};

// 0 for a number that is no type.
size_t SizeOf(int type);
bool CanReduce(int type);
// In elements of the type.
void Combine(int type, int reduction, void* left, const void* right, size_t count);

// One call of NCCL.
struct Call {
  enum Kind : uint32_t {
    kAllGather = 1,
    kReduceScatter,
    kAllReduce,
    kBroadcast,
    kSend,
    kRecv,
  };

  Kind kind;
  const void* send = nullptr;
  void* receive = nullptr;
  size_t count = 0;
  int type = 0;
  int reduction = 0;
  int root = 0;  // of a message: the peer
  Stream* stream = nullptr;

  bool IsMessage() const { return kind == kSend || kind == kRecv; }
  size_t bytes() const { return count * SizeOf(type); }
};

// What two ranks compare before anything moves.
struct Header {
  uint64_t number = 0;
  uint32_t kind = 0;
  int32_t type = 0;
  int32_t reduction = 0;
  int32_t root = 0;
  uint64_t count = 0;
};

// In what they differ; empty if in nothing.
std::string Difference(const Header& mine, const Header& theirs);

}  // namespace collops_sim
