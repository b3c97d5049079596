#pragma once

#include <cstddef>
#include <vector>

#include "comm/fused_call.h"
#include "operators/linear_parallel_run.h"

namespace collops {

// The rows that are multiplied, packed as they come: one group of panels for each member that is
// gathered from. Lives during one call; waits for no one.
class GatheredRows {
 public:
  struct Group {
    int64_t first_row = 0;  // among all gathered rows
    int64_t rows = 0;
    std::byte* panels = nullptr;
  };

  GatheredRows(const LinearPlan& plan, const LinearTensors& tensors, std::byte* workspace);

  const std::vector<Group>& groups() const { return groups_; }

  // Packs a part of the rows of a member, and copies it to where the gathered x is wanted.
  void Take(size_t member, const MatrixPart& part) const;

 private:
  const LinearPlan& plan_;
  const LinearTensors& tensors_;
  std::vector<Group> groups_;
};

}  // namespace collops
