// One small call of each kind, for cases in which a call fails.
#pragma once

#include "conformance/ground.h"
#include "conformance/numbers.h"

namespace conformance {

using collops::Agreement;
using collops::Communicator;
using collops::DType;
using collops::Status;

enum class Kind { kGather, kReduce, kExchange, kAllReduce, kBroadcast, kBarrier, kShare };
constexpr int kNumKinds = 7;

// The agreement of a call; `changed`: it differs from what the other ranks pass.
inline Agreement TermsOf(Kind kind, bool changed) {
  constexpr const char* kNames[kNumKinds] = {
      "AllGatherV", "ReduceScatterV", "AllToAllV", "AllReduce", "Broadcast", "Barrier", "Share"};
  Agreement agreement(kNames[static_cast<int>(kind)]);
  agreement.EqualText("dtype", "int32").Equal("count", changed ? 5 : 4);
  return agreement;
}

// A call with four elements of each rank, and poison around its output.
class Attempt {
 public:
  Attempt(Kind kind, bool changed, Communicator* comm)
      : kind_(kind),
        comm_(comm),
        agreement_(TermsOf(kind, changed)),
        counts_(At(comm->size()), 4),
        displs_(Displacements(counts_, false, 0)),
        x_(At(comm->size()) * 4, 1),
        output_(x_.size(), kNothing) {}

  Status Run() {
    switch (kind_) {
      case Kind::kGather:
        return Gather();
      case Kind::kReduce:
        return Reduce();
      case Kind::kExchange:
        return Exchange();
      case Kind::kAllReduce:
        return AllReduce();
      case Kind::kBroadcast:
        return Broadcast();
      case Kind::kBarrier:
        return Made(*comm_, [&] { return comm_->Agree(agreement_); });
      case Kind::kShare:
        return Made(*comm_, [&] { return comm_->Share(agreement_, x_.data(), 4, output_.data()); });
    }
    return collops::Ok();
  }
  bool Untouched() const {
    return std::count(output_.begin(), output_.end(), kNothing) ==
           static_cast<std::ptrdiff_t>(output_.size());
  }

 private:
  static constexpr int32_t kNothing = -77;

  template <typename Call>
  Call Common() {
    Call call;
    call.agreement = &agreement_;
    call.dtype = DType::kInt32;
    return call;
  }
  Status Gather() {
    auto call = Common<collops::AllGatherVCall>();
    call.x = x_.data();
    call.output = output_.data();
    call.recv_counts = counts_.data();
    call.rdispls = displs_.data();
    return Made(*comm_, [&] { return comm_->AllGatherV(call); });
  }
  Status Reduce() {
    auto call = Common<collops::ReduceScatterVCall>();
    call.x = x_.data();
    call.output = output_.data();
    call.output_count = 4;
    call.send_counts = counts_.data();
    call.sdispls = displs_.data();
    return Made(*comm_, [&] { return comm_->ReduceScatterV(call); });
  }
  Status Exchange() {
    auto call = Common<collops::ExchangeVCall>();
    call.x = x_.data();
    call.output = output_.data();
    call.send_counts = call.recv_counts = counts_.data();
    call.sdispls = call.rdispls = displs_.data();
    return Made(*comm_, [&] { return comm_->ExchangeV(call); });
  }
  Status AllReduce() {
    auto call = Common<collops::AllReduceCall>();
    call.x = x_.data();
    call.output = output_.data();
    call.count = 4;
    return Made(*comm_, [&] { return comm_->AllReduce(call); });
  }
  Status Broadcast() {
    auto call = Common<collops::BroadcastCall>();
    call.data = output_.data();
    call.count = 4;
    return Made(*comm_, [&] { return comm_->Broadcast(call); });
  }

  Kind kind_;
  Communicator* comm_;
  Agreement agreement_;
  List counts_;
  List displs_;
  std::vector<int32_t> x_;
  std::vector<int32_t> output_;
};

inline Status Try(Kind kind, Communicator& comm) {
  return Attempt(kind, false, &comm).Run();
}

}  // namespace conformance
