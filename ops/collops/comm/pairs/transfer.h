#pragma once

#include <cstdint>

#include "collops/core/dtype.h"

namespace [[gnu::visibility("default")]] collops {

// As the peer of a receive: any rank.
constexpr int kAnySource = -1;

// One message between two ranks, as one of them asks for it. `data` stays valid until the transfer
// is done, and unchanged if it is sent.
struct Transfer {
  enum Way : int32_t { kSend, kRecv };

  Way way = kSend;
  int peer = 0;  // kAnySource with kRecv
  int32_t tag = 0;
  uint64_t digest = 0;  // hash of what both sides must agree on: element type and count
  DType dtype = DType::kUndefined;
  int64_t elements = 0;
  char type[24] = {};  // the name of an element type that travels as bytes; else empty
  void* data = nullptr;
  int64_t bytes = 0;
  const char* method = nullptr;  // of the plain level, for messages; null: Send or Recv
  int source = -1;               // result of a receive: the rank of the sender
};

}  // namespace collops
