// A communicator without peers, which records an operator's calls.
#ifndef COLLOPS_TESTS_CPP_RECORDING_COMMUNICATOR_H_
#define COLLOPS_TESTS_CPP_RECORDING_COMMUNICATOR_H_

#include <memory>
#include <string>
#include <vector>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/control/control.h"

namespace collops {

class RecordingCommunicator : public BackendCommunicator {
 public:
  RecordingCommunicator(int rank, int rank_size)
      : BackendCommunicator(std::make_shared<control::Control>(MakeSpec(rank, rank_size))) {}

  Device device() const override { return where; }
  Status Supports(Primitive primitive, DType dtype, ReduceOp op) const override {
    asked = {primitive, dtype, op};
    return supports;
  }
  Status DoAgree(const Agreement& agreement) override {
    Record(&agreement);
    return result.ok() ? Ok() : control().KeepGroupAfter(result);
  }
  Status DoAllGatherV(const AllGatherVCall& call) override {
    gathers.push_back(call);
    Record(call.agreement);
    return result.ok() ? Ok() : control().KeepGroupAfter(result);
  }
  Status DoReduceScatterV(const ReduceScatterVCall& call) override {
    scatters.push_back(call);
    Record(call.agreement);
    return result.ok() ? Ok() : control().KeepGroupAfter(result);
  }
  Status DoRefuse(const char* name, const Status& reason) override {
    refusals.push_back({name, reason});
    return refuse_result.ok() ? Ok() : control().KeepGroupAfter(refuse_result);
  }
  Status AllocateWindow(int64_t, std::shared_ptr<Window>*) override {
    return Error(ERROR_UNSUPPORTED, "no windows here");
  }

  struct Question {
    Primitive primitive = Primitive::kWindows;
    DType dtype = DType::kUndefined;
    ReduceOp op = ReduceOp::kAvg;
  };
  struct Refusal {
    std::string name;
    Status reason;
  };

  // Its answers, which a test may change.
  Status supports;
  Status result;
  Status refuse_result;
  Device where;

  // The recorded calls.
  mutable Question asked;
  std::vector<AllGatherVCall> gathers;
  std::vector<ReduceScatterVCall> scatters;
  std::vector<Refusal> refusals;
  std::vector<Agreement> agreements;  // of each call that has an agreement

 private:
  void Record(const Agreement* agreement) {
    if (agreement != nullptr) agreements.push_back(*agreement);
  }
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
