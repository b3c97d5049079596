#include "collops/comm/control/meetings/introduce.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collops/comm/placement/job_place.h"
#include "collops/comm/placement/rank_table/rank_table.h"
#include "collops/core/env.h"

namespace collops::control {
namespace {

// Where a rank's host accepts connections, if it is the lowest of its subgroup there.
struct Card {
  char address[tcp::Row::kMostAddressBytes] = {};
  int32_t port = 0;
};

// `completed`: the digest of a rank table that was not complete at creation, else empty.
Status FindSecret(const CommunicatorSpec& spec, const std::string& completed,
                  tcp::JobSecret* secret) {
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
Status OpenDoor(Introduction* made, Card* card) {
  tcp::SocketAddress address;
  COLLOPS_RETURN_IF_ERROR(tcp::Resolve(made->address, 0, &address));
  COLLOPS_RETURN_IF_ERROR(made->door->Open(address));
  const std::string host = made->door->address().Host();
  std::strncpy(card->address, host.c_str(), sizeof(card->address) - 1);
  card->port = made->door->address().port();
  return Ok();
}

// The ranks of a subgroup that this rank joins: itself, and where its host listens.
Status Prepare(Control* parent, const std::vector<int>& members, Introduction* made, Card* card) {
  const Group& group = parent->endpoint().group();
  COLLOPS_RETURN_IF_ERROR(FindSecret(parent->spec(), group.table_digest, &made->secret));
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

}  // namespace collops::control
