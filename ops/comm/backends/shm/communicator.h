#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "comm/backends/shm/exchange.h"
#include "comm/backends/shm/fused_call.h"
#include "comm/backends/shm/meeting.h"
#include "comm/communicator.h"
#include "core/fork_generation.h"

namespace collops::shm {

// The ranks of one host. Made without waiting; the first call, or Connect(), completes first
// contact. Thread-safety and waiting as Communicator says.
class ShmCommunicator : public Communicator {
 public:
  ShmCommunicator(const CommunicatorSpec& spec, const JobIdentity& job);
  ~ShmCommunicator() override;

  Status Connect() override;
  Status Supports(CallKind kind, DType dtype, ReduceOp op) const override;
  Status Refuse(CallKind kind, const Status& reason) override;
  Status Compare(const AllGatherVCall& call) override;
  Status Compare(const ReduceScatterVCall& call) override;
  Status FindLoss() override;
  Status FindLossAmong(const std::vector<int>& ranks, bool also_left) override;
  Status AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) override;
  bool HasWindows() const override { return true; }
  void Abort(const std::string& reason) override;
  void EndGroup(const Status& status) override;
  void Close(const std::string& reason) override;
  bool failed() const override { return failed_.load(std::memory_order_acquire); }

 protected:
  Status DoAllGatherV(const AllGatherVCall& call) override;
  Status DoReduceScatterV(const ReduceScatterVCall& call) override;
  Status DoBarrier() override;
  Status DoRunFused(const FusedCallSpec& spec, const FusedBody& body) override;

 private:
  // What exists once first contact is complete.
  struct Connection {
    Connection(Group group, int rank, int rank_size, WindowTable* windows)
        : endpoint(std::move(group), rank, rank_size),
          mail(&endpoint),
          exchange(&endpoint, windows, &mail),
          fused(&exchange, windows) {}
    Endpoint endpoint;
    WindowMail mail;
    Exchange exchange;
    ShmFusedCall fused;
  };

  // Of a failure: it ends all calls.
  static constexpr uint64_t kOutsideCalls = 0;

  // Runs `step` as this rank's only call: checks that it may, connects, and ends the group on an
  // error other than a refusal.
  template <typename Step>
  Status Run(const char* name, Step&& step);
  Status RunEmpty(const CallInfo& info);
  Status CheckUsable() const;
  Status CompleteMeeting();
  void ConnectTo(Group group);
  // `sequence`: the call that cannot end well; those before it can, on ranks that are not through.
  Status Fail(const Status& status, uint64_t sequence = kOutsideCalls);
  void FailLocked(const Status& status, uint64_t sequence);
  void End(const Status& status, bool leave, const std::string& reason);
  bool Inherited() const { return fork_generation_ != ForkGeneration(); }

  const JobIdentity job_;
  const uint64_t fork_generation_;
  const std::shared_ptr<WindowTable> windows_ = std::make_shared<WindowTable>();
  std::unique_ptr<Meeting> meeting_;
  std::unique_ptr<Connection> connection_;
  std::atomic<bool> busy_{false};
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;  // guards what Abort() and Close() from another thread may touch
  Status failure_;
  bool left_ = false;
};

}  // namespace collops::shm
