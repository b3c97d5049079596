#include "collops/comm/control/tcp/first_contact/approach.h"

#include <algorithm>
#include <utility>

namespace collops::control::tcp {
namespace {

constexpr int kLeastPauseMs = 20;
constexpr int kMostPauseMs = 200;
// Longer than a listener needs to answer.
constexpr double kAnswerS = 1;

}  // namespace

// The first attempt is at once, each later one after a longer pause.
void Approach::Connect(const SocketAddress& to) {
  to_ = to;
  answer_ = Deadline::After(kAnswerS);
  application_.emplace(Connection(to), secret_, claim_);
}

Status Approach::Step(const SocketAddress& to) {
  if (proven_ || !pause_.Passed()) return Ok();
  if (!application_) Connect(to);
  switch (application_->Step()) {
    case Proof::kUnderWay:
      return Ok();
    case Proof::kRefused: {
      const Status refusal = application_->refusal();
      last_failure_ = refusal.message();
      const bool may_retry = application_->may_retry();
      Drop();
      failed_ = true;
      return may_retry ? Ok() : refusal;
    }
    case Proof::kGiven:
      break;
  }
  proven_ = true;
  pause_ms_ = 0;
  return Ok();
}

bool Approach::TakeFailed() {
  return std::exchange(failed_, false);
}

void Approach::Drop() {
  application_.reset();
  proven_ = false;
  pause_ms_ = std::clamp(2 * pause_ms_, kLeastPauseMs, kMostPauseMs);
  constexpr double kMs = 1e-3;
  pause_ = Deadline::After(pause_ms_ * kMs);
}

void Approach::AddPolled(std::vector<pollfd>* polled) const {
  if (application_) polled->push_back(application_->connection().Polled());
}

// An attempt that has just begun says less than the last one.
std::string Approach::Failure() const {
  if (!application_ || !(last_failure_.empty() || answer_.Passed())) return last_failure_;
  const bool reached = application_->connection().link() == Link::kOpen;
  return Concat(to_.Text(), reached ? " accepted the connection, but has sent nothing"
                                    : " does not answer attempts to connect");
}

}  // namespace collops::control::tcp
