// The agreement of a step whose heads a carrier takes to the other hosts: first the ranks of a host
// compare theirs on its board, then one rank of every host speaks for it. Refusals, disagreements
// and losses stay with the board and the watchers, which bring the details.
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
  awaited_.resize(static_cast<size_t>(endpoint_->size() - 1));
  auto next = awaited_.begin();
  for (int r = endpoint_->rank() - 1; r >= 0; --r) *next++ = r;
  for (int r = endpoint_->size() - 1; r > endpoint_->rank(); --r) *next++ = r;
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

Status Step::NoCall(int rank, uint64_t word) {
  if (IsRefusal(word)) {
    refused_ = true;
    behind_ = !awaited_.empty();
    endpoint_->Finish(number());
    return Error(ERROR_RANK_MISMATCH, agreement_->called(), ": ", endpoint_->Who(rank),
                 " refused call ", CallNumber(number()), ": ",
                 ReadReason(endpoint_->board().refusal_reason(rank, number())));
  }
  return Error(ERROR_PEER_LOST, agreement_->called(), ": ", endpoint_->Who(rank),
               " is in an invalid call");
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

namespace {

// How long the board may take to say why a source is lost.
constexpr double kExplainS = 1.0;

Status NoArrival(int) {
  return Ok();
}

}  // namespace

Status Step::Agree() {
  if (carrier_ == nullptr) {
    Publish();
    return AwaitAll();
  }
  carried_ = true;
  WriteHead(HeadKind::kCarried);
  endpoint_->RingHost();
  bool agrees = true;
  COLLOPS_RETURN_IF_ERROR(AwaitHost(&agrees));
  return agrees ? AwaitOtherHosts() : AwaitDifference();
}

// What a watcher has brought of the other hosts is compared, too: a refusal is noticed at once.
Status Step::AwaitHost(bool* agrees) {
  host_balance_ = agreement_->balance();
  auto here = std::count_if(awaited_.begin(), awaited_.end(),
                            [&](int r) { return !endpoint_->IsRemote(r); });
  while (here > 0 && *agrees) {
    int rank = 0;
    const Status came = AwaitNext(&rank);
    if (!came.ok()) return MissingOne(came);
    COLLOPS_RETURN_IF_ERROR(Compare(rank, agrees));
    if (!endpoint_->IsRemote(rank)) --here;
  }
  return Ok();
}

Status Step::AwaitOtherHosts() {
  const recording::WaitSpan wait("wait for hosts");
  // What was sent for a refused step may still be on its way.
  COLLOPS_RETURN_IF_ERROR(UntilCarried([&] { return carrier_->Sent(); }));
  COLLOPS_RETURN_IF_ERROR(carrier_->Send(
      {StepWord(number(), HeadKind::kCarried), agreement_->digest(), host_balance_}));
  sources_.clear();
  taken_.resize(carrier_->num_sources());
  for (size_t i = 0; i < carrier_->num_sources(); ++i) sources_.push_back(i);
  uint64_t balance = host_balance_;
  bool agrees = true;
  while (!sources_.empty() && agrees) {
    size_t index = 0;
    COLLOPS_RETURN_IF_ERROR(UntilCarried([&] { return TakeCarried(&index); }));
    const HostHead& head = taken_[index];
    COLLOPS_CHECK_ARG(head.step == StepWord(number(), HeadKind::kCarried), ERROR_PEER_LOST,
                      agreement_->called(), ": ", endpoint_->Who(carrier_->source(index)),
                      " is in an invalid call");
    balance += head.balance;
    agrees = head.digest == agreement_->digest();
  }
  if (!agrees || balance != 0) return AwaitDifference();
  return UntilCarried([&] { return carrier_->Sent(); });
}

template <typename Ready>
Status Step::UntilCarried(Ready&& ready) {
  std::optional<Deadline> explained;
  bool is_ready = false;
  for (;;) {
    // All are on the board, and differ: another rank that has seen it sends no head any more.
    if (awaited_.empty() && balance_ != 0) return AwaitDifference();
    bool lost = false;
    const auto any = [&] {
      carrier_->Progress();
      if ((is_ready = ready()) || AnyArrived()) return true;
      if (!explained) {
        lost = !LossOfSource().ok();
        return lost;
      }
      return explained->Passed();
    };
    // A ring of the pair lane does not end this sleep.
    const auto sleep = [&](auto&& awake, bool messages, int most_ms) {
      if (awake()) return;
      const WakeCondition wake_condition =
          messages ? duties_->wake_condition() : WakeCondition{-1, most_ms};
      if (wake_condition.most_ms > 0) carrier_->Sleep(wake_condition);
    };
    const Status came = waiter_->Until(any, sleep);
    if (!came.ok()) return MissingOne(came);
    if (is_ready) return Ok();
    bool agrees = true;
    COLLOPS_RETURN_IF_ERROR(CompareArrived(&agrees, NoArrival));
    if (!agrees) return AwaitDifference();
    if (explained && explained->Passed()) return MissingOne(LossOfSource());
    if (lost) explained = Deadline::After(kExplainS);
  }
}

// Heads of earlier steps, which were refused, are dropped. One of the next step is kept: its host
// has seen that this step is refused, and the board will tell.
bool Step::TakeCarried(size_t* index) {
  for (auto source = sources_.begin(); source != sources_.end(); ++source) {
    HostHead& taken = taken_[*source];
    while (NumberOf(taken.step) < number() && carrier_->Take(*source, &taken)) continue;
    if (NumberOf(taken.step) < number() || NumberOf(taken.step) == number() + 1) continue;
    *index = *source;
    sources_.erase(source);
    return true;
  }
  return false;
}

bool Step::AnyArrived() const {
  return std::any_of(awaited_.begin(), awaited_.end(),
                     [&](int r) { return endpoint_->HasBegun(r, number()); });
}

Status Step::LossOfSource() const {
  for (const size_t index : sources_) {
    const Status loss = carrier_->LossOf(index);
    COLLOPS_CHECK_ARG(loss.ok(), loss.code(), CallText(agreement_->called(), number()),
                      " failed: ", endpoint_->Who(carrier_->source(index)),
                      " is lost: ", loss.message());
  }
  return Ok();
}

// The heads on the board say in what the ranks differ. All are awaited, as a rank that comes late
// may refuse.
Status Step::AwaitDifference() {
  endpoint_->RingAll();  // the other hosts need this host's
  return AwaitHeads(false, NoArrival);
}

}  // namespace collops::control
