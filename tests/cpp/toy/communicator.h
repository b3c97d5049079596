#pragma once

#include <memory>
#include <utility>

#include "collops/comm/backend_communicator.h"
#include "toy/carrier.h"

namespace toy {

// A backend with only what every backend must have: three ways to move bytes, no windows; the rest
// is Control's and the default implementations'. Its ranks are threads of one process.
class ToyCommunicator : public collops::BackendCommunicator {
 public:
  explicit ToyCommunicator(std::shared_ptr<collops::control::Control> control)
      : BackendCommunicator(std::move(control)) {}
  ~ToyCommunicator() override { Close("it closed its communicator"); }

  collops::Status Supports(collops::Primitive primitive, collops::DType dtype,
                           collops::ReduceOp op) const override;
  collops::Status AllocateWindow(int64_t bytes, std::shared_ptr<collops::Window>* window) override;

 protected:
  void Connected() override;
  collops::Status DoAllGatherV(const collops::AllGatherVCall& call) override;
  collops::Status DoReduceScatterV(const collops::ReduceScatterVCall& call) override;
  collops::Status DoExchangeV(const collops::ExchangeVCall& call) override;

 private:
  // One step: all ranks agree, `move(offers)` reads the other ranks' offers, and no rank continues
  // before all have read.
  template <typename Move>
  collops::Status Run(const collops::Agreement& agreement, const Offer& offer, Move&& move);

  std::shared_ptr<Carrier> carrier_;  // set once first contact is complete
};

// The row of the backend table.
collops::Status Available();
collops::Status Create(const collops::control::GroupSpec& spec,
                       std::shared_ptr<collops::Communicator>* communicator);
int64_t SharedBytes(int rank_size);

}  // namespace toy
