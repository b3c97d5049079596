// Send and Recv for tests with ranks.h: calls of a communicator in one line each.
#ifndef COLLOPS_TESTS_CPP_MESSAGES_KIT_H_
#define COLLOPS_TESTS_CPP_MESSAGES_KIT_H_

#include <string>
#include <vector>

#include "pairs/pair_kit.h"
#include "ranks.h"

namespace messages {

using collops::Communicator;
using collops::DType;
using collops::ErrorCode;
using collops::kAnySource;
using collops::Status;
using collops::Transfer;
using pairs::Buffer;
using pairs::Pattern;

inline Status Send(Communicator& communicator, int peer, int32_t tag, Buffer* from,
                   DType dtype = DType::kUInt8) {
  Transfer transfer = pairs::Send(peer, tag, from, dtype);
  return communicator.Messages("Send", &transfer, 1);
}

inline Status Recv(Communicator& communicator, int peer, int32_t tag, Buffer* to,
                   int* source = nullptr, DType dtype = DType::kUInt8) {
  Transfer transfer = pairs::Recv(peer, tag, to, dtype);
  const Status status = communicator.Messages("Recv", &transfer, 1);
  if (source != nullptr) *source = transfer.source;
  return status;
}

inline Status Exchange(Communicator& communicator, std::vector<Transfer> list) {
  return communicator.Messages("exchange", list.data(), static_cast<int>(list.size()));
}

inline Status Refuse(Communicator& communicator, Transfer::Way way, int peer, int32_t tag,
                     const std::string& why) {
  Transfer transfer;
  transfer.way = way;
  transfer.peer = peer;
  transfer.tag = tag;
  return communicator.RefuseMessages(way == Transfer::kSend ? "Send" : "Recv", &transfer, 1,
                                     Status(collops::ERROR_INVALID_PARAM, why));
}

// Sends one small message from `from` to `to` and checks it.
inline void Pass(Communicator& communicator, int from, int to, uint32_t seed) {
  Buffer x(Pattern(100, seed)), out(100);
  if (communicator.rank() == from) EXPECT_EQ(Send(communicator, to, 1, &x).message(), "");
  if (communicator.rank() != to) return;
  EXPECT_EQ(Recv(communicator, from, 1, &out).message(), "");
  EXPECT_TRUE(out.Holds(Pattern(100, seed)));
}

inline void ExpectError(const Status& status, ErrorCode code,
                        const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code);
  for (const std::string& part : parts) EXPECT_CONTAINS(status.message(), part);
}

}  // namespace messages

#endif  // COLLOPS_TESTS_CPP_MESSAGES_KIT_H_
