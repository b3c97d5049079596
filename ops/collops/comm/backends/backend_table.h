#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/backends/call_prediction.h"

namespace collops {

using Facts = std::vector<std::pair<std::string, std::string>>;

// One row per backend: its name, whether it can run here, how to create a communicator, and what a
// caller has to know of it.
struct Backend {
  const char* name;
  Status (*available)();  // Ok, or ERROR_UNSUPPORTED with the reason
  Status (*create)(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator);
  // Host memory that a communicator of `rank_size` ranks shares, without windows.
  int64_t (*shared_bytes)(int rank_size);
  // For a handle of the engine's own type that the caller passes; null if the backend takes none.
  // describe() sets rank, rank_size and comm_domain; adopt() makes a communicator on the handle.
  Status (*describe)(void* handle, CommunicatorSpec* spec) = nullptr;
  Status (*adopt)(const CommunicatorSpec& spec, void* handle,
                  std::shared_ptr<Communicator>* communicator) = nullptr;
  const char* memory = "cpu";  // where its tensors lie, in torch's word
  const char* sums = "";       // how its sums may differ from golden's bits; empty: they do not
  // The Python package whose folder may hold the engine's library, and who is told that folder.
  const char* wheel = "";
  void (*set_wheel_folder)(const std::string& folder) = nullptr;
  // What `collops doctor` prints of the engine, by name; null: nothing.
  Facts (*facts)() = nullptr;
  // What a call on several hosts would cost; null: nobody has modelled it.
  Status (*predict)(const CallToPredict& call, Prediction* prediction) = nullptr;
  // The chip that this machine has, where the engine's rules for rank tables differ by it.
  std::string (*soc)() = nullptr;
  // Where it is not available: tells the ranks of other hosts why this one does not come.
  void (*decline)(const control::GroupSpec& spec, const Status& reason) = nullptr;
};

// In the order in which messages list them.
const std::vector<Backend>& BackendTable();

// The row with that name, or null.
const Backend* FindBackend(const std::string& name);

}  // namespace collops
