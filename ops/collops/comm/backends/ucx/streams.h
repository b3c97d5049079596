#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <utility>

#include "collops/comm/backends/ucx/engine/chunks.h"
#include "collops/comm/backends/ucx/engine/worker.h"
#include "collops/comm/backends/ucx/schedule.h"
#include "collops/comm/control/step.h"
#include "collops/core/deadline.h"

namespace collops::ucx {

// The streams of one call between this rank and ranks of other hosts. A stream is named by sender,
// receiver and a number that both know. Owned by its call; one thread. Waits in Until() and
// Finish(), until the call's time-out.
class Streams {
 public:
  // `name`: of the call, for messages. `rank`: this rank's. `timeout_s`: of each wait.
  Streams(const char* name, Worker* worker, control::Step* step, int rank, double timeout_s)
      : name_(name), worker_(worker), step_(step), rank_(rank), timeout_s_(timeout_s) {}
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // Sends `bytes` of `data` to rank `to`; nothing is sent of no bytes. `chunk_bytes`: the same on
  // both sides.
  void Send(int to, int number, const void* data, int64_t bytes, int64_t chunk_bytes = kChunkBytes);
  // As Send(), from a ring of kSlots chunks, of which none is ready yet.
  OutgoingChunks* SendRing(int to, int number, const void* ring, int64_t bytes,
                           int64_t chunk_bytes);
  // Receives them from rank `from`, one after the other or into a ring of `slots` chunks.
  IncomingChunks* Receive(int from, int number, void* data, int64_t bytes, int64_t slots = 0,
                          int64_t chunk_bytes = kChunkBytes);

  // Moves the streams until `ready` returns true.
  template <typename Ready>
  Status Until(Ready&& ready) {
    Status moved;
    const auto done = [&] {
      moved = Advance();
      return !moved.ok() || ready();
    };
    Status looked;
    const Deadline deadline = Deadline::After(timeout_s_);
    const Watch watch = {{}, [&] { return looked = Look(); }, nap_s_, &step_->duties()};
    const Status waited = worker_->Until(name_, done, watch, deadline);
    if (!moved.ok()) return Explain(moved);
    // The look may have found a time-out of another wait, which says more.
    return waited.code() == ERROR_TIMEOUT && looked.ok() ? TimedOut() : waited;
  }
  // Moves the streams until all are done.
  Status Finish();
  // Waits look around after this time at the latest: for something that does not come over UCX.
  void set_nap_s(double nap_s) { nap_s_ = nap_s; }

  static constexpr int64_t kChunkBytes = kStreamChunkBytes;
  static constexpr int64_t kSlots = kStreamSlots;

 private:
  template <typename Chunks>
  struct Stream {
    template <typename... Arguments>
    Stream(Worker* worker, int rank, Arguments&&... arguments)
        : peer(rank), chunks(worker, rank, std::forward<Arguments>(arguments)...) {}

    int peer;
    Chunks chunks;
  };
  OutgoingChunks* Emplace(int to, int number, const void* data, int64_t slots,
                          const Chunking& chunking);
  Tag TagFrom(int source, int number) const;
  Status Advance();
  // What ends the call: a failure of the group, or the loss of a rank whose stream is not done.
  Status Look();
  Status Loss() const;
  // For a stream that failed: what the group says of it meanwhile, or who is lost; else `failed`.
  Status Explain(const Status& failed) const;
  // The error of a time-out: the rank of another host that this one waits for, or else who is late.
  Status TimedOut() const;
  // The error that another rank, or abort(), has ended the group with; Ok if there is none.
  Status GroupFailure() const { return step_->endpoint().GroupFailure(step_->number()); }
  Status CheckPeer(int peer) const;
  bool Done() const;

  const char* name_;
  Worker* worker_;
  control::Step* step_;
  int rank_;
  double timeout_s_;
  // Messages that another thread of this rank begins meanwhile do not end a sleep.
  double nap_s_ = control::kNapMs * 1e-3;
  // Streams do not move in memory: UCX has pointers into them.
  std::list<Stream<OutgoingChunks>> outgoing_;
  std::list<Stream<IncomingChunks>> incoming_;
  std::optional<Deadline> explained_;
};

}  // namespace collops::ucx
