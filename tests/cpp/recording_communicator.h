// A communicator without peers: it records what an operator asks of it.
#ifndef COLLOPS_TESTS_CPP_RECORDING_COMMUNICATOR_H_
#define COLLOPS_TESTS_CPP_RECORDING_COMMUNICATOR_H_

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace collops {

class RecordingCommunicator : public Communicator {
 public:
  RecordingCommunicator(int rank, int rank_size) : Communicator(MakeSpec(rank, rank_size)) {}

  Status Connect() override { return Ok(); }
  Status Supports(CallKind kind, DType dtype, ReduceOp op) const override {
    asked = {kind, dtype, op};
    return supports;
  }
  Status DoAllGatherV(const AllGatherVCall& call) override {
    gathers.push_back(call);
    return result;
  }
  Status DoReduceScatterV(const ReduceScatterVCall& call) override {
    scatters.push_back(call);
    return result;
  }
  Status DoBarrier() override { return Ok(); }
  Status Refuse(CallKind kind, const Status& reason) override {
    refusals.push_back({kind, reason});
    return refuse_result;
  }
  Status AllocateWindow(int64_t, std::shared_ptr<Window>*) override {
    return Error(ERROR_UNSUPPORTED, "no windows here");
  }
  void Abort(const std::string&) override {}
  void Close(const std::string&) override {}
  bool failed() const override { return false; }

  struct Question {
    CallKind kind = CallKind::kBarrier;
    DType dtype = DType::kUndefined;
    ReduceOp op = ReduceOp::kAvg;
  };
  struct Refusal {
    CallKind kind;
    Status reason;
  };

  // The answers; a test may change them.
  Status supports;
  Status result;
  Status refuse_result;

  // The record.
  mutable Question asked;
  std::vector<AllGatherVCall> gathers;
  std::vector<ReduceScatterVCall> scatters;
  std::vector<Refusal> refusals;

 private:
  static CommunicatorSpec MakeSpec(int rank, int rank_size) {
    CommunicatorSpec spec;
    spec.backend = "shm";
    spec.rank = rank;
    spec.rank_size = rank_size;
    return spec;
  }
};

}  // namespace collops

#endif  // COLLOPS_TESTS_CPP_RECORDING_COMMUNICATOR_H_
