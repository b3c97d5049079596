#include "collops/comm/control/tcp/first_contact/rendezvous.h"

#include <unistd.h>

#include <algorithm>

#include "collops/comm/control/tcp/host_identity.h"
#include "collops/core/process/interrupt.h"

namespace collops::control::tcp {

namespace {

constexpr double kLeaveS = 1;

}  // namespace

Rendezvous::Rendezvous(const RendezvousSpec& spec, const char* purpose)
    : spec_(spec), contact_(&spec_, purpose), own_door_(spec.secret) {}

void Rendezvous::Leave(const Status& reason) {
  PortContact contact(&spec_, kLeave);
  contact.Leave(reason, Deadline::After(kLeaveS));
}

Status Rendezvous::CheckWanted() const {
  COLLOPS_CHECK_ARG(!stopped_.load(std::memory_order_acquire), ERROR_ABORTED,
                    "first contact was stopped");
  COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, "first contact was interrupted");
  return Ok();
}

Status Rendezvous::MakeOwnRow(SocketAddress address) {
  address.set_port(0);
  if (!own_door_.open()) COLLOPS_RETURN_IF_ERROR(own_door_.Open(address));
  own_row_.rank = spec_.rank;
  own_row_.pid = getpid();
  own_row_.host = HostIdentity().substr(0, Row::kMostHostBytes);
  own_row_.address = own_door_.address().Host();
  own_row_.port = own_door_.address().port();
  own_row_.bytes = spec_.bytes;
  COLLOPS_CHECK_ARG(own_row_.bytes.size() <= Row::kMostBytes, ERROR_RT_FAIL, "rank ", spec_.rank,
                    " has ", own_row_.bytes.size(), " bytes for the other ranks: at most ",
                    Row::kMostBytes, " are allowed");
  return Ok();
}

std::string Rendezvous::Place() const {
  const std::string domain = spec_.domain.empty() ? "" : Concat(" \"", spec_.domain, "\"");
  return Concat("comm_domain", domain, " at ", spec_.host, " port ", spec_.port);
}

void Rendezvous::Sleep(std::vector<pollfd>* polled, int most_ms) {
  static_cast<void>(poll(polled->data(), polled->size(), std::max(most_ms, 0)));
}

}  // namespace collops::control::tcp
