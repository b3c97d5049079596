#include "collops/comm/pairs/transfer_table.h"

#include <utility>

namespace collops {

// A free entry has an Ok outcome and an Ok refusal, so Add() need not reset them.
int TransferTable::Add(const Transfer& transfer) {
  if (free_.empty()) {
    free_.push_back(size());
    entries_.push_back(std::make_unique<OpenTransfer>());
  }
  const int index = free_.back();
  free_.pop_back();
  OpenTransfer& entry = (*this)[index];
  entry.transfer = transfer;
  entry.number = 0;
  entry.moved = 0;
  entry.source = -1;
  entry.used = true;
  entry.done = false;
  ++under_way_;
  return index;
}

int TransferTable::AddRefusal(const Transfer& transfer, const Status& why) {
  const int index = Add(transfer);
  (*this)[index].refusal = why;
  return index;
}

void TransferTable::Finish(int index) {
  OpenTransfer& entry = (*this)[index];
  if (!entry.under_way()) return;
  entry.done = true;
  --under_way_;
}

void TransferTable::Finish(int index, Status outcome) {
  OpenTransfer& entry = (*this)[index];
  if (entry.under_way()) entry.outcome = std::move(outcome);
  Finish(index);
}

void TransferTable::Free(int index) {
  OpenTransfer& entry = (*this)[index];
  if (entry.under_way()) --under_way_;
  entry.used = false;
  if (!entry.outcome.ok()) entry.outcome = Ok();
  if (!entry.refusal.ok()) entry.refusal = Ok();
  ++entry.generation;
  free_.push_back(index);
}

TransferHandle TransferTable::HandleOf(int index) const {
  return {static_cast<uint32_t>(index), (*this)[index].generation};
}

int TransferTable::Find(TransferHandle handle) const {
  if (handle.index >= entries_.size()) return -1;
  const OpenTransfer& entry = *entries_[handle.index];
  const bool known = entry.used && entry.generation == handle.generation;
  return known ? static_cast<int>(handle.index) : -1;
}

}  // namespace collops
