#include "collops/comm/control/step.h"

#include "collops/comm/user_calls.h"
#include "collops/core/fence.h"
#include "collops/core/trace/spans.h"

namespace collops::control {

void Step::Enter(const char* name, double timeout_s) {
  const uint64_t number = this->number() + 1;  // one thread at a time makes steps
  number_.store(number, std::memory_order_relaxed);
  waiter_.emplace(endpoint_, duties_, timeout_s, number, name, &deadline_, &spins_);
}

Status Step::CatchUp(double timeout_s) {
  refused_ = false;
  if (!behind_) return Ok();
  waiter_.emplace(endpoint_, duties_, timeout_s, number(), "the call after a refusal", &deadline_,
                  &spins_);
  const recording::WaitSpan wait("wait for ranks");
  for (int r = 0; r < endpoint_->size(); ++r) {
    COLLOPS_RETURN_IF_ERROR(Until([&] { return endpoint_->HasBegun(r, number()); }));
  }
  behind_ = false;
  return Ok();
}

Status Step::Begin(const Agreement& agreement, double timeout_s) {
  COLLOPS_RETURN_IF_ERROR(CatchUp(timeout_s));
  Enter(agreement.called(), timeout_s);
  agreement_ = &agreement;
  balance_ = agreement.balance();
  carried_ = false;
  awaited_.clear();
  for (int r = 0; r < endpoint_->size(); ++r) {
    if (r != endpoint_->rank()) awaited_.push_back(r);
  }
  // Another host could get a head sent after the failure before the failure, and end its step well.
  return endpoint_->GroupFailure(number_);
}

void Step::Publish() {
  WriteHead(HeadKind::kCall);
  endpoint_->RingAll();
}

void Step::WriteHead(HeadKind kind) {
  const int rank = endpoint_->rank();
  int64_t* const agreement = endpoint_->board().agreement(rank, number());
  SignalHead& mine = endpoint_->head(rank, number());
  if (carrier_ != nullptr) {
    // The watcher may be reading the head of a carried step.
    const uint64_t before = NumberOf(mine.step.load(std::memory_order_relaxed));
    mine.step.store(StepWord(before, HeadKind::kChanging), std::memory_order_relaxed);
    Fence(std::memory_order_release);
  }
  // It is read only to describe a disagreement; a call equal to the last need not write it again.
  uint64_t& written = written_[number() & 1];
  if (written != agreement_->identity()) {
    if (carrier_ == nullptr) {
      agreement_->Encode(agreement, endpoint_->size());
    } else {
      encoded_.resize(EncodedWords());
      agreement_->Encode(encoded_.data(), endpoint_->size());
      StoreWords(encoded_.data(), encoded_.size(), agreement);
    }
    written = agreement_->identity();
  }
  Agreement::EncodeCall(agreement, UserCall::Number());
  PublishHead(&mine, StepWord(number(), kind), agreement_->digest(), agreement_->balance());
}

Status Step::Refuse(const char* name, const Status& reason, double timeout_s) {
  COLLOPS_RETURN_IF_ERROR(CatchUp(timeout_s));
  Enter(name, timeout_s);
  const int rank = endpoint_->rank();
  WriteReason(reason.message(), endpoint_->board().refusal_reason(rank, number()));
  PublishRefusal(&endpoint_->head(rank, number()), number());
  behind_ = true;
  refused_ = true;
  endpoint_->Finish(number());
  return Ok();
}

Status Step::Compare(int rank, bool* agrees) {
  const SignalHead& theirs = endpoint_->head(rank, number());
  const uint64_t word = theirs.step.load(std::memory_order_acquire);
  if (IsRefusal(word)) {
    refused_ = true;
    behind_ = !awaited_.empty();
    endpoint_->Finish(number());
    return Error(ERROR_RANK_MISMATCH, agreement_->called(), ": ", endpoint_->Who(rank),
                 " refused call ", CallNumber(number()), ": ",
                 ReadReason(endpoint_->board().refusal_reason(rank, number())));
  }
  COLLOPS_CHECK_ARG(NumberOf(word) == number() && IsCall(word), ERROR_PEER_LOST,
                    agreement_->called(), ": ", endpoint_->Who(rank), " is in an invalid call");
  const uint64_t balance = theirs.balance.load(std::memory_order_relaxed);
  balance_ += balance;
  if (!endpoint_->IsRemote(rank)) host_balance_ += balance;
  *agrees = *agrees && theirs.digest.load(std::memory_order_relaxed) == agreement_->digest();
  return Ok();
}

// Called once all heads have arrived, or one that differs.
Status Step::Judge(bool agrees) {
  if (agrees && balance_ == 0) return Ok();
  COLLOPS_RETURN_IF_ERROR(AwaitRest());
  return Disagreement();
}

// A rank that comes late may refuse, and a refusal takes precedence over a disagreement, because it
// does not end the group. A rank that never comes changes nothing.
Status Step::AwaitRest() {
  bool agrees = true;
  while (!awaited_.empty()) {
    int rank = 0;
    const Status came = AwaitNext(&rank);
    if (came.code() == ERROR_TIMEOUT || came.code() == ERROR_PEER_LOST) return Ok();
    COLLOPS_RETURN_IF_ERROR(came);
    COLLOPS_RETURN_IF_ERROR(Compare(rank, &agrees));
  }
  return Ok();
}

std::vector<std::vector<int64_t>> Step::ArrivedAgreements() const {
  const int size = endpoint_->size();
  const size_t words = EncodedWords();
  std::vector<std::vector<int64_t>> all(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) {
    if (!HasArrived(r)) continue;
    const int64_t* encoded = endpoint_->board().agreement(r, number());
    all[static_cast<size_t>(r)].assign(encoded, encoded + words);
  }
  return all;
}

std::string Step::WhoIsMissing() const {
  return awaited_.empty() ? "" : Concat("; ", endpoint_->DescribeLate(number()));
}

Status Step::Disagreement() const {
  const Status status = agreement_->Describe(ArrivedAgreements(), number(),
                                             [this](int r) { return endpoint_->Who(r); });
  return Status(status.code(), status.message() + WhoIsMissing());
}

Status Step::MissingOne(const Status& status) const {
  if (status.code() != ERROR_TIMEOUT && status.code() != ERROR_PEER_LOST) return status;
  const Status differs = agreement_->FindDifference(ArrivedAgreements(), number(),
                                                    [this](int r) { return endpoint_->Who(r); });
  if (differs.ok()) return status;
  return Status(differs.code(), differs.message() + WhoIsMissing());
}

bool Step::PreviousFinished() const {
  for (int r = 0; r < endpoint_->size(); ++r) {
    if (!endpoint_->HasFinished(r, number() - 1)) return false;
  }
  return true;
}

Status Step::End() {
  // A peer that ended its call early publishes the failure before it writes its window again.
  COLLOPS_RETURN_IF_ERROR(endpoint_->GroupFailureMeanwhile(number()));
  if (carried_) {
    endpoint_->FinishOnHost(number());
  } else {
    endpoint_->Finish(number());
  }
  return Ok();
}

Status Step::EndTogether() {
  COLLOPS_RETURN_IF_ERROR(End());
  const recording::WaitSpan wait("wait for readers");
  for (int r = 0; r < endpoint_->size(); ++r) {
    COLLOPS_RETURN_IF_ERROR(Until([&] { return endpoint_->HasFinished(r, number()); }));
  }
  return Ok();
}

}  // namespace collops::control
