// Subgroups of a communicator: how the ranks tell each other which one they join.

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/call_scope.h"
#include "collops/comm/control/control.h"
#include "collops/comm/control/first_contact/connection.h"
#include "collops/comm/control/first_contact/hosts_meeting.h"
#include "collops/comm/control/hosts/mesh.h"
#include "collops/comm/placement/placement.h"
#include "collops/comm/placement/rank_table.h"
#include "collops/comm/registry.h"
#include "collops/core/env.h"

namespace collops {
namespace {

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

// Where a rank's host accepts connections, if it is the lowest of its subgroup there.
struct Card {
  char address[control::Row::kMostAddressBytes] = {};
  int32_t port = 0;
};

// `completed`: the digest of a rank table that was not complete at creation, else empty.
Status FindSecret(const control::GroupSpec& spec, const std::string& completed,
                  control::JobSecret* secret) {
  std::string digest = completed;
  if (digest.empty()) digest = spec.table == nullptr ? spec.table_digest : spec.table->digest;
  if (digest.empty()) COLLOPS_RETURN_IF_ERROR(FindJobDigest(&digest));
  JobIdentity job;
  COLLOPS_RETURN_IF_ERROR(
      FindMeetingPlace(spec.comm_mode == COMM_MULTI_THREAD, spec.job_id, digest, &job));
  Env env;
  COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
  *secret = {job.id, env.job_key};
  return Ok();
}

// Listens at this host's address, at a free port.
Status OpenListener(const std::string& own_address, control::JobListener* listener, Card* card) {
  control::SocketAddress address;
  COLLOPS_RETURN_IF_ERROR(control::Resolve(own_address, 0, &address));
  COLLOPS_RETURN_IF_ERROR(listener->Open(address));
  const std::string host = listener->address().Host();
  std::strncpy(card->address, host.c_str(), sizeof(card->address) - 1);
  card->port = listener->address().port();
  return Ok();
}

// The ranks of a subgroup that this rank joins: itself, and where its host listens.
Status Prepare(control::Control* parent, const std::vector<int>& members,
               control::Introduction* made, std::shared_ptr<control::Lobby>* lobby, Card* card) {
  const control::Group& group = parent->endpoint().group();
  COLLOPS_RETURN_IF_ERROR(FindSecret(parent->spec(), group.table_digest, &made->secret));
  made->address = group.address;
  made->lobby = *lobby =
      std::make_shared<control::Lobby>(std::make_unique<control::JobListener>(made->secret));
  const auto lowest = std::find_if(members.begin(), members.end(), [&](int member) {
    return group.peers[static_cast<size_t>(member)].host == group.host;
  });
  return *lowest == parent->spec().rank ? OpenListener(made->address, &(*lobby)->listener(), card)
                                        : Ok();
}

// A call of `parent` in which the ranks of each subgroup on several hosts tell each other where
// their hosts accept connections. Every rank of the parent makes it. `members`: this rank's
// subgroup, in its order; *introduction stays null if it is on one host, or empty. A rank that
// cannot listen refuses the call.
Status Introduce(control::Control* parent, const std::vector<int>& members,
                 std::shared_ptr<control::Introduction>* introduction,
                 std::shared_ptr<control::Lobby>* lobby) {
  const control::Group& group = parent->endpoint().group();
  Card own;
  std::shared_ptr<control::Introduction> made;
  if (control::OnSeveralHosts(group, members)) {
    made = std::make_shared<control::Introduction>();
    const Status prepared = Prepare(parent, members, made.get(), lobby, &own);
    if (!prepared.ok()) {
      COLLOPS_RETURN_IF_ERROR(parent->Refuse("split", prepared));
      return prepared;
    }
  }
  std::vector<Card> cards(static_cast<size_t>(parent->spec().rank_size));
  COLLOPS_RETURN_IF_ERROR(
      parent->Share(Agreement("Split").InPlainWords("split", 1), &own, sizeof(own), cards.data()));
  if (made == nullptr) return Ok();
  for (size_t i = 0; i < members.size(); ++i) {
    const auto member = static_cast<size_t>(members[i]);
    const Card& card = members[i] == parent->spec().rank ? own : cards[member];
    control::Row row;
    row.rank = static_cast<int>(i);
    row.pid = group.peers[member].pid;
    row.host = std::to_string(group.peers[member].host);
    row.address.assign(card.address, strnlen(card.address, sizeof(card.address)));
    row.port = card.port;
    made->rows.push_back(std::move(row));
  }
  *introduction = std::move(made);
  return Ok();
}

}  // namespace

struct BackendCommunicator::Part {
  std::vector<int> members;
  std::string name;  // equal on its ranks, and no other subgroup's
  bool kept = false;
  std::shared_ptr<control::Introduction> introduction;
  std::shared_ptr<control::Lobby> lobby;  // until its hosts have met
  std::shared_ptr<void> of_backend;
};

Status BackendCommunicator::MakeUnseen(const std::string& name, int color,
                                       const std::vector<int>& members,
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

Status BackendCommunicator::MakeSubgroup(int color, int key, bool kept,
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
    COLLOPS_RETURN_IF_ERROR(
        Introduce(control_.get(), part.members, &part.introduction, &part.lobby));
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
  return made.ok() || kept ? made : control_->KeepGroupAfter(made);
}

control::GroupSpec BackendCommunicator::SpecOfPart() const {
  control::GroupSpec spec = this->spec();
  spec.has_no_board = !control_->has_board();
  if (spec.table != nullptr && !spec.has_no_board) {
    // A table that was not complete at creation has another text since.
    const std::string& completed = control_->endpoint().group().table_digest;
    spec.table_digest = completed.empty() ? spec.table->digest : completed;
  }
  spec.table = nullptr;
  spec.meet_at.clear();
  spec.timeout_s = timeout_s();
  if (spec.top_rank < 0) spec.top_rank = rank();
  spec.device = device().kind == DeviceKind::kCpu ? -1 : device().index;
  spec.introduction = nullptr;
  spec.one_host = true;
  spec.engine_part = nullptr;
  spec.watch = nullptr;
  spec.parent.reset();
  spec.old_ranks.clear();
  spec.meeting.clear();
  return spec;
}

Status BackendCommunicator::GetSubgroup(const Part& part, std::shared_ptr<Communicator>* subgroup) {
  const std::vector<int>& members = part.members;
  control::GroupSpec spec = SpecOfPart();
  spec.introduction = part.introduction;
  spec.one_host = part.introduction == nullptr;
  spec.engine_part = part.of_backend;
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
  if (part.kept) spec.parent = parent;
  return Registry::Instance().Get(spec, subgroup);
}

Status Communicator::Split(int color, int key, std::shared_ptr<Communicator>* subgroup) {
  CallScope scope(&backend(), "split");
  return scope.Run([&] { return backend().MakeSubgroup(color, key, false, subgroup); });
}

Status Communicator::KeptSplit(const std::string& name, int color, const std::vector<int>& members,
                               std::shared_ptr<Communicator>* subgroup) {
  BackendCommunicator& group = backend();
  CallScope scope(&group, "split", CallScope::Kind::kUntraced);
  return scope.Run([&]() -> Status {
    const auto kept = group.kept_subgroups_.find(name);
    if (kept != group.kept_subgroups_.end()) {
      *subgroup = kept->second;
      return Ok();
    }
    scope.BecomeGroupCall();
    const auto own = std::find(members.begin(), members.end(), rank());
    const int key = static_cast<int>(own - members.begin());
    COLLOPS_RETURN_IF_ERROR(group.control_->has_board()
                                ? group.MakeSubgroup(color, key, true, subgroup)
                                : group.MakeUnseen(name, color, members, subgroup));
    group.kept_subgroups_[name] = *subgroup;
    return Ok();
  });
}

}  // namespace collops
