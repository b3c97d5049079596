#pragma once

#include <cstddef>
#include <vector>

#include "comm/fused_call.h"
#include "operators/linear_parallel_run.h"

namespace collops {

// Of no more rows than this a panel of their own for each member would be half empty, and the
// weight would pass by once more for each: they are packed together once all of them are there.
constexpr int64_t kMostJoinedRows = 64;

bool JoinsRows(const LinearLayout& layout);

// The rows that are multiplied, packed as they come: one group of panels for each member that is
// gathered from, or one for all where they are few. Lives during one call; waits for no one.
class GatheredRows {
 public:
  struct Group {
    int64_t first_row = 0;  // among all gathered rows
    int64_t rows = 0;
    std::byte* panels = nullptr;
  };

  GatheredRows(const LinearPlan& plan, const LinearTensors& tensors, std::byte* workspace);

  // One for each member.
  const std::vector<Group>& groups() const { return groups_; }

  // Takes a part of the rows of a member, and copies it to where the gathered x is wanted.
  void Take(size_t member, const MatrixPart& part) const;

  // Few rows are packed when the first strip is multiplied: together if Join() was called, which
  // needs all of them to be there; else a member's by themselves before Pack(member) returns.
  bool joins() const { return raw_ != nullptr; }
  bool joined() const { return joined_.panels != nullptr; }
  void Join();
  const Group& all() const { return joined_; }
  void Pack(size_t member);

 private:
  void PackRaw(const Group& group) const;

  const LinearPlan& plan_;
  const LinearTensors& tensors_;
  const int64_t row_bytes_;
  std::vector<Group> groups_;
  std::vector<bool> packed_;
  Group joined_;
  std::byte* raw_ = nullptr;  // few rows as they are; null: rows are packed as they come
};

}  // namespace collops
