// Subgroups of a communicator: how the ranks tell each other which one they join. And how a
// communicator is closed, which the registry forgets then.

#include <algorithm>
#include <random>
#include <vector>

#include "collops/comm/communicator.h"
#include "collops/comm/control/control.h"
#include "collops/comm/control/meetings/introduce.h"
#include "collops/comm/pairs/messenger.h"
#include "collops/comm/placement/rank_table/rank_table.h"
#include "collops/comm/registry.h"
#include "collops/core/trace/recording.h"

namespace collops {
namespace {

// How long a rank waits for senders to read its verdicts before it leaves.
constexpr double kLastSettleS = 1.0;

// What each rank shares in a Split.
struct Choice {
  int64_t color;
  int64_t key;
  int64_t token;  // rank 0's names the split: no two splits, of any communicator, share it
};

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

// Whether any subgroup of the split is on several hosts; all ranks find the same.
bool Spreads(const control::Group& group, const std::vector<Choice>& choices) {
  return std::any_of(choices.begin(), choices.end(), [&](const Choice& choice) {
    return choice.color >= 0 && control::OnSeveralHosts(group, Members(choices, choice.color));
  });
}

}  // namespace

struct Communicator::Part {
  std::vector<int> members;
  std::string name;  // equal on its ranks, and no other subgroup's
  bool kept = false;
  std::shared_ptr<control::Introduction> introduction;
  std::shared_ptr<void> of_backend;
};

Status Communicator::DoSplit(const std::vector<int>& /*members*/, int /*index*/,
                             const std::string& /*name*/, std::shared_ptr<void>* /*part*/) {
  return Ok();
}

Status Communicator::MakeUnseen(const std::string& name, int color, const std::vector<int>& members,
                                std::shared_ptr<Communicator>* subgroup) {
  Part part;
  part.members = members;
  part.name = Concat("/", name, ".", color);
  part.kept = true;
  const auto own = std::find(members.begin(), members.end(), rank());
  const int index = static_cast<int>(own - members.begin());
  COLLOPS_RETURN_IF_ERROR(
      DoSplit(members, index, Concat(spec().comm_domain, part.name), &part.of_backend));
  return GetSubgroup(part, subgroup);
}

Status Communicator::MakeSubgroup(int color, int key, bool kept,
                                  std::shared_ptr<Communicator>* subgroup) {
  const Choice own{color, key, std::random_device()()};
  std::vector<Choice> choices(static_cast<size_t>(size()));
  COLLOPS_RETURN_IF_ERROR(control_->Share(Agreement("Split").InPlainWords("split", 1), &own,
                                          sizeof(own), choices.data()));
  choices[static_cast<size_t>(rank())] = own;  // not what a peer may have written there
  subgroup->reset();
  Part part;
  part.kept = kept;
  if (color >= 0) part.members = Members(choices, color);
  part.name = Concat("/split ", choices[0].token, ".", color);
  if (Spreads(control_->endpoint().group(), choices)) {
    COLLOPS_RETURN_IF_ERROR(control::Introduce(control_.get(), part.members, &part.introduction));
  }
  const auto place = std::find(part.members.begin(), part.members.end(), rank());
  const int index = color < 0 ? -1 : static_cast<int>(place - part.members.begin());
  COLLOPS_RETURN_IF_ERROR(
      DoSplit(part.members, index, Concat(spec().comm_domain, part.name), &part.of_backend));
  if (color < 0) return Ok();
  Status made = GetSubgroup(part, subgroup);
  // The hosts meet now, while all ranks are in this call: later a rank could close its subgroup
  // without a word to other hosts.
  if (made.ok() && part.introduction != nullptr) made = (*subgroup)->Connect();
  if (!made.ok()) subgroup->reset();
  // An error of a subgroup does not end this group, unless the subgroup belongs to it.
  return made.ok() || kept ? made : control_->Excuse(made);
}

Status Communicator::GetSubgroup(const Part& part, std::shared_ptr<Communicator>* subgroup) {
  const std::vector<int>& members = part.members;
  CommunicatorSpec spec = this->spec();
  spec.has_no_board = !control_->has_board();
  if (spec.table != nullptr && !spec.has_no_board) {
    // A table that was not complete at creation has another text since.
    const std::string& completed = control_->endpoint().group().table_digest;
    spec.table_digest = completed.empty() ? spec.table->digest : completed;
  }
  spec.table = nullptr;
  spec.meet_at.clear();
  spec.introduction = part.introduction;
  spec.one_host = part.introduction == nullptr;
  spec.engine_part = part.of_backend;
  spec.timeout_s = timeout_s();
  if (spec.top_rank < 0) spec.top_rank = rank();
  spec.rank = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  spec.rank_size = static_cast<int>(members.size());
  spec.comm_domain = Concat(this->spec().comm_domain, part.name);
  // Until the subgroup has met, only its parent sees that a member will not come. A kept subgroup
  // lives no longer than its parent; another one does, so its members may leave the parent.
  const std::weak_ptr<control::Control> parent = control_;
  spec.watch = [parent, members, kept = part.kept]() -> Status {
    const std::shared_ptr<control::Control> living = parent.lock();
    return living == nullptr ? Ok() : living->FindLossAmong(members, kept);
  };
  spec.parent = part.kept ? parent : std::weak_ptr<control::Control>();
  return Registry::Instance().Get(spec, subgroup);
}

void Communicator::Close(const std::string& reason) {
  OnLeave();
  // A peer that sees this rank leave takes messages without a verdict for lost.
  const bool connected = connected_.load(std::memory_order_acquire) && !control_->Inherited();
  if (connected && messenger_ != nullptr) messenger_->SettleAll(kLastSettleS);
  control_->Close(reason);
  EndStarted();
  OnClose();
  Registry::Forget(this);
  if (recording::On()) recording::Flush();
}

}  // namespace collops
