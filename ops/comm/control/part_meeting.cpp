#include "comm/control/part_meeting.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/control/control.h"
#include "comm/control/hosts_meeting.h"
#include "comm/placement/rank_table/rank_table.h"
#include "core/env.h"

namespace collops::control {
namespace {

// The longest name of a group that a proof covers: the end of a domain that many splits have made
// longer, which has the numbers that no two splits share.
constexpr size_t kMostNameBytes = 256;

std::string EndOf(const std::string& domain) {
  return domain.size() <= kMostNameBytes ? domain : domain.substr(domain.size() - kMostNameBytes);
}

// Where a rank's host accepts connections, if it is the lowest of its subgroup there.
struct Card {
  char address[tcp::Row::kMostAddressBytes] = {};
  int32_t port = 0;
};

Status FindSecret(const CommunicatorSpec& spec, tcp::JobSecret* secret) {
  JobIdentity job;
  RETURN_IF_ERROR(FindMeetingPlace(spec.comm_mode == COMM_MULTI_THREAD,
                                   spec.table == nullptr ? spec.table_digest : spec.table->digest,
                                   &job));
  Env env;
  RETURN_IF_ERROR(Env::Read(&env));
  *secret = {job.id, env.job_key};
  return Ok();
}

// Listens at this host's address, at a free port.
Status OpenDoor(Introduction* made, Card* card) {
  tcp::SocketAddress address;
  RETURN_IF_ERROR(tcp::Resolve(made->address, 0, &address));
  RETURN_IF_ERROR(made->door->Open(address));
  const std::string host = made->door->address().Host();
  std::strncpy(card->address, host.c_str(), sizeof(card->address) - 1);
  card->port = made->door->address().port();
  return Ok();
}

// The ranks of a subgroup that this rank joins: itself, and where its host listens.
Status Prepare(Control* parent, const std::vector<int>& members, Introduction* made, Card* card) {
  const Group& group = parent->endpoint().group();
  RETURN_IF_ERROR(FindSecret(parent->spec(), &made->secret));
  made->address = group.address;
  made->door = std::make_unique<tcp::Door>(made->secret);
  const auto lowest = std::find_if(members.begin(), members.end(), [&](int member) {
    return group.peers[static_cast<size_t>(member)].host == group.host;
  });
  return *lowest == parent->spec().rank ? OpenDoor(made, card) : Ok();
}

}  // namespace

bool OnSeveralHosts(const Group& group, const std::vector<int>& ranks) {
  return std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
    return group.peers[static_cast<size_t>(rank)].host !=
           group.peers[static_cast<size_t>(ranks.front())].host;
  });
}

Status Introduce(Control* parent, const std::vector<int>& members,
                 std::shared_ptr<Introduction>* introduction) {
  const Group& group = parent->endpoint().group();
  Card own;
  std::shared_ptr<Introduction> made;
  if (OnSeveralHosts(group, members)) {
    made = std::make_shared<Introduction>();
    const Status prepared = Prepare(parent, members, made.get(), &own);
    if (!prepared.ok()) {
      RETURN_IF_ERROR(parent->Refuse("Split", prepared));
      return prepared;
    }
  }
  std::vector<Card> cards(static_cast<size_t>(parent->spec().rank_size));
  RETURN_IF_ERROR(
      parent->Share(Agreement("Split").InPlainWords("split", 1), &own, sizeof(own), cards.data()));
  if (made == nullptr) return Ok();
  for (size_t i = 0; i < members.size(); ++i) {
    const auto member = static_cast<size_t>(members[i]);
    const Card& card = members[i] == parent->spec().rank ? own : cards[member];
    tcp::Row row;
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

PartMeeting::PartMeeting(const CommunicatorSpec& spec, const JobIdentity& job,
                         int64_t segment_bytes)
    : spec_(spec) {
  const std::vector<tcp::Row>& rows = introduction().rows;
  const std::vector<int> host_of = tcp::HostsOf(rows);
  for (size_t r = 0; r < rows.size(); ++r) ranks_.push_back({host_of[r], rows[r].pid});
  spec_.watch = [this, watch = spec.watch] {
    RETURN_IF_ERROR(CheckWanted());
    return watch ? watch() : Ok();
  };
  host_ = std::make_unique<HostRanks>(spec_, job, ranks_, introduction().address, segment_bytes);
}

void PartMeeting::Stop() {
  Meeting::Stop();
  host_->Stop();
}

Status PartMeeting::Complete(const Deadline& deadline, Group* group) {
  RETURN_IF_ERROR(host_->Complete(deadline, group));
  group->address = introduction().address;
  if (RanksOn(ranks_, group->host).front() != spec_.rank) return Ok();
  const std::string name = EndOf(spec_.comm_domain);
  const HostsToJoin hosts = {name, introduction().rows, introduction().secret,
                             introduction().door.get(), spec_.watch};
  return JoinHosts(spec_, hosts, deadline, group);
}

}  // namespace collops::control
