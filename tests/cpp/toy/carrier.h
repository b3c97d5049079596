#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace toy {

// What one rank lets the others read in one step.
struct Offer {
  const std::byte* x = nullptr;
  const int64_t* displs = nullptr;  // elements: where each reader's part begins; null: at x
};

// How bytes move between ranks that are threads of one process: each lays open its pointers, and
// the others copy. One per group, shared by its ranks. Thread-safe. Waits for nobody but a rank
// that is copying at this moment.
class Carrier {
 public:
  explicit Carrier(int rank_size) : places_(static_cast<size_t>(rank_size)) {}

  // The one of the group whose ranks all see `group` at this address.
  static std::shared_ptr<Carrier> Of(const void* group, int rank_size);

  void Open(int rank, uint64_t step, const Offer& offer);
  // From now on nobody reads it.
  void Withdraw(int rank);
  // Every rank has read the offer of this one, itself included.
  bool ReadByAll(int rank);

  // False if `owner` has nothing open in that step.
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
