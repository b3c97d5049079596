#pragma once

#include <string>
#include <vector>

#include "collops/comm/backends/ucx/engine/library.h"
#include "collops/core/process/fork_generation.h"
#include "collops/core/status.h"

namespace collops::ucx {

// UCX's context, with the settings of this backend where the user's environment has none. Not
// thread-safe; waits for no one. In a child of fork() it belongs to the parent, and is left alone.
class OwnContext {
 public:
  OwnContext() = default;
  OwnContext(const OwnContext&) = delete;
  OwnContext& operator=(const OwnContext&) = delete;
  ~OwnContext() { Close(); }

  // For connections to `peers` other processes.
  Status Open(const Library& library, int peers);
  void Close();

  bool IsMine() const { return handle_ != nullptr && generation_ == ForkGeneration(); }
  Context handle() const { return handle_; }

  // The transports with their devices, e.g. "tcp/eth0", as UCX lists them.
  std::vector<std::string> Transports() const;

 private:
  const Library* library_ = nullptr;
  uint64_t generation_ = 0;
  Context handle_ = nullptr;
};

// What `collops doctor` prints.
struct Report {
  std::string version;
  std::string path;
  std::string source;
  std::vector<std::string> transports;
  bool has_rdma = false;  // the library has transports for RDMA, and this host a device for them
  bool host_has_rdma = false;
  bool is_wheel = false;  // PyPI's, which has none
};

// Opens UCX. ERROR_UNSUPPORTED with the reason if this process can have no transport.
Status Describe(Report* report);

// Whether there is RDMA, and what to do where this host has it and the library does not.
std::string ShowRdma(const Report& report);

// One line: version, path, why this library, transports, RDMA.
std::string Show(const Report& report);

// UCX's words for a result, with its number.
std::string Explain(const Library& library, Result result);

}  // namespace collops::ucx
