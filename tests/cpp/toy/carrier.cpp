#include "toy/carrier.h"

#include <map>

namespace toy {

std::shared_ptr<Carrier> Carrier::Of(const void* group, int rank_size) {
  static std::mutex* const mutex = new std::mutex;
  static auto* const carriers = new std::map<const void*, std::weak_ptr<Carrier>>;
  const std::lock_guard<std::mutex> lock(*mutex);
  std::weak_ptr<Carrier>& known = (*carriers)[group];
  std::shared_ptr<Carrier> carrier = known.lock();
  if (carrier == nullptr) known = carrier = std::make_shared<Carrier>(rank_size);
  return carrier;
}

void Carrier::Open(int rank, uint64_t step, const Offer& offer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  At(rank) = {offer, step, true, 0, 0};
}

void Carrier::Withdraw(int rank) {
  std::unique_lock<std::mutex> lock(mutex_);
  At(rank).open = false;
  given_back_.wait(lock, [&] { return At(rank).reading == 0; });
}

bool Carrier::ReadByAll(int rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return At(rank).read == static_cast<int>(places_.size());
}

bool Carrier::Borrow(int owner, uint64_t step, Offer* offer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Place& place = At(owner);
  if (!place.open || place.step != step) return false;
  ++place.reading;
  *offer = place.offer;
  return true;
}

void Carrier::GiveBack(int owner) {
  const std::lock_guard<std::mutex> lock(mutex_);
  --At(owner).reading;
  ++At(owner).read;
  given_back_.notify_all();
}

}  // namespace toy
