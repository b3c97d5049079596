#pragma once

#include <memory>
#include <vector>

#include "collops/comm/backends/ucx/link.h"
#include "collops/comm/pairs/pair_wire.h"

namespace collops::ucx {

// The pair wires of one rank of a group on several hosts: UCX to ranks of other hosts, the shared
// memory of this host to the others, and none to itself. One thread at a time; waits in Flush()
// only. `link` outlives the last call before Abandon().
class UcxPairWire : public PairWire {
 public:
  explicit UcxPairWire(Link* link);
  ~UcxPairWire() override;

  WireStep PostEnvelope(int peer, const Envelope& envelope, const void* data,
                        int64_t bytes) override;
  WireStep NextVerdict(int peer, Verdict* verdict) override;
  WireStep SendBody(int peer, const void* data, int64_t bytes, int64_t* sent) override;
  WireStep NextEnvelope(int peer, Envelope* envelope) override;
  BodyStep TakeBody(int peer, const Envelope& envelope, void* data, int64_t bytes,
                    int64_t* taken) override;
  void DropBody(int peer, const Envelope& envelope) override;
  WireStep PostVerdict(int peer, const Verdict& verdict) override;
  WireStep RecvBody(int peer, void* data, int64_t bytes, int64_t* received) override;
  Status fault() const override { return broken_->fault(); }

  void Progress() override { remote_->Progress(); }
  bool HandedOver() override { return remote_->HandedOver(); }
  void Flush(const Deadline& deadline) override { remote_->Flush(deadline); }
  bool MayArrive(int peer) override { return route(peer).wire->MayArrive(route(peer).peer); }
  Status Loss(int peer) override { return route(peer).wire->Loss(route(peer).peer); }
  bool Rings(int peer) const override { return route(peer).wire->Rings(route(peer).peer); }
  int Arm() override { return remote_->Arm(); }
  void Abandon() override { remote_->Abandon(); }

 private:
  // The wire to a rank, and its number there.
  struct Route {
    PairWire* wire;
    int peer;
  };
  struct HostBell;

  const Route& route(int peer) const { return routes_[static_cast<size_t>(peer)]; }
  WireStep Noted(const Route& route, WireStep step) {
    if (step == WireStep::kBroken) broken_ = route.wire;
    return step;
  }

  std::unique_ptr<PairWire> remote_;
  std::unique_ptr<PairWire> self_;
  std::unique_ptr<HostBell> bell_;
  std::unique_ptr<PairWire> host_;  // null if this rank is alone on its host
  std::vector<Route> routes_;
  const PairWire* broken_;
};

}  // namespace collops::ucx
