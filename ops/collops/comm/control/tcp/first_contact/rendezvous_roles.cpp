#include "collops/comm/control/tcp/first_contact/rendezvous_roles.h"

namespace collops::control::tcp {

std::unique_ptr<Rendezvous> Rendezvous::Create(const RendezvousSpec& spec) {
  if (spec.rank == 0) return std::make_unique<RendezvousLeader>(spec);
  return std::make_unique<RendezvousMember>(spec);
}

}  // namespace collops::control::tcp
