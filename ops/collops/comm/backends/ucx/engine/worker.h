#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/backends/ucx/engine/api.h"
#include "collops/comm/backends/ucx/engine/library.h"
#include "collops/comm/control/waiter.h"
#include "collops/core/deadline.h"
#include "collops/core/status.h"
#include "collops/core/trace/spans.h"

namespace collops::ucx {

// What a message of a stream is.
enum class TagKind : uint32_t { kData = 0, kCredit = 1, kHead = 2, kEnd = 3 };

// The tag of a message: 32 bits of the call's sequence, 14 of the sender's rank, 16 of the stream
// within the call, 2 of the kind. Two messages with the same tag arrive in the order in which they
// were sent.
struct Tag {
  uint64_t sequence = 0;
  int source = 0;
  int stream = 0;

  uint64_t Of(TagKind kind) const {
    return (sequence << 32) | (static_cast<uint64_t>(source) & 0x3fff) << 18 |
           (static_cast<uint64_t>(stream) & 0xffff) << 2 | static_cast<uint64_t>(kind);
  }
};

class Worker;

// One send or receive. While it is pending its memory belongs to UCX; the destructor therefore ends
// one that is, by Worker::End(). Owned by the caller, who may use it again once it is done; it
// stays where it is, as the worker keeps a list of those that are pending.
class Request {
 public:
  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request();

  bool pending() const { return handle_ != nullptr; }
  // Once done: the bytes of the message.
  size_t bytes() const { return bytes_; }
  int peer() const { return peer_; }

 private:
  friend class Worker;

  Worker* worker_ = nullptr;
  void* handle_ = nullptr;
  Request* previous_ = nullptr;
  Request* next_ = nullptr;
  int peer_ = 0;
  bool receives_ = false;
  bool hands_over_ = false;  // a send, which an empty message is still to follow
  Result result_ = Result::kOk;
  size_t bytes_ = 0;
};

// When a send is done: UCX has taken all of it, so that its memory may be written again, or all of
// it has left the process, so that it arrives whether or not this rank makes progress.
enum class SendDone { kTaken, kHandedOver };

// The longest sleep of a wait, before it looks around again.
constexpr double kNapS = 0.05;

// What else a wait looks at, before it sleeps.
struct Watch {
  // Descriptors that end a sleep, e.g. of the host connections; only read.
  std::vector<pollfd> descriptors;
  // Ok, or what ends the wait. It is also called when a peer is lost, and then decides whether that
  // matters; empty: every loss does.
  std::function<Status()> look;
  double nap_s = kNapS;
  // Of the group: messages that move meanwhile. Null: there are none.
  const control::WaitDuties* duties = nullptr;

  control::MessageProgress ProgressMessages() const {
    return duties == nullptr ? control::MessageProgress::kNothing : duties->ProgressMessages();
  }
};

// This rank's end of the connections to ranks of other hosts: messages with tags, matched in the
// order in which the peer sent them. Numbers its peers 0 to peers - 1, which the caller gives a
// meaning. One thread at a time. Only Progress(), and what calls it, moves data and notices
// losses. In a child of fork() it belongs to the parent: every call is an error, and the destructor
// leaves UCX alone.
//
// UCX takes a message in before its receive is posted, and keeps it in memory of its own without
// limit: a sender must know that the receive is posted (OutgoingChunks and IncomingChunks do), or
// the message must be one of few.
class Worker {
 public:
  static Status Create(int peers, std::unique_ptr<Worker>* worker);
  ~Worker() { Close(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // What a peer connects to, some 100 bytes; sent to it by other means.
  const std::string& address() const { return address_; }

  // Where a peer is; the address is UCX's own: one from a stranger may end the process.
  void Know(int peer, std::string address) {
    peers_[static_cast<size_t>(peer)].address = std::move(address);
  }
  // Connects to a peer that is known, unless it is connected, without waiting for it. A loss is
  // noticed once a message has crossed, so where that matters both sides say hello.
  Status Connect(int peer);
  int num_connected() const;

  // Starts a message, the first of which connects; `data` stays as it is until the request is done.
  Status Send(int peer, uint64_t tag, const void* data, size_t bytes, Request* request,
              SendDone done = SendDone::kHandedOver);
  // Posts a receive of at most `bytes`, for a message of any peer that has this tag: the tag names
  // the sender. `peer` is who it is, for messages.
  Status Receive(int peer, uint64_t tag, void* data, size_t bytes, Request* request);

  // Moves what can be moved; whether anything did.
  bool Progress();
  // Whether the request is done.
  bool Test(Request* request);
  // Ok, or why the request, which is done, failed.
  Status StatusOf(const Request& request) const;

  // Calls `ready` until it returns true: spins, yields the core, and then sleeps until something
  // arrives. ERROR_TIMEOUT names `what`. A loss that is seen together with the data is no error.
  template <typename Ready>
  Status Until(const char* what, Ready&& ready, const Watch& watch, const Deadline& deadline);
  // Sleeps until something arrives, or until `wake_condition` ends.
  void Sleep(const control::WakeCondition& wake_condition);
  // For a caller that sleeps itself: a descriptor that is readable once something arrives; -1 if
  // something has arrived already.
  int Arm();

  // Ok, or ERROR_PEER_LOST for the first peer whose connection has ended. A peer that closes its
  // worker looks the same: that it leaves is said elsewhere.
  Status Loss() const;
  Status LossOf(int peer) const;
  bool IsLost(int peer) const { return peers_[static_cast<size_t>(peer)].lost; }

  // Waits until what was sent has left for good; peers that are lost, or that nothing was sent to,
  // are left out. It needs the peers' progress: ranks that close go on with Until() until all have
  // flushed.
  Status Flush(const Deadline& deadline);
  // Ends a request that is pending: after this UCX does not touch its memory. A receive is
  // cancelled; to end a send the connection to its peer is closed.
  void End(Request* request);
  // Ends everything at once: requests, connections, descriptors, UCX's thread. What was sent but
  // not flushed may be lost.
  void Close();

 private:
  struct Connection {
    Worker* worker = nullptr;
    std::string address;  // until it is connected
    Endpoint endpoint = nullptr;
    bool used = false;  // a message was sent
    bool lost = false;
    Result reason = Result::kOk;
  };

  Worker(const Library& library, int peers)
      : library_(&library), generation_(ForkGeneration()), peers_(static_cast<size_t>(peers)) {}
  Status Open();
  Status ReadAddress();
  bool IsMine() const { return handle_ != nullptr && generation_ == ForkGeneration(); }
  Status CheckUsable() const;
  Status Start(void* started, int peer, bool receives, size_t bytes, Request* request);
  void SendEnd(Request* request);
  void TakeEnds();
  void Finish(Request* request, Result result);
  void CloseEndpoint(Connection* peer);
  // Progresses until `done` or a limit; what it returns.
  template <typename Done>
  bool ProgressUntil(Done&& done);
  Status LookAround(const Watch& watch) const { return watch.look ? watch.look() : Loss(); }
  // Sleeps until data, messages or one of the descriptors are ready, or for a while. `progress`:
  // what the watch has just found.
  void Sleep(const Watch& watch, control::MessageProgress progress, const Deadline& deadline);
  static void OnError(void* peer, Endpoint endpoint, Result result);
  static Status TimedOut(const char* what, const Deadline& deadline);

  const Library* library_;
  uint64_t generation_;
  OwnContext context_;
  WorkerObject* handle_ = nullptr;
  int descriptor_ = -1;
  std::string address_;
  std::vector<Connection> peers_;  // never resized: UCX has pointers to them
  int losses_ = 0;
  control::Spins spins_;
  Request* pending_ = nullptr;  // the first of the list
  Request ends_;                // the next empty message that hands another one over
};

// Rounds without news before a wait yields the core: each is a system call.
constexpr int kEmptyRounds = 32;
// A wait that always has news looks at messages and the clock this often.
constexpr int kBusyRounds = 256;

template <typename Ready>
Status Worker::Until(const char* what, Ready&& ready, const Watch& watch,
                     const Deadline& deadline) {
  const recording::WaitSpan wait("wait for data");
  control::Backoff backoff(&spins_);
  const int losses = losses_;
  int empty = 0;
  int busy = 0;
  while (!ready()) {
    COLLOPS_RETURN_IF_ERROR(CheckUsable());
    const bool moved = Progress();
    if (losses_ != losses) {
      const Status looked = LookAround(watch);
      if (!looked.ok()) return ready() ? Ok() : looked;
    }
    if (moved) {
      empty = 0;
      backoff = control::Backoff(&spins_);
      if (++busy % kBusyRounds != 0) continue;
      static_cast<void>(watch.ProgressMessages());
      if (deadline.Passed()) return TimedOut(what, deadline);
      continue;
    }
    if (++empty < kEmptyRounds) continue;
    const control::MessageProgress progress = watch.ProgressMessages();
    if (backoff.Yield()) continue;
    const Status looked = LookAround(watch);
    if (!looked.ok()) return ready() ? Ok() : looked;
    if (deadline.Passed()) return ready() ? Ok() : TimedOut(what, deadline);
    recording::WaitSpan::BeforeSleep();
    if (progress != control::MessageProgress::kMoved) Sleep(watch, progress, deadline);
  }
  return Ok();
}

}  // namespace collops::ucx
