#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "collops/comm/backends/ucx/engine/worker.h"
#include "collops/comm/backends/ucx/schedule.h"
#include "collops/core/status.h"

namespace collops::ucx {

// Where the chunks of a stream lie: one after the other, or in a ring of `slots` chunks.
struct ChunkMemory {
  std::byte* base = nullptr;
  int64_t slots = 0;  // 0: no ring

  std::byte* At(int64_t chunk, int64_t chunk_bytes) const {
    return base + (slots == 0 ? chunk : chunk % slots) * chunk_bytes;
  }
};

// The sending half of a stream: a chunk leaves once it is offered and its receive is posted, as the
// receiver's credits say. Owned by its call, on one thread; Advance() waits for no one. Destroyed
// before it is done, it ends the connection to the peer (Worker::End).
class OutgoingChunks {
 public:
  // `memory` is only read. `tag` has this rank as its source, `credit_tag` the receiver.
  OutgoingChunks(Worker* worker, int peer, const Tag& tag, const Tag& credit_tag,
                 const ChunkMemory& memory, const Chunking& chunking);

  // The first `chunks` chunks are ready.
  void Offer(int64_t chunks) { offered_ = std::min(chunks, chunking_.count()); }
  // Sends what can be sent.
  Status Advance();

  int peer() const { return peer_; }
  // Chunks, from the first on, whose memory may be written again.
  int64_t sent() const { return sent_; }
  // Everything arrives, whether or not this rank makes progress.
  bool done() const { return sent_ == chunking_.count() && credits_ >= chunking_.count(); }
  // Whether the next thing to happen is the peer's: it takes a message, or posts a receive.
  bool waits_for_peer() const { return !done() && (sent_ < started_ || credits_ < offered_); }

 private:
  Status ReadCredits();

  Worker* worker_;
  int peer_;
  Tag tag_;
  Tag credit_tag_;
  ChunkMemory memory_;
  Chunking chunking_;
  int64_t offered_ = 0;
  int64_t started_ = 0;
  int64_t sent_ = 0;
  int64_t credits_ = 0;   // chunks, from the first on, that the receiver waits for
  int64_t received_ = 0;  // what the next credit is written to
  Request credit_;
  bool credit_posted_ = false;
  std::array<Request, kStreamSlots> requests_;
};

// The receiving half: posts receives for at most kStreamSlots chunks, and tells the sender of them.
// Owned by its call, on one thread; Advance() waits for no one.
class IncomingChunks {
 public:
  // `tag` has the sender as its source, `credit_tag` this rank.
  IncomingChunks(Worker* worker, int peer, const Tag& tag, const Tag& credit_tag,
                 const ChunkMemory& memory, const Chunking& chunking)
      : worker_(worker),
        peer_(peer),
        tag_(tag),
        credit_tag_(credit_tag),
        memory_(memory),
        chunking_(chunking),
        acknowledged_(chunking.free_chunks) {}

  // With a ring: the first `chunks` chunks have been used, their slots may be written.
  void Release(int64_t chunks) { released_ = chunks; }
  // Posts receives, and notices what has arrived. ERROR_RANK_MISMATCH for a chunk of another size.
  Status Advance();

  int peer() const { return peer_; }
  // Chunks, from the first on, that have arrived.
  int64_t arrived() const { return arrived_; }
  bool done() const {
    return arrived_ == chunking_.count() && acknowledged_ >= arrived_ && AcknowledgingDone();
  }
  // Whether the next thing to happen is the peer's: it sends a message, or takes a credit.
  bool waits_for_peer() const {
    return !done() && (arrived_ < posted_ || arrived_ == chunking_.count());
  }

 private:
  Status Post();
  Status Tell();
  bool AcknowledgingDone() const { return !credit_.pending(); }

  Worker* worker_;
  int peer_;
  Tag tag_;
  Tag credit_tag_;
  ChunkMemory memory_;
  Chunking chunking_;
  int64_t released_ = 0;
  int64_t posted_ = 0;
  int64_t arrived_ = 0;
  int64_t acknowledged_;  // what the sender knows of posted_
  int64_t telling_ = 0;   // what the last credit is read from
  Request credit_;
  std::array<Request, kStreamSlots> requests_;
};

}  // namespace collops::ucx
