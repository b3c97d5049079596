#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "collops/comm/backends/ucx/link.h"
#include "collops/comm/backends/ucx/streams.h"
#include "collops/comm/call.h"

namespace collops::ucx {

// One call of a group on several hosts: all bytes between hosts go through UCX; a host's ranks
// share them over shared memory. The call must outlive it, since UCX may have addresses of both.
class CrossHostCall {
 public:
  virtual ~CrossHostCall() = default;
  CrossHostCall(const CrossHostCall&) = delete;
  CrossHostCall& operator=(const CrossHostCall&) = delete;

  // Before the step begins: the memory that the call needs. Local; after an error the call can
  // still be refused.
  virtual Status Prepare() { return Ok(); }
  // Before the agreement: small parts of this rank's input go with its head.
  virtual void Attach() {}
  // Once all ranks have agreed.
  virtual Status Run() = 0;

 protected:
  CrossHostCall(Link* link, const Agreement& agreement, DType dtype)
      : link_(link),
        hosts_(link->hosts),
        rank_(link->control->spec().rank),
        item_(SizeOf(dtype)),
        streams_(agreement.called(), link->worker.get(), &link->control->step(), rank_,
                 link->control->timeout_s()) {}

  Link* link_;
  const HostMap& hosts_;
  const int rank_;
  const int64_t item_;  // bytes of an element
  Streams streams_;
};

// Memory of this process for calls, kept from one to the next. Its contents are not. One thread;
// waits for no one.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { Free(); }

  // At least so many bytes at data(); ERROR_OUT_OF_HOST_MEMORY if the process can get no more.
  Status Reserve(int64_t bytes);
  // Between calls: gives the memory back if it is more than kMostKeptBytes.
  void Trim();
  void Free();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  static constexpr int64_t kMostKeptBytes = 256 << 20;

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// A block crosses once per destination host, cut over the ranks there.
std::unique_ptr<CrossHostCall> MakeAllGatherV(Link* link, const AllGatherVCall& call);
std::unique_ptr<CrossHostCall> MakeExchangeV(Link* link, const ExchangeVCall& call);

// In rank order. Every rank of another host sends its slice or, where that moves fewer bytes, the
// hosts pass on a running sum (planned_reduction.cpp). `scratch` must outlive it.
std::unique_ptr<CrossHostCall> MakeReduceScatterV(Link* link, const ReduceScatterVCall& call,
                                                  Scratch* scratch);
// Such a call by `plans`, one for each owner of a slice.
std::unique_ptr<CrossHostCall> MakePlannedReduction(Link* link, std::vector<ReductionPlan> plans,
                                                    const ReduceScatterVCall& call,
                                                    Scratch* scratch);

}  // namespace collops::ucx
