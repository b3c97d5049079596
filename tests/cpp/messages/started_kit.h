// Started calls in one line each: gathers of one number per rank, and messages.
#pragma once

#include <memory>
#include <vector>

#include "messages/messages_kit.h"

namespace started {

using collops::Agreement;
using collops::Communicator;
using collops::Error;
using collops::Ok;
using messages::Buffer;
using messages::ExpectError;
using messages::Status;
using messages::Transfer;
using Handle = Communicator::Handle;

// A gather of one number per rank, with all that the call needs until its end.
class Gather {
 public:
  Gather(Communicator& comm, int64_t number)
      : comm_(comm),
        number_(number),
        counts_(static_cast<size_t>(comm.size()), 1),
        output_(counts_.size(), -1) {
    for (size_t r = 0; r < counts_.size(); ++r) displs_.push_back(static_cast<int64_t>(r));
  }

  Status Run() {
    const Agreement agreement("AllGatherV");
    collops::AllGatherVCall call;
    call.agreement = &agreement;
    call.dtype = collops::DType::kInt64;
    call.x = &number_;
    call.output = output_.data();
    call.recv_counts = counts_.data();
    call.rdispls = displs_.data();
    return comm_.AllGatherV(call);
  }
  Status Start() {
    return comm_.Start("AllGatherV", [this] { return Run(); }, &handle_);
  }
  const Handle& handle() const { return handle_; }
  // Whether every rank's number is `number` plus a thousand times its rank.
  bool Holds(int64_t number) const {
    for (size_t r = 0; r < output_.size(); ++r) {
      if (output_[r] != number + 1000 * static_cast<int64_t>(r)) return false;
    }
    return true;
  }

 private:
  Communicator& comm_;
  int64_t number_;
  std::vector<int64_t> counts_;
  std::vector<int64_t> displs_;
  std::vector<int64_t> output_;
  Handle handle_;
};

inline std::unique_ptr<Gather> StartGather(Communicator& comm, int64_t number) {
  auto gather = std::make_unique<Gather>(comm, number + 1000 * comm.rank());
  EXPECT_EQ(gather->Start().message(), "");
  return gather;
}

inline Handle StartBarrier(Communicator& comm) {
  Handle handle;
  const auto body = [&comm] { return comm.Barrier(); };
  EXPECT_EQ(comm.Start("Barrier", body, &handle).message(), "");
  return handle;
}

inline Handle StartSend(Communicator& comm, int peer, int32_t tag, Buffer* from) {
  const Transfer transfer = pairs::Send(peer, tag, from);
  Handle handle;
  EXPECT_EQ(comm.StartMessages("Send", &transfer, 1, &handle).message(), "");
  return handle;
}

inline Handle StartRecv(Communicator& comm, int peer, int32_t tag, Buffer* to) {
  const Transfer transfer = pairs::Recv(peer, tag, to);
  Handle handle;
  EXPECT_EQ(comm.StartMessages("Recv", &transfer, 1, &handle).message(), "");
  return handle;
}

}  // namespace started
