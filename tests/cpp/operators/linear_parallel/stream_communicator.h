// Communicators of fake devices in one thread: a collective waits on its stream until the streams
// of all members have come to it. A program that includes this has no other backend.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/backends/backend_table.h"
#include "collops/comm/control/control.h"
#include "operators/linear_parallel/stream_device.h"

namespace stream_communicator {

using collops::BackendCommunicator;
using collops::Communicator;
using collops::Error;
using collops::KeepAlive;
using collops::Ok;
using collops::Status;
using collops::control::GroupSpec;
using stream_queues::Queues;

using Inputs = std::vector<std::vector<std::byte>>;

// What one rank brings to a collective. Counts are read when its stream has come to it.
struct Contribution {
  const void* x = nullptr;
  std::function<int64_t()> x_bytes;
  std::function<void(const Inputs&)> write;
  KeepAlive keep;
};

// The collectives of one group: the n-th call of each member is the same one.
class Group {
 public:
  explicit Group(size_t size) : next_(size) {}

  void Put(int rank, void* stream, Contribution contribution) {
    const auto own = static_cast<size_t>(rank);
    const size_t number = next_[own]++;
    while (calls_.size() <= number) calls_.push_back(std::make_shared<Call>(next_.size()));
    const std::shared_ptr<Call> call = calls_[number];
    call->contributions[own] = std::move(contribution);
    Queues::Put(stream, {[call] { call->Move(); },
                         [call, own] {
                           call->arrived[own] = true;
                           return call->Complete();
                         }});
  }

 private:
  struct Call {
    explicit Call(size_t size) : contributions(size), arrived(size) {}
    bool Complete() const {
      return std::find(arrived.begin(), arrived.end(), false) == arrived.end();
    }
    // The first member that gets here moves the data of all: all are read before any is written.
    void Move() {
      Inputs inputs;
      for (const Contribution& from : contributions) {
        const auto* const x = static_cast<const std::byte*>(from.x);
        const int64_t bytes = from.x_bytes();
        inputs.emplace_back(x, bytes == 0 ? x : x + bytes);
      }
      for (const Contribution& from : contributions) from.write(inputs);
      contributions.clear();
    }

    std::vector<Contribution> contributions;
    std::vector<bool> arrived;
  };

  std::vector<size_t> next_;
  std::vector<std::shared_ptr<Call>> calls_;
};

// All ranks, their devices and their groups.
struct World {
  World(int size, const stream_device::Options& options) : share(options.share) {
    for (int rank = 0; rank < size; ++rank) {
      devices.push_back(std::make_unique<stream_device::Device>(&queues, rank, options));
    }
  }
  std::shared_ptr<Group> GroupOf(const std::vector<int>& ranks) {
    std::shared_ptr<Group>& group = groups[ranks];
    if (group == nullptr) group = std::make_shared<Group>(ranks.size());
    return group;
  }

  Queues queues;
  std::vector<std::unique_ptr<stream_device::Device>> devices;
  std::map<std::vector<int>, std::shared_ptr<Group>> groups;
  const collops::DeviceShare share;
  int refused_collective = -1;  // each rank's collective of this number is an error
};

// What a communicator is made from.
struct Place {
  World* world;
  stream_device::Device* device;
  std::shared_ptr<Group> group;
  std::shared_ptr<int> collectives;  // that this rank has called, in all its groups
};

class StreamCommunicator : public BackendCommunicator {
 public:
  explicit StreamCommunicator(const GroupSpec& spec)
      : BackendCommunicator(std::make_shared<collops::control::Control>(spec)),
        place_(*std::static_pointer_cast<Place>(spec.engine_part)) {}
  ~StreamCommunicator() override { Close("it closed its communicator"); }

  collops::Device device() const override { return {collops::DeviceKind::kNpu, 0}; }
  collops::kernels::StreamCompute* stream_compute() override { return place_.device; }
  Status Supports(collops::Primitive /*primitive*/, collops::DType /*dtype*/,
                  collops::ReduceOp /*op*/) const override {
    return Ok();
  }
  collops::DeviceShare device_share() const override { return place_.world->share; }
  Status AllocateWindow(int64_t /*bytes*/, std::shared_ptr<collops::Window>* /*w*/) override {
    return Error(collops::ERROR_UNSUPPORTED, "no windows here");
  }
  Status KeepOnStream(const char* /*name*/, void* stream, KeepAlive kept) override {
    Queues::Put(stream, {[kept = std::move(kept)] {}});
    return Ok();
  }

 protected:
  Status DoAgree(const collops::Agreement& /*agreement*/) override { return Ok(); }
  Status DoAllGatherV(const collops::AllGatherVCall& call) override {
    const auto item = static_cast<size_t>(collops::SizeOf(call.dtype));
    const auto bytes = [call, item, own = rank()] {
      return call.recv_counts[own] * static_cast<int64_t>(item);
    };
    const auto write = [call, item](const Inputs& inputs) {
      auto* const output = static_cast<std::byte*>(call.output);
      for (size_t r = 0; r < inputs.size(); ++r) {
        if (inputs[r].empty()) continue;
        EXPECT_EQ(inputs[r].size(), static_cast<size_t>(call.recv_counts[r]) * item);
        std::memcpy(output + static_cast<size_t>(call.rdispls[r]) * item, inputs[r].data(),
                    inputs[r].size());
      }
    };
    return Put(call.stream, {call.x, bytes, write, call.keep});
  }
  Status DoReduceScatterV(const collops::ReduceScatterVCall& call) override {
    const auto bytes = [call, size = size()] {
      int64_t end = 0;
      for (int r = 0; r < size; ++r) end = std::max(end, call.sdispls[r] + call.send_counts[r]);
      return end * int64_t{sizeof(float)};
    };
    const auto write = [call, own = rank()](const Inputs& inputs) {
      EXPECT_EQ(call.output_count, call.send_counts[own]);
      Sum(inputs, call.sdispls[own], call.send_counts[own], call.output);
    };
    EXPECT_EQ(call.dtype, collops::DType::kFloat32);
    return Put(call.stream, {call.x, bytes, write, call.keep});
  }
  Status DoAllReduce(const collops::AllReduceCall& call) override {
    const auto bytes = [call] { return call.count * int64_t{sizeof(float)}; };
    const auto write = [call](const Inputs& inputs) { Sum(inputs, 0, call.count, call.output); };
    EXPECT_EQ(call.dtype, collops::DType::kFloat32);
    return Put(call.stream, {call.x, bytes, write, call.keep});
  }
  Status DoSplit(const std::vector<int>& members, int /*index*/, const std::string& /*name*/,
                 std::shared_ptr<void>* part) override {
    auto place = std::make_shared<Place>(place_);
    place->group = place_.world->GroupOf(members);
    *part = std::move(place);
    return Ok();
  }

 private:
  static void Sum(const Inputs& inputs, int64_t begin, int64_t count, void* output) {
    for (int64_t i = 0; i < count; ++i) {
      float sum = 0;
      for (const auto& x : inputs) sum += reinterpret_cast<const float*>(x.data())[begin + i];
      static_cast<float*>(output)[i] = sum;
    }
  }

  Status Put(void* stream, Contribution contribution) {
    COLLOPS_CHECK_ARG((*place_.collectives)++ != place_.world->refused_collective,
                      collops::ERROR_HCCL_FAIL, "the collective failed");
    place_.group->Put(rank(), stream, std::move(contribution));
    return Ok();
  }

  const Place place_;
};

// A communicator of all ranks.
inline std::shared_ptr<Communicator> Make(World* world, int rank) {
  static int number = 0;
  std::vector<int> all;
  for (size_t r = 0; r < world->devices.size(); ++r) all.push_back(static_cast<int>(r));
  GroupSpec spec;
  spec.backend = "fake";
  // The ranks' subgroups are in one registry.
  spec.comm_domain = collops::Concat("streams ", number++);
  spec.comm_mode = collops::COMM_MULTI_THREAD;
  spec.rank = rank;
  spec.rank_size = static_cast<int>(all.size());
  spec.engine_part =
      std::make_shared<Place>(Place{world, world->devices[static_cast<size_t>(rank)].get(),
                                    world->GroupOf(all), std::make_shared<int>(0)});
  return std::make_shared<StreamCommunicator>(spec);
}

}  // namespace stream_communicator

// The library's table is left out by the linker: subgroups are made from this one.
namespace collops {

const std::vector<Backend>& BackendTable() {
  static const std::vector<Backend> table = {
      {"fake", [] { return Ok(); },
       [](const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator) {
         *communicator = std::make_shared<stream_communicator::StreamCommunicator>(spec);
         return Ok();
       },
       [](int) { return int64_t{0}; }}};
  return table;
}

const Backend* FindBackend(const std::string& name) {
  return name == BackendTable()[0].name ? BackendTable().data() : nullptr;
}

}  // namespace collops
