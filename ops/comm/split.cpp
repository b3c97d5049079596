// Subgroups of a communicator: how the ranks tell each other which one they join. And how a
// communicator is closed, which the registry forgets then.

#include <algorithm>
#include <random>
#include <vector>

#include "comm/communicator.h"
#include "comm/control/control.h"
#include "comm/control/meetings/introduce.h"
#include "comm/pairs/messenger.h"
#include "comm/placement/rank_table/rank_table.h"
#include "comm/registry.h"

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

Status Communicator::MakeSubgroup(int color, int key, bool kept,
                                  std::shared_ptr<Communicator>* subgroup) {
  const Choice own{color, key, std::random_device()()};
  std::vector<Choice> choices(static_cast<size_t>(size()));
  RETURN_IF_ERROR(control_->Share(Agreement("Split").InPlainWords("split", 1), &own, sizeof(own),
                                  choices.data()));
  choices[static_cast<size_t>(rank())] = own;  // not what a peer may have written there
  subgroup->reset();
  std::vector<int> members;
  if (color >= 0) members = Members(choices, color);
  std::shared_ptr<control::Introduction> introduction;
  if (Spreads(control_->endpoint().group(), choices)) {
    RETURN_IF_ERROR(control::Introduce(control_.get(), members, &introduction));
  }
  if (color < 0) return Ok();
  Status made = GetSubgroup(members, color, choices[0].token, kept, introduction, subgroup);
  // The hosts meet now, while all ranks are in this call: later a rank could close its subgroup
  // without a word to other hosts.
  if (made.ok() && introduction != nullptr) made = (*subgroup)->Connect();
  if (!made.ok()) subgroup->reset();
  // An error of a subgroup does not end this group, unless the subgroup belongs to it.
  return made.ok() || kept ? made : control_->Excuse(made);
}

Status Communicator::GetSubgroup(const std::vector<int>& members, int color, int64_t token,
                                 bool kept,
                                 const std::shared_ptr<control::Introduction>& introduction,
                                 std::shared_ptr<Communicator>* subgroup) {
  CommunicatorSpec spec = this->spec();
  // A table that was not complete at creation has another text since.
  const std::string& completed = control_->endpoint().group().table_digest;
  if (spec.table != nullptr) {
    spec.table_digest = completed.empty() ? spec.table->digest : completed;
  }
  spec.table = nullptr;
  spec.meet_at.clear();
  spec.introduction = introduction;
  spec.one_host = introduction == nullptr;
  spec.timeout_s = timeout_s();
  spec.rank = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  spec.rank_size = static_cast<int>(members.size());
  spec.comm_domain = Concat(this->spec().comm_domain, "/split ", token, ".", color);
  // Until the subgroup has met, only its parent sees that a member will not come. A kept subgroup
  // lives no longer than its parent; another one does, so its members may leave the parent.
  const std::weak_ptr<control::Control> parent = control_;
  spec.watch = [parent, members, kept]() -> Status {
    const std::shared_ptr<control::Control> living = parent.lock();
    return living == nullptr ? Ok() : living->FindLossAmong(members, kept);
  };
  spec.parent = kept ? parent : std::weak_ptr<control::Control>();
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
}

}  // namespace collops
