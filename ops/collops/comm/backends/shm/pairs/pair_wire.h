#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collops/comm/backends/shm/pairs/pair_layout.h"
#include "collops/comm/backends/shm/pairs/pair_order.h"
#include "collops/comm/backends/shm/pairs/pair_windows.h"
#include "collops/comm/backends/shm/peer_copy.h"
#include "collops/comm/pairs/pair_wire.h"

namespace collops::shm {

// Wakes a peer that sleeps in its pair lane.
struct PeerBell {
  void (*ring)(void* context, int peer) = nullptr;
  void* context = nullptr;

  void Ring(int peer) const {
    if (ring != nullptr) ring(context, peer);
  }
};

// A rank's end of the pair wires of one host. A body that fits travels in its envelope; until the
// receiver wants it, it stays in the slot, unless a later envelope needs the slot. A body of more
// than 4 KiB in a window is read in place. Any other body waits at the sender until a verdict kGo,
// and then passes through a ring of chunks, one ring per ordered pair of ranks. Owned by the
// communicator; one thread at a time; waits for no one. Numbers that a peer wrote are copied once
// and checked before they are used.
class ShmPairWire : public PairWire {
 public:
  static int64_t Bytes(int rank_size) { return PairLayout::Bytes(rank_size); }

  // `base`: Bytes(size) bytes that all ranks share, aligned to 128, zeroed.
  ShmPairWire(std::byte* base, int rank, int size, PeerBell bell, PairWindows* windows);

  WireStep PostEnvelope(int peer, const Envelope& envelope, const void* data,
                        int64_t bytes) override;
  WireStep NextVerdict(int peer, Verdict* verdict) override;
  WireStep SendBody(int peer, const void* data, int64_t bytes, int64_t* sent) override;

  WireStep NextEnvelope(int peer, Envelope* envelope) override;
  BodyStep TakeBody(int peer, const Envelope& envelope, void* data, int64_t bytes,
                    int64_t* taken) override;
  void DropBody(int peer, const Envelope& envelope) override;
  WireStep PostVerdict(int peer, const Verdict& verdict) override;
  WireStep RecvBody(int peer, void* data, int64_t bytes, int64_t* received) override;

  Status fault() const override { return fault_; }
  bool IsDirect() const override { return true; }

 private:
  // State for one peer: first as its sender, then as its receiver.
  struct Peer {
    uint64_t posted = 0;         // envelopes to the peer
    uint64_t free_up_to = 0;     // of these, how many slots are free again, as last read
    uint64_t verdicts_read = 0;  // of the peer's verdicts
    uint64_t chunks_written = 0;
    RingWindow ring;
    bool ring_told = false;

    SlotsRead<kPairSlots> slots;  // of the peer's envelopes
    uint64_t verdicts = 0;        // posted to the peer
    uint64_t verdicts_seen = 0;   // of these, how many the peer has read, as last seen
    uint64_t chunks_read = 0;
  };

  WireStep Place(const void* data, int64_t bytes, BodyPlace* place);
  bool NoteVerdictsSeen(int rank, Peer* peer, uint64_t count);
  WireStep MakeRing(int rank, Peer* peer);
  BodyStep TakeWindow(int rank, const BodyPlace& place, void* data, int64_t bytes, int64_t* taken);
  WireStep Broken(int rank, const std::string& what);

  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }

  PairLayout layout_;
  int rank_;
  PeerBell bell_;
  PairWindows* windows_;
  std::vector<Peer> peers_;
  PeerCopy peer_copy_;
  uint64_t texts_ = 0;  // written by this rank
  Status fault_;
};

}  // namespace collops::shm
