#include "collops/comm/backends/cuda/communicator.h"

#include <algorithm>

#include "collops/comm/control/board.h"

namespace collops::cuda_peers {
namespace {

// A slot: the digest and the balance of an agreement, then its encoding.
constexpr int64_t kHeadWords = 2;

}  // namespace

int64_t CallTable::SlotWords(int rank_size) {
  return kHeadWords + Agreement::EncodedBytes(rank_size) / int64_t{sizeof(int64_t)};
}

int64_t CallTable::Bytes(int rank_size) {
  return rank_size * kCalls * SlotWords(rank_size) * int64_t{sizeof(int64_t)};
}

int64_t* CallTable::Slot(int rank, int index) const {
  return reinterpret_cast<int64_t*>(memory_) + (rank * kCalls + index) * SlotWords(size_);
}

void CallTable::Write(const Agreement& agreement, uint64_t call) {
  const auto same = std::find_if(written_.begin(), written_.end(), [&](const Written& one) {
    return one.identity == agreement.identity() && one.agreement.op() == agreement.op();
  });
  if (same != written_.end()) {
    same->call = call;
    Agreement::EncodeCall(Slot(rank_, static_cast<int>(same - written_.begin())) + kHeadWords,
                          call);
    return;
  }
  std::vector<int64_t> words(static_cast<size_t>(SlotWords(size_)));
  words[0] = static_cast<int64_t>(agreement.digest());
  words[1] = static_cast<int64_t>(agreement.balance());
  agreement.Encode(words.data() + kHeadWords, size_);
  Agreement::EncodeCall(words.data() + kHeadWords, call);
  // A peer that describes an earlier disagreement may read the slot at the same time.
  control::StoreWords(words.data(), words.size(), Slot(rank_, next_));
  const Written written{agreement, agreement.identity(), call};
  if (static_cast<size_t>(next_) == written_.size()) {
    written_.push_back(written);
  } else {
    written_[static_cast<size_t>(next_)] = written;
  }
  next_ = (next_ + 1) % kCalls;
}

std::vector<int64_t> CallTable::Find(int rank, uint64_t digest, uint64_t balance) const {
  std::vector<int64_t> words(static_cast<size_t>(SlotWords(size_)));
  for (int index = 0; index < kCalls; ++index) {
    control::LoadWords(Slot(rank, index), words.size(), words.data());
    if (static_cast<uint64_t>(words[0]) != digest || static_cast<uint64_t>(words[1]) != balance) {
      continue;
    }
    return {words.begin() + kHeadWords, words.end()};
  }
  return {};
}

Status CallTable::Describe(const cuda::Verdict& verdict,
                           const std::function<std::string(int)>& who) const {
  std::vector<std::vector<int64_t>> all;
  for (int rank = 0; rank < size_; ++rank) {
    all.push_back(Find(rank, verdict.digests[rank], verdict.balances[rank]));
  }
  const auto own = std::find_if(written_.begin(), written_.end(), [&](const Written& one) {
    return one.agreement.digest() == verdict.digests[rank_] &&
           one.agreement.balance() == verdict.balances[rank_];
  });
  if (own != written_.end()) {
    const Status differs = own->agreement.FindDifference(all, own->call, who);
    if (!differs.ok()) return differs;
  }
  for (int rank = 0; rank < size_; ++rank) {
    COLLOPS_CHECK_ARG(verdict.digests[rank] == verdict.digests[rank_], ERROR_RANK_MISMATCH,
                      own == written_.end() ? "a call" : own->agreement.called(),
                      ": the ranks disagree: the terms of ", who(rank), " differ from those of ",
                      who(rank_));
  }
  return Error(ERROR_RANK_MISMATCH, own == written_.end() ? "a call" : own->agreement.called(),
               ": the ranks disagree on what they send to each other");
}

}  // namespace collops::cuda_peers
