#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace toy {

// The memory that one rank lets the others read in one step.
struct Offer {
  const std::byte* x = nullptr;
  const int64_t* displs = nullptr;  // elements: where each reader's part begins; null: at x
};

// Moves bytes between ranks that are threads of one process: each rank offers its pointers, and the
// others copy from them. One per group, shared by its ranks. Thread-safe. Waits only for a rank
// that is copying at this moment.
class Carrier {
 public:
  explicit Carrier(int rank_size) : places_(static_cast<size_t>(rank_size)) {}

  // The carrier of the group whose ranks all pass the same address `group`.
  static std::shared_ptr<Carrier> Of(const void* group, int rank_size);

  void Open(int rank, uint64_t step, const Offer& offer);
  // Ends the offer: no rank reads it afterwards.
  void Withdraw(int rank);
  // Whether every rank has read this rank's offer, including this rank.
  bool ReadByAll(int rank);

  // False if `owner` has no offer in that step.
  bool Borrow(int owner, uint64_t step, Offer* offer);
  void GiveBack(int owner);

 private:
  struct Place {
    Offer offer;
    uint64_t step = 0;
    bool open = false;
    int reading = 0;
    int read = 0;
  };
  Place& At(int rank) { return places_[static_cast<size_t>(rank)]; }

  std::mutex mutex_;
  std::condition_variable given_back_;
  std::vector<Place> places_;
};

}  // namespace toy
