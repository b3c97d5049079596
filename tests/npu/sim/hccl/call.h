#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace collops_sim {

struct Block {
  char* data = nullptr;
  uint64_t count = 0;  // in elements
};

// One side of a transfer between two ranks.
struct Pair {
  int peer = 0;
  bool sends = false;
  uint32_t type = 0;
  Block block;
};

// One call of HCCL with everything that it was given: what goes to each rank, what comes from it,
// and what all ranks must have given alike.
struct Call {
  enum Kind : uint32_t {
    kAllGatherV = 1,
    kReduceScatterV,
    kAllGather,
    kReduceScatter,
    kAllReduce,
    kBroadcast,
    kReduce,
    kAllToAllV,
    kBarrier,
    kSend,  // and its HcclRecv
    kBatch,
    kArrived,  // a receiver's answer to its sender
  };

  Call(Kind a_kind, int a_type) : kind(a_kind), type(static_cast<uint32_t>(a_type)) {}

  Kind kind;
  uint32_t type;
  uint32_t reduction = 0;
  uint32_t root = 0;
  std::vector<uint64_t> counts;  // equal on all ranks
  std::vector<uint64_t> displs;
  std::vector<Block> sent;  // by rank, this one included
  std::vector<Block> received;
  // Where the received blocks, which have no data of their own, are combined; or null.
  char* sum = nullptr;
  std::vector<Pair> pairs;          // of a call of some ranks only, in place of sent and received
  std::vector<const void*> memory;  // that must live until the call has run

  bool IsOfPairs() const { return kind == kSend || kind == kBatch; }
  size_t element() const;

  // Takes a list of the caller. With COLLOPS_SIM_LATE_COUNTS=1 it is read again when the stream
  // comes to the call, and must still be there and the same.
  std::vector<uint64_t> Read(const void* list, size_t length);
  bool IsUnchanged() const;

 private:
  struct Late {
    const uint64_t* list;
    std::vector<uint64_t> copy;
  };
  std::vector<Late> late_;
};

// What two ranks compare before anything moves. The numbers of a longer list would not fit; tests
// have few ranks.
struct Header {
  static constexpr size_t kMostRanks = 16;

  Header() = default;
  // Of a collective, for `peer`.
  Header(const Call& call, uint64_t a_number, size_t peer);
  // Of a transfer between two ranks.
  Header(Call::Kind a_kind, const Pair& pair);

  uint64_t number = 0;
  uint32_t kind = 0;
  uint32_t type = 0;
  uint32_t reduction = 0;
  uint32_t root = 0;
  uint64_t to_you = 0;
  uint64_t from_you = 0;
  uint64_t counts[kMostRanks] = {};
  uint64_t displs[kMostRanks] = {};
};

// In what they differ; empty if in nothing.
std::string Difference(const Header& mine, const Header& theirs);

}  // namespace collops_sim
