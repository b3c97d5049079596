// Calls of LinearParallel on streams of fake devices: enqueued for all ranks, then run.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collops/operators/linear_parallel/engine.h"
#include "collops/operators/linear_parallel/product.h"
#include "operators/linear_parallel/linear_call.h"
#include "operators/linear_parallel/stream_communicator.h"

namespace stream_call {

using linear_call::Case;
using stream_queues::Queues;

// One rank's tensors in one call: what it passes, and what must come out.
struct Data {
  std::vector<std::byte> x, weight, residual, output, gathered;
};

// A case and its data, [rank][call].
struct Job {
  Case shape;
  std::vector<std::vector<Data>> data;
};

// `num_calls` calls, one after the other, with other data each.
inline Job MakeJob(const Case& c, int num_calls) {
  Job job{c, std::vector<std::vector<Data>>(static_cast<size_t>(linear_call::NumRanks(c)))};
  for (int rank = 0; rank < linear_call::NumRanks(c); ++rank) {
    for (Case call = c; call.seed < c.seed + num_calls; ++call.seed) {
      const auto stored = [&](linear_call::Tensor tensor, int64_t count) {
        return linear_call::Stored(c.dtype, linear_call::Numbers(call, true, rank, tensor, count));
      };
      Data data;
      data.x = stored(linear_call::kX, linear_call::RowsOf(c, rank) * c.k);
      data.weight = stored(linear_call::kWeight, c.n * c.k);
      data.residual = stored(linear_call::kResidual, c.n);
      data.output = linear_call::Expected(call, rank);
      if (c.gathered) data.gathered = linear_call::Gathered(call, true, rank);
      job.data[static_cast<size_t>(rank)].push_back(std::move(data));
    }
  }
  return job;
}

struct How {
  stream_queues::Order order = stream_queues::Order::kCallersFirst;
  stream_device::Options device = {};
  int refused_collective = -1;
};

// What came out on one rank.
struct RankResult {
  std::vector<collops::Status> statuses;  // of each call
  // Whether the caller's stream finds the right outputs behind each call.
  std::vector<bool> right;
  size_t late_tasks = 0;  // on the side stream when the caller's stream is past the last call
  size_t chunks = 0;
  size_t strips = 0;
  int num_waits = 0;
  int num_steps = 0;  // products, conversions and stores
};

struct Result {
  bool ended = false;  // else something waits for ever
  std::vector<std::string> complaints;
  std::vector<RankResult> ranks;

  bool right() const {
    bool all = ended;
    for (const RankResult& rank : ranks) {
      all = all && std::find(rank.right.begin(), rank.right.end(), false) == rank.right.end();
    }
    return all;
  }
};

// Plans a rank's call for kStreams.
inline collops::Status MakePlan(const Case& c, collops::Communicator* comm,
                                const collops::LinearParallelParam& param,
                                collops::LinearPlan* plan) {
  const int64_t rows = linear_call::RowsOf(c, comm->rank());
  const std::vector<int64_t> weight =
      c.trans_weight ? std::vector<int64_t>{c.n, c.k} : std::vector<int64_t>{c.k, c.n};
  std::vector<collops::TensorDesc> inputs = {linear_call::Desc(c.dtype, {rows, c.k}),
                                             linear_call::Desc(c.dtype, weight)};
  if (c.residual) inputs.push_back(linear_call::Desc(c.dtype, {c.n}));
  COLLOPS_RETURN_IF_ERROR(
      MakeLinearLayout(param, comm->rank(), comm->size(), inputs, &plan->layout));
  plan->rank_size = comm->size();
  plan->dtype = plan->output_dtype = c.dtype;
  plan->stream_compute = comm->stream_compute();
  plan->communicator = comm;
  plan->has_residual = c.residual;
  plan->returns_gathered = c.gathered;
  plan->engine = &collops::kStreams;
  return PlanLinear(plan);
}

// One rank's tensors and its calls.
class Rank {
 public:
  Rank(const Job& job, stream_communicator::World* world, int rank)
      : case_(job.shape),
        rank_(rank),
        device_(world->devices[static_cast<size_t>(rank)].get()),
        comm_(stream_communicator::Make(world, rank)) {
    for (const Data& data : job.data[static_cast<size_t>(rank)]) Enqueue(data);
    result_.num_waits = device_->num_waits();
    result_.num_steps = device_->num_steps();
  }

  const RankResult& result() const { return result_; }

 private:
  using Bytes = std::vector<std::byte>;

  // A plan and its agreement are gone when this returns, but for what the calls keep.
  void Enqueue(const Data& data) {
    const auto plan = std::make_shared<collops::LinearPlan>();
    const collops::LinearParallelParam param = linear_call::MakeParam(case_, rank_);
    ASSERT_EQ(MakePlan(case_, comm_.get(), param, plan.get()).message(), "");
    result_.chunks = plan->schedule->gathers.size();
    result_.strips = plan->schedule->strips.size();
    if (result_.statuses.empty()) Allocate(*plan, data);
    Fill(data);
    collops::LinearTensors tensors;
    tensors.x = x_.data();
    tensors.weight = weight_.data();
    if (case_.residual) tensors.residual = residual_.data();
    tensors.output = output_.data();
    if (case_.gathered) tensors.gathered = gathered_.data();
    collops::Agreement agreement("LinearParallel");
    AddLinearTerms(param, *plan, &agreement);
    result_.statuses.push_back(RunLinear(*plan, tensors, agreement, workspace_.data() + 1,
                                         comm_.get(), device_->caller(), plan));
    Read(data);
  }

  void Allocate(const collops::LinearPlan& plan, const Data& data) {
    x_.resize(data.x.size());
    weight_.resize(data.weight.size());
    residual_.resize(data.residual.size());
    output_.resize(data.output.size());
    gathered_.resize(data.gathered.size());
    workspace_.resize(static_cast<size_t>(plan.memory.bytes) + 1);
    PoisonAll();
  }

  void PoisonAll() {
    for (Bytes* const bytes : {&x_, &weight_, &residual_, &output_, &gathered_, &workspace_}) {
      stream_device::Poison(bytes->data(), static_cast<int64_t>(bytes->size()));
    }
  }

  // The caller's kernel before the call: it writes the inputs.
  void Fill(const Data& data) {
    Queues::Put(device_->caller(), {[&data, this] {
                  std::copy(data.x.begin(), data.x.end(), x_.begin());
                  std::copy(data.weight.begin(), data.weight.end(), weight_.begin());
                  std::copy(data.residual.begin(), data.residual.end(), residual_.begin());
                }});
  }

  // The caller's kernel after the call: it reads the outputs, and all memory has other uses then.
  void Read(const Data& data) {
    Queues::Put(device_->caller(), {[&data, this] {
                  result_.right.push_back(output_ == data.output && gathered_ == data.gathered);
                  result_.late_tasks = Queues::Waiting(device_->side());
                  PoisonAll();
                }});
  }

  const Case case_;
  const int rank_;
  stream_device::Device* const device_;
  const std::shared_ptr<collops::Communicator> comm_;
  Bytes x_, weight_, residual_, output_, gathered_, workspace_;
  RankResult result_;
};

inline Result Run(const Job& job, const How& how) {
  const auto num_ranks = static_cast<int>(job.data.size());
  stream_communicator::World world(num_ranks, how.device);
  world.refused_collective = how.refused_collective;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    ranks.push_back(std::make_unique<Rank>(job, &world, rank));
  }
  Result result;
  result.ended = world.queues.Run(how.order);
  result.complaints = world.queues.complaints();
  for (const auto& rank : ranks) result.ranks.push_back(rank->result());
  return result;
}

}  // namespace stream_call
