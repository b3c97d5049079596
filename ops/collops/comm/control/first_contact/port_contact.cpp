#include "collops/comm/control/first_contact/port_contact.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <utility>

#include "collops/core/process/interrupt.h"

namespace collops::control {
namespace {

constexpr int kLeastPauseMs = 20;
constexpr int kMostPauseMs = 200;
// Longer than a listener needs to answer.
constexpr double kAnswerS = 1;

// A job that ends may still have the port of the next one; and who has it needs time to answer.
constexpr double kTakenS = 1;
// The name of a host that is being started may become known later than this process began.
constexpr double kLookAgainS = 0.5;
constexpr double kLookForS = 30;
// The port gets the word of a rank that leaves by then, also where the time for it has passed.
constexpr double kLastWordS = 0.2;

}  // namespace

// The first attempt is at once, each later one after a longer pause.
void Connector::Connect(const SocketAddress& to) {
  to_ = to;
  answer_ = Deadline::After(kAnswerS);
  client_.emplace(Connection(to), secret_, claim_);
}

Status Connector::Step(const SocketAddress& to) {
  if (proven_ || !pause_.Passed()) return Ok();
  if (!client_) Connect(to);
  switch (client_->Step()) {
    case Proof::kUnderWay:
      return Ok();
    case Proof::kRefused: {
      const Status refusal = client_->refusal();
      last_failure_ = refusal.message();
      const bool may_retry = client_->may_retry();
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

bool Connector::TakeFailed() {
  return std::exchange(failed_, false);
}

void Connector::Drop() {
  client_.reset();
  proven_ = false;
  pause_ms_ = std::clamp(2 * pause_ms_, kLeastPauseMs, kMostPauseMs);
  constexpr double kMs = 1e-3;
  pause_ = Deadline::After(pause_ms_ * kMs);
}

void Connector::AddPolled(std::vector<pollfd>* polled) const {
  if (client_) polled->push_back(client_->connection().Polled());
}

// An attempt that has just begun says less than the last one.
std::string Connector::Failure() const {
  if (!client_ || !(last_failure_.empty() || answer_.Passed())) return last_failure_;
  const bool reached = client_->connection().state() == ConnectionState::kOpen;
  return Concat(to_.Text(), reached ? " accepted the connection, but has sent nothing"
                                    : " does not answer attempts to connect");
}

struct Lookup::Answer {
  Status status;
  SocketAddress address;
  std::atomic<bool> done{false};
};

Lookup::Lookup(const std::string& host, int port) : answer_(std::make_shared<Answer>()) {
  answer_->done = ParseNumeric(host, port, &answer_->address);
  if (answer_->done) return;
  const auto look = [host, port, answer = answer_] {
    answer->status = Resolve(host, port, &answer->address);
    answer->done.store(true, std::memory_order_release);
  };
  // Signals go to the user's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(look).detach();
  } catch (const std::system_error&) {
    look();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool Lookup::Done(Status* status, SocketAddress* address) const {
  if (!answer_->done.load(std::memory_order_acquire)) return false;
  *status = answer_->status;
  if (status->ok()) *address = answer_->address;
  return true;
}

PortContact::PortContact(const RendezvousSpec* spec, const char* purpose)
    : spec_(spec),
      connector_(&spec->secret, {spec->domain, purpose, spec->rank, spec->rank_size}) {}

void PortContact::Begin() {
  bool taken = false;
  if (!spec_->has_port || !ParseNumeric(spec_->host, spec_->port, &address_)) return;
  // Step() tries again, and reports an error.
  static_cast<void>(JobPort::Share(address_, spec_->secret, &port_, &taken));
}

Status PortContact::FindAddress() {
  if (address_.length != 0) return Ok();
  if (!look_until_) look_until_ = Deadline::After(kLookForS);
  if (!look_again_.Passed()) return Ok();
  if (!lookup_) lookup_.emplace(spec_->host, spec_->port);
  Status found;
  if (!lookup_->Done(&found, &address_) || found.ok()) return Ok();
  if (look_until_->Passed()) return found;
  not_found_ = found.message();
  lookup_.reset();
  look_again_ = Deadline::After(kLookAgainS);
  return Ok();
}

// Where another process of this job has the port, that one introduces, for as long as it lives.
Status PortContact::KeepPort() {
  if (!spec_->has_port || port_ != nullptr || connector_.proven()) return Ok();
  bool taken = false;
  taken_ = JobPort::Share(address_, spec_->secret, &port_, &taken);
  if (taken_.ok() || !taken) return taken_;
  if (!taken_until_) taken_until_ = Deadline::After(kTakenS);
  return taken_until_->Passed() ? Taken() : Ok();
}

Status PortContact::Taken() const {
  const std::string who = connector_.Failure();
  return Error(taken_.code(), taken_.message(), who.empty() ? "" : ". Its owner: ", who);
}

Status PortContact::Step() {
  COLLOPS_RETURN_IF_ERROR(FindAddress());
  if (address_.length == 0) return Ok();
  COLLOPS_RETURN_IF_ERROR(KeepPort());
  const Status status = connector_.Step(address_);
  if (!status.ok() && !taken_.ok()) return Taken();
  return status;
}

std::string PortContact::Failure() const {
  if (address_.length == 0 && !not_found_.empty()) return not_found_;
  if (address_.length == 0) return Concat("the name \"", spec_->host, "\" is still being resolved");
  return connector_.Failure();
}

PortMessage PortContact::OwnRequest() const {
  PortMessage request;
  request.pid = getpid();
  request.meeting = spec_->meeting;
  return request;
}

Status PortContact::Ask(const Listen& listen, std::optional<PortMessage>* answer) {
  COLLOPS_RETURN_IF_ERROR(Step());
  if (!proven()) return Ok();
  Connection& connection = connector_.connection();
  if (!asked_) {
    PortMessage request = OwnRequest();
    if (listen) COLLOPS_RETURN_IF_ERROR(listen(connection.own_address(), &request));
    asked_ = connection.Send(request.frame());
  }
  Frame frame;
  while (connection.Receive(&frame)) {
    PortNews news;
    PortMessage received;
    if (PortNews::Read(frame, &news)) {
      hearsay_.Take(news);
      continue;
    }
    if (!PortMessage::Read(frame, &received) || received.pid != 0) {
      connection.Break("sent an invalid frame");
      break;
    }
    COLLOPS_RETURN_IF_ERROR(received.reason);
    *answer = std::move(received);
  }
  if (connection.alive()) return Ok();
  connector_.Drop();
  asked_ = false;
  return Ok();
}

void PortContact::Finish(const Deadline& deadline) {
  if (proven()) connector_.connection().Finish(deadline);
  connector_.Drop();
  asked_ = false;
}

void PortContact::Leave(const Status& reason, const Deadline& deadline, const Deadline& patience) {
  while (!proven() && !(deadline.Passed() && patience.Passed())) {
    // Where nobody listens, nobody waits who could be told.
    if (!Step().ok() || (connector_.TakeFailed() && patience.Passed())) return;
    if (deadline.Passed() && Interrupted()) return;
    std::vector<pollfd> polled;
    AddPolled(&polled);
    if (!proven()) AwaitReady(std::move(polled));
  }
  if (!proven()) return;
  PortMessage request = OwnRequest();
  request.reason = reason;
  static_cast<void>(connector_.connection().Send(request.frame()));
  connector_.connection().Finish(Deadline::After(std::max(deadline.RemainingS(), kLastWordS)));
}

}  // namespace collops::control
