#include "collops/comm/backends/ucx/pairs/pair_wire.h"

#include "collops/comm/backends/shm/communicator.h"
#include "collops/comm/backends/ucx/pairs/remote_wire.h"
#include "collops/comm/backends/ucx/pairs/self_wire.h"

namespace collops::ucx {

// Rings ranks of this host where they sleep: in the pair lane of the group, not of the host.
struct UcxPairWire::HostBell {
  control::Endpoint* endpoint;
  std::vector<int> ranks;  // of the group, by local index

  static void Ring(void* bell, int local) {
    auto* const own = static_cast<HostBell*>(bell);
    own->endpoint->Ring(own->ranks[static_cast<size_t>(local)], control::kPairLane);
  }
};

UcxPairWire::UcxPairWire(Link* link)
    : remote_(std::make_unique<RemoteWire>(link->pair_worker.get(), link->control->spec().rank,
                                           link->control->spec().rank_size)),
      self_(std::make_unique<SelfWire>()),
      bell_(std::make_unique<HostBell>(
          HostBell{&link->control->endpoint(), link->hosts.own_ranks()})),
      broken_(remote_.get()) {
  if (link->host != nullptr) {
    auto& host = static_cast<shm::ShmCommunicator&>(*link->host);  // ConnectLink() made it
    host_ = host.MakePairWire({&HostBell::Ring, bell_.get()});
  }
  const int rank = link->control->spec().rank;
  for (int peer = 0; peer < link->control->spec().rank_size; ++peer) {
    if (peer == rank) {
      routes_.push_back({self_.get(), peer});
    } else if (link->hosts.IsLocal(peer)) {
      routes_.push_back({host_.get(), link->hosts.LocalIndex(peer)});
    } else {
      routes_.push_back({remote_.get(), peer});
    }
  }
}

UcxPairWire::~UcxPairWire() = default;

WireStep UcxPairWire::PostEnvelope(int peer, const Envelope& envelope, const void* data,
                                   int64_t bytes) {
  const Route& to = route(peer);
  return Noted(to, to.wire->PostEnvelope(to.peer, envelope, data, bytes));
}

WireStep UcxPairWire::NextVerdict(int peer, Verdict* verdict) {
  const Route& to = route(peer);
  return Noted(to, to.wire->NextVerdict(to.peer, verdict));
}

WireStep UcxPairWire::SendBody(int peer, const void* data, int64_t bytes, int64_t* sent) {
  const Route& to = route(peer);
  return Noted(to, to.wire->SendBody(to.peer, data, bytes, sent));
}

WireStep UcxPairWire::NextEnvelope(int peer, Envelope* envelope) {
  const Route& from = route(peer);
  return Noted(from, from.wire->NextEnvelope(from.peer, envelope));
}

BodyStep UcxPairWire::TakeBody(int peer, const Envelope& envelope, void* data, int64_t bytes,
                               int64_t* taken) {
  const Route& from = route(peer);
  const BodyStep step = from.wire->TakeBody(from.peer, envelope, data, bytes, taken);
  if (step == BodyStep::kBroken) broken_ = from.wire;
  return step;
}

void UcxPairWire::DropBody(int peer, const Envelope& envelope) {
  route(peer).wire->DropBody(route(peer).peer, envelope);
}

WireStep UcxPairWire::PostVerdict(int peer, const Verdict& verdict) {
  const Route& from = route(peer);
  return Noted(from, from.wire->PostVerdict(from.peer, verdict));
}

WireStep UcxPairWire::RecvBody(int peer, void* data, int64_t bytes, int64_t* received) {
  const Route& from = route(peer);
  return Noted(from, from.wire->RecvBody(from.peer, data, bytes, received));
}

}  // namespace collops::ucx
