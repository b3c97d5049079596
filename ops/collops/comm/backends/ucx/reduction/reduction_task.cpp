#include "collops/comm/backends/ucx/reduction/reduction_task.h"

#include <algorithm>

#include "collops/kernels/reduce/reduce.h"
#include "collops/kernels/store_sum/running_sum.h"
#include "collops/kernels/store_sum/store_sum.h"

namespace collops::ucx {

Status ReductionTask::Look(const HostSlices& slices, bool* ready) {
  *ready = false;
  if (done() || (outgoing_ != nullptr && next_ >= outgoing_->sent() + Streams::kSlots)) return Ok();
  found_.clear();
  for (const TaskInput& input : inputs_) {
    const int64_t bytes = chunks_.chunk * (input.sums ? chunks_.sum_item : chunks_.item);
    const std::byte* data = nullptr;
    if (input.data != nullptr) {
      data = input.data + next_ * bytes;
    } else if (input.incoming == nullptr) {
      COLLOPS_RETURN_IF_ERROR(slices.Find(input.rank, owner_, next_, &data));
    } else if (input.incoming->arrived() > next_) {
      data = input.ring + next_ % Streams::kSlots * bytes;
    }
    if (data == nullptr) return Ok();
    found_.push_back(data);
  }
  *ready = true;
  return Ok();
}

void ReductionTask::Reduce() {
  const int64_t slot = outgoing_ == nullptr ? next_ : next_ % Streams::kSlots;
  std::byte* const to = output_ + slot * chunks_.chunk * ResultItem();
  const int64_t count = std::min(chunks_.chunk, count_ - next_ * chunks_.chunk);
  const bool all_elements =
      std::none_of(inputs_.begin(), inputs_.end(), [](const TaskInput& i) { return i.sums; });
  const bool in_float32 =
      chunks_.sum_item != chunks_.item && !(all_elements && result_ == StageResult::kFinished);
  in_float32 ? ReduceInFloat32(to, count) : ReduceElements(to, count);
  ++next_;
  for (const TaskInput& input : inputs_) {
    if (input.incoming != nullptr) input.incoming->Release(next_);
  }
  if (outgoing_ != nullptr) outgoing_->Offer(next_);
}

// Numbers of 16 bits, of which the accumulators cross.
void ReductionTask::ReduceInFloat32(std::byte* to, int64_t count) {
  const bool goes_on = inputs_.front().sums;
  const auto* const before = goes_on ? static_cast<const float*>(found_.front()) : nullptr;
  const void* const* const sources = found_.data() + (goes_on ? 1 : 0);
  const int number = static_cast<int>(found_.size()) - (goes_on ? 1 : 0);
  const bool finished = result_ == StageResult::kFinished;
  float* const sums = finished ? sums_ : reinterpret_cast<float*>(to);
  kernels::RunningSum(sums, before, sources, number, count, chunks_.dtype, chunks_.op);
  if (!finished) return;
  const bool average = chunks_.op == ReduceOp::kAvg;
  kernels::StoreSum(chunks_.dtype, &sums, 1, count, nullptr, 1, count, to, count,
                    average ? static_cast<float>(chunks_.ranks) : 1.0F);
}

// Numbers that are their own accumulators, or of which all slices are here. The owner divides.
void ReductionTask::ReduceElements(std::byte* to, int64_t count) {
  const bool average = chunks_.op == ReduceOp::kAvg;
  const bool finished = result_ == StageResult::kFinished;
  kernels::Reduce(to, found_.data(), static_cast<int>(found_.size()), count, chunks_.dtype,
                  average && !finished ? ReduceOp::kSum : chunks_.op,
                  outgoing_ == nullptr ? count_ * chunks_.item : 0, chunks_.ranks);
}

}  // namespace collops::ucx
