#include "comm/communicator.h"

#include <algorithm>
#include <random>
#include <vector>

#include "comm/registry.h"

namespace collops {
namespace {

// What each rank tells the others in a Split.
struct Choice {
  int64_t color;
  int64_t key;
  int64_t token;  // rank 0's names the split: no two splits, of any communicator, share it
};

constexpr int64_t kChoiceLength = sizeof(Choice) / sizeof(int64_t);

// The ranks with `color`, in the order of their keys and then of their ranks.
std::vector<int> Members(const std::vector<Choice>& choices, int64_t color) {
  std::vector<int> ranks;
  for (size_t r = 0; r < choices.size(); ++r) {
    if (choices[r].color == color) ranks.push_back(static_cast<int>(r));
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return choices[static_cast<size_t>(a)].key < choices[static_cast<size_t>(b)].key;
  });
  return ranks;
}

}  // namespace

Status Communicator::Split(int color, int key, std::shared_ptr<Communicator>* part) {
  std::vector<int64_t> counts(static_cast<size_t>(size()), kChoiceLength);
  std::vector<int64_t> displs(counts.size());
  for (size_t r = 0; r < displs.size(); ++r) displs[r] = static_cast<int64_t>(r) * kChoiceLength;
  const Choice own{color, key, std::random_device()()};
  std::vector<Choice> choices(counts.size());
  AllGatherVCall call;
  call.kind = CallKind::kSplit;
  call.dtype = DType::kInt64;
  call.x = &own;
  call.output = choices.data();
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  RETURN_IF_ERROR(AllGatherV(call));

  part->reset();
  if (color < 0) return Ok();
  const std::vector<int> members = Members(choices, color);
  CommunicatorSpec spec = spec_;
  spec.rank = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  spec.rank_size = static_cast<int>(members.size());
  spec.comm_domain = Concat(spec_.comm_domain, "/split ", choices[0].token, ".", color);
  return Registry::Instance().Get(spec, part);
}

}  // namespace collops
