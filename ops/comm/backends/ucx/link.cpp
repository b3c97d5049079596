#include "comm/backends/ucx/link.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <utility>

#include "comm/backends/shm/communicator.h"
#include "comm/backends/shm/segment_layout.h"
#include "comm/backends/ucx/engine/tag.h"

namespace collops::ucx {
namespace {

constexpr char kFirstContact[] = "first contact of UCX";
constexpr size_t kMostAddressBytes = 1016;
// How long the group may take to say that a rank is lost which UCX cannot reach.
constexpr double kExplainS = 2.0;

// What a rank tells the others of itself.
struct Card {
  uint32_t address_bytes = 0;
  uint32_t token = 0;  // rank 0's names the communicators of the hosts
  char address[kMostAddressBytes] = {};
};

Status MakeCard(const Worker& worker, Card* card) {
  CHECK_ARG(worker.address().size() <= kMostAddressBytes, ERROR_UNSUPPORTED,
            "backend ucx: UCX's address has ", worker.address().size(), " bytes, the limit is ",
            kMostAddressBytes, ": set UCX_NET_DEVICES to the network that the hosts share");
  card->address_bytes = static_cast<uint32_t>(worker.address().size());
  card->token = std::random_device()();
  std::memcpy(card->address, worker.address().data(), worker.address().size());
  return Ok();
}

// One byte each way: UCX notices the loss of a peer only on a connection that was used.
Status SayHello(control::Control& control, const HostMap& hosts, Worker* worker) {
  const int rank = control.spec().rank;
  // Before the requests, whose destructors take this memory back from UCX.
  char sent = 0;
  std::vector<char> received(static_cast<size_t>(control.spec().rank_size));
  std::deque<Request> requests;
  for (const int host : hosts.OtherHosts()) {
    for (const int peer : hosts.RanksOf(host)) {
      const auto index = static_cast<size_t>(peer);
      requests.emplace_back();
      RETURN_IF_ERROR(worker->Receive(peer, Tag{0, peer, 0}.Of(TagKind::kData), &received[index], 1,
                                      &requests.back()));
      requests.emplace_back();
      RETURN_IF_ERROR(
          worker->Send(peer, Tag{0, rank, 0}.Of(TagKind::kData), &sent, 1, &requests.back()));
    }
  }
  const auto done = [&] {
    return std::all_of(requests.begin(), requests.end(),
                       [&](Request& request) { return worker->Test(&request); });
  };
  const Watch watch = {{}, [&] { return control.Peek(kFirstContact); }};
  RETURN_IF_ERROR(worker->Until(kFirstContact, done, watch, Deadline::After(control.timeout_s())));
  for (const Request& request : requests) RETURN_IF_ERROR(worker->StatusOf(request));
  return Ok();
}

Status Reach(const HostMap& hosts, const std::vector<Card>& cards, Worker* worker) {
  for (int rank = 0; rank < static_cast<int>(cards.size()); ++rank) {
    if (hosts.IsLocal(rank)) continue;
    const Card& card = cards[static_cast<size_t>(rank)];
    const size_t bytes = std::min<size_t>(card.address_bytes, kMostAddressBytes);
    RETURN_IF_ERROR(worker->Connect(rank, std::string(card.address, bytes)));
  }
  return Ok();
}

// A rank that has ended cannot be reached either: the group names it, within a moment.
Status Explained(const control::Control& control, const Status& failed) {
  const Deadline explained = Deadline::After(kExplainS);
  while (!failed.ok() && !explained.Passed()) {
    RETURN_IF_ERROR(control.Peek(kFirstContact));
    poll(nullptr, 0, 1);
  }
  return failed;
}

// A worker that is connected to all ranks of other hosts. *token: rank 0's.
Status ConnectWorker(control::Control* control, const HostMap& hosts,
                     std::unique_ptr<Worker>* worker, uint32_t* token) {
  const int ranks = control->spec().rank_size;
  RETURN_IF_ERROR(Worker::Create(ranks, worker));
  Card own;
  RETURN_IF_ERROR(MakeCard(**worker, &own));
  std::vector<Card> cards(static_cast<size_t>(ranks));
  RETURN_IF_ERROR(control->Share(Agreement(kFirstContact), &own, sizeof(own), cards.data()));
  *token = cards.front().token;
  Status met = Reach(hosts, cards, worker->get());
  if (met.ok()) met = SayHello(*control, hosts, worker->get());
  return Explained(*control, met);
}

// A failure in one of the two groups ends the other.
Status ConnectHost(const std::shared_ptr<control::Control>& parent, uint32_t token, Link* link) {
  const CommunicatorSpec& group = parent->spec();
  CommunicatorSpec spec;
  spec.backend = "shm";
  spec.comm_domain = group.comm_domain;
  spec.rank = link->hosts.own_index();
  spec.rank_size = static_cast<int>(link->hosts.own_ranks().size());
  spec.timeout_s = parent->timeout_s();
  spec.tuning = group.tuning;
  spec.parent = parent;
  const std::vector<int> members = link->hosts.own_ranks();
  const std::weak_ptr<control::Control> weak = parent;
  spec.watch = [weak, members]() -> Status {
    const std::shared_ptr<control::Control> living = weak.lock();
    return living == nullptr ? Ok() : living->FindLossAmong(members, true);
  };
  const JobIdentity job = {Concat("host ", link->hosts.own_host(), " of ", token),
                           "the group on several hosts"};
  auto control =
      std::make_shared<control::Control>(spec, job, shm::SegmentLayout::Bytes(spec.rank_size));
  link->host = std::make_shared<shm::ShmCommunicator>(std::move(control));
  RETURN_IF_ERROR(link->host->Connect());
  // Messages name the group's ranks.
  std::vector<control::Peer>& peers = link->host->control().endpoint().group().peers;
  for (size_t i = 0; i < peers.size(); ++i) peers[i].number = members[i];
  return Ok();
}

}  // namespace

Status ConnectLink(const std::shared_ptr<control::Control>& control, std::unique_ptr<Link>* link) {
  const CommunicatorSpec& spec = control->spec();
  auto made = std::make_unique<Link>(
      Link{control.get(), HostMap(control->endpoint().group(), spec.rank), {}, {}, {}, {}});
  uint32_t token = 0;
  RETURN_IF_ERROR(ConnectWorker(control.get(), made->hosts, &made->pair_worker, &token));
  RETURN_IF_ERROR(ConnectWorker(control.get(), made->hosts, &made->worker, &token));
  made->heads = std::make_unique<Heads>(made->worker.get(), made->hosts, spec.rank);
  if (made->hosts.own_ranks().size() > 1) {
    RETURN_IF_ERROR(ConnectHost(control, token, made.get()));
  }
  *link = std::move(made);
  control->step().set_carrier((*link)->heads.get());
  return Ok();
}

}  // namespace collops::ucx
