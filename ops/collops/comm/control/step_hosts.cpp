// The agreement of a step whose heads a carrier takes to the other hosts: first the ranks of a host
// compare theirs on its board, then one rank of every host speaks for it. Refusals, disagreements
// and losses stay with the board and the watchers, which bring the details.
#include "collops/comm/control/step.h"
#include "collops/comm/user_calls.h"
#include "collops/core/trace/spans.h"

namespace collops::control {
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
    const auto nap = [&](auto&& awake, bool messages, int most_ms) {
      if (awake()) return;
      const Doze doze = messages ? duties_->doze() : Doze{-1, most_ms};
      if (doze.most_ms > 0) carrier_->Nap(doze);
    };
    const Status came = waiter_->Until(any, nap);
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
