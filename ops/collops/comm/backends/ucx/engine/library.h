#pragma once

#include <string>
#include <vector>

#include "collops/comm/backends/ucx/engine/api.h"
#include "collops/core/process/fork_generation.h"
#include "collops/core/status.h"

namespace collops::ucx {

// UCX as it was opened in this process.
struct Library {
  Api api = {};
  std::string path;       // the file of libucp
  std::string source;     // why this one, e.g. "COLLOPS_UCX_LIBRARY"
  std::string version;    // "1.22.0"
  bool is_wheel = false;  // PyPI's, without RDMA
  unsigned major = 0;
  unsigned minor = 0;

  bool IsAtLeast(unsigned wanted_major, unsigned wanted_minor) const {
    return major != wanted_major ? major > wanted_major : minor >= wanted_minor;
  }
};

// The folder of the libraries in PyPI's wheel libucx, ".../libucx/lib"; empty, the default: there
// is none. The core does not know where packages lie, so the binding says it. Thread-safe; counts
// until UCX is open.
void SetWheelFolder(const std::string& folder);

// Opens UCX at the first call, and leaves it open: it has threads and static objects of its own.
// The first of these that can be opened: COLLOPS_UCX_LIBRARY, and then no other; what this process
// has already loaded; on a host with RDMA the system's; the wheel's; the system's. Thread-safe. If
// there is none: ERROR_UNSUPPORTED with every reason, and the next call tries again.
//
// While it opens the library it sets environment variables of UCX that the user has not set, since
// UCX reads them once, in its constructors: call it as late as possible.
Status Load(const Library** library);

// Whether this host has a device for RDMA, according to /sys/class/infiniband.
bool HostHasRdma();

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

// UCX's words for a result, with its number.
std::string Explain(const Library& library, Result result);

}  // namespace collops::ucx
