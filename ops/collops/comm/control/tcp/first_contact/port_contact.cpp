#include "collops/comm/control/tcp/first_contact/port_contact.h"

#include <unistd.h>

namespace collops::control::tcp {
namespace {

// A job that ends may still have the port of the next one; and who has it needs time to answer.
constexpr double kTakenS = 1;
constexpr int kLookMs = 50;
// The name of a host that is being started may become known later than this process began.
constexpr double kLookAgainS = 0.5;
constexpr double kLookForS = 30;

}  // namespace

PortContact::PortContact(const RendezvousSpec* spec, const char* purpose)
    : spec_(spec), approach_(&spec->secret, {spec->domain, purpose, spec->rank, spec->rank_size}) {}

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
  if (!spec_->has_port || port_ != nullptr || approach_.proven()) return Ok();
  bool taken = false;
  taken_ = JobPort::Share(address_, spec_->secret, &port_, &taken);
  if (taken_.ok() || !taken) return taken_;
  if (!taken_until_) taken_until_ = Deadline::After(kTakenS);
  return taken_until_->Passed() ? Taken() : Ok();
}

Status PortContact::Taken() const {
  const std::string who = approach_.Failure();
  return Error(taken_.code(), taken_.message(), who.empty() ? "" : ". Its owner: ", who);
}

Status PortContact::Step() {
  COLLOPS_RETURN_IF_ERROR(FindAddress());
  if (address_.length == 0) return Ok();
  COLLOPS_RETURN_IF_ERROR(KeepPort());
  const Status status = approach_.Step(address_);
  if (!status.ok() && !taken_.ok()) return Taken();
  return status;
}

std::string PortContact::Failure() const {
  if (address_.length == 0 && !not_found_.empty()) return not_found_;
  if (address_.length == 0) return Concat("the name \"", spec_->host, "\" is still being resolved");
  return approach_.Failure();
}

Said PortContact::OwnSaid() const {
  Said said;
  said.pid = getpid();
  said.meeting = spec_->meeting;
  return said;
}

Status PortContact::Ask(const Listen& listen, std::optional<Told>* told) {
  COLLOPS_RETURN_IF_ERROR(Step());
  if (!proven()) return Ok();
  Connection& connection = approach_.connection();
  if (!asked_) {
    Said said = OwnSaid();
    if (listen) COLLOPS_RETURN_IF_ERROR(listen(connection.own_address(), &said));
    asked_ = connection.Send(said.frame());
  }
  Frame frame;
  while (connection.Receive(&frame)) {
    Told answer;
    if (!Told::Read(frame, &answer)) {
      connection.Break("sent an invalid frame");
      break;
    }
    COLLOPS_RETURN_IF_ERROR(answer.reason);
    *told = std::move(answer);
  }
  if (connection.alive()) return Ok();
  approach_.Drop();
  asked_ = false;
  return Ok();
}

void PortContact::Finish(const Deadline& deadline) {
  if (proven()) approach_.connection().Finish(deadline);
  approach_.Drop();
  asked_ = false;
}

void PortContact::Leave(const Status& reason, const Deadline& deadline) {
  while (!proven() && !deadline.Passed()) {
    // Where nobody listens, nobody waits who could be told.
    if (!Step().ok() || approach_.TakeFailed()) return;
    std::vector<pollfd> polled;
    AddPolled(&polled);
    if (!proven()) static_cast<void>(poll(polled.data(), polled.size(), kLookMs));
  }
  if (!proven()) return;
  Said said = OwnSaid();
  said.reason = reason;
  static_cast<void>(approach_.connection().Send(said.frame()));
  approach_.connection().Finish(deadline);
}

}  // namespace collops::control::tcp
