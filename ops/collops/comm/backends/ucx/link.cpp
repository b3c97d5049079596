#include "collops/comm/backends/ucx/link.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <set>
#include <utility>

#include "collops/comm/backends/ucx/engine/worker.h"

namespace collops::ucx {

Heads::Heads(Worker* worker, const HostMap& hosts, int rank) : worker_(worker), rank_(rank) {
  for (const int from : hosts.Sources()) Post(&sources_.emplace_back(from));
  for (const int to : hosts.Targets()) targets_.emplace_back(to);
}

// The number of the step is in the message: what was sent for a refused step has the same tag, so
// that it is received and dropped.
uint64_t Heads::TagOf(int source) {
  return Tag{0, source, 0}.Of(TagKind::kHead);
}

void Heads::Post(Source* source) {
  Posted& posted = source->receives[source->next];
  source->posted = worker_->Receive(source->rank, TagOf(source->rank), &posted.message,
                                    sizeof(posted.message), &posted.request);
}

void Heads::Attach(int to, const void* data, int64_t bytes) {
  for (Target& target : targets_) {
    if (target.rank != to) continue;
    target.data = data;
    target.bytes = static_cast<size_t>(bytes);
  }
}

void Heads::Clear() {
  for (Target& target : targets_) target.bytes = 0;
}

Status Heads::CopyTo(void* memory, int from, int64_t bytes) const {
  const auto source = std::find_if(sources_.begin(), sources_.end(),
                                   [&](const Source& each) { return each.rank == from; });
  const Posted& posted = source->receives[1 - source->next];
  const auto expected = static_cast<size_t>(bytes) + sizeof(posted.message.head);
  COLLOPS_CHECK_ARG(posted.request.bytes() == expected, ERROR_RANK_MISMATCH, "backend ucx: peer ",
                    from, " sent a first message of ", posted.request.bytes(), " bytes, it has ",
                    expected, " here");
  std::memcpy(memory, posted.message.attached, static_cast<size_t>(bytes));
  return Ok();
}

Status Heads::Send(const control::HostHead& head) {
  for (Target& target : targets_) {
    if (worker_->IsLost(target.rank)) continue;  // the watchers tell of it
    Message& message = target.sent.message;
    message.head = head;
    if (target.bytes > 0) std::memcpy(message.attached, target.data, target.bytes);
    const size_t bytes = sizeof(head) + std::exchange(target.bytes, 0);
    const Status sent =
        worker_->Send(target.rank, TagOf(rank_), &message, bytes, &target.sent.request);
    if (!worker_->IsLost(target.rank)) COLLOPS_RETURN_IF_ERROR(sent);
  }
  return Ok();
}

bool Heads::Sent() {
  return std::all_of(targets_.begin(), targets_.end(), [&](Target& target) {
    return worker_->IsLost(target.rank) || worker_->Test(&target.sent.request);
  });
}

bool Heads::Take(size_t index, control::HostHead* head) {
  Source& source = sources_[index];
  Posted& posted = source.receives[source.next];
  if (!source.posted.ok() || !worker_->Test(&posted.request)) return false;
  source.posted = worker_->StatusOf(posted.request);
  if (!source.posted.ok()) return false;
  // One that is cut short is one of no step.
  *head = posted.request.bytes() < sizeof(*head) ? control::HostHead() : posted.message.head;
  source.next = 1 - source.next;
  Post(&source);
  return true;
}

Status Heads::LossOf(size_t index) const {
  const Source& source = sources_[index];
  return worker_->IsLost(source.rank) ? worker_->LossOf(source.rank) : source.posted;
}

namespace {

constexpr char kFirstContact[] = "first contact of UCX";
constexpr size_t kMostAddressBytes = 1016;
// How long the group may take to say that a rank is lost which UCX cannot reach.
constexpr double kUnreachedExplainS = 2.0;

// Where a worker is reached.
struct WorkerAddress {
  uint32_t bytes = 0;
  char text[kMostAddressBytes] = {};

  Status Set(const Worker& worker) {
    const std::string& address = worker.address();
    COLLOPS_CHECK_ARG(address.size() <= kMostAddressBytes, ERROR_UNSUPPORTED,
                      "backend ucx: UCX's address has ", address.size(), " bytes, the limit is ",
                      kMostAddressBytes,
                      ": set UCX_NET_DEVICES to the network that the hosts share");
    bytes = static_cast<uint32_t>(address.size());
    std::memcpy(text, address.data(), address.size());
    return Ok();
  }
  std::string Get() const { return std::string(text, std::min<size_t>(bytes, kMostAddressBytes)); }
};

// What a rank tells the others of itself.
struct Contact {
  uint32_t token = 0;  // rank 0's names the communicators of the hosts
  WorkerAddress worker;
  WorkerAddress pair_worker;
};

// One byte each way between ranks that carry heads to each other: UCX notices the loss of a peer
// only on a connection that was used. Other ranks connect with their first message; the watchers
// notice their losses.
Status SayHello(control::Control& control, const HostMap& hosts, Worker* worker) {
  const int rank = control.spec().rank;
  std::set<int> peers;
  for (const int peer : hosts.Targets()) peers.insert(peer);
  for (const int peer : hosts.Sources()) peers.insert(peer);
  // Before the requests, whose destructors take this memory back from UCX.
  char sent = 0;
  std::vector<char> received(peers.size());
  std::deque<Request> requests;
  size_t index = 0;
  for (const int peer : peers) {
    requests.emplace_back();
    COLLOPS_RETURN_IF_ERROR(worker->Receive(peer, Tag{0, peer, 0}.Of(TagKind::kData),
                                            &received[index++], 1, &requests.back()));
    requests.emplace_back();
    COLLOPS_RETURN_IF_ERROR(
        worker->Send(peer, Tag{0, rank, 0}.Of(TagKind::kData), &sent, 1, &requests.back()));
  }
  const auto done = [&] {
    return std::all_of(requests.begin(), requests.end(),
                       [&](Request& request) { return worker->Test(&request); });
  };
  const Watch watch = {{}, [&] { return control.Peek(kFirstContact); }};
  COLLOPS_RETURN_IF_ERROR(
      worker->Until(kFirstContact, done, watch, Deadline::After(control.timeout_s())));
  for (const Request& request : requests) COLLOPS_RETURN_IF_ERROR(worker->StatusOf(request));
  return Ok();
}

// A rank that has ended cannot be reached either: the group names it, within a moment.
Status Explained(const control::Control& control, const Status& failed) {
  const Deadline explained = Deadline::After(kUnreachedExplainS);
  while (!failed.ok() && !explained.Passed()) {
    COLLOPS_RETURN_IF_ERROR(control.Peek(kFirstContact));
    poll(nullptr, 0, 1);
  }
  return failed;
}

// Makes both workers, and exchanges where they are. *token: rank 0's.
Status ConnectWorkers(control::Control* control, Link* link, uint32_t* token) {
  const int ranks = control->spec().rank_size;
  COLLOPS_RETURN_IF_ERROR(Worker::Create(ranks, &link->worker));
  COLLOPS_RETURN_IF_ERROR(Worker::Create(ranks, &link->pair_worker));
  Contact own;
  own.token = std::random_device()();
  COLLOPS_RETURN_IF_ERROR(own.worker.Set(*link->worker));
  COLLOPS_RETURN_IF_ERROR(own.pair_worker.Set(*link->pair_worker));
  std::vector<Contact> contacts(static_cast<size_t>(ranks));
  COLLOPS_RETURN_IF_ERROR(
      control->Share(Agreement(kFirstContact), &own, sizeof(own), contacts.data()));
  *token = contacts.front().token;
  for (int rank = 0; rank < ranks; ++rank) {
    if (link->hosts.IsLocal(rank)) continue;
    const Contact& contact = contacts[static_cast<size_t>(rank)];
    link->worker->Know(rank, contact.worker.Get());
    link->pair_worker->Know(rank, contact.pair_worker.Get());
  }
  return Explained(*control, SayHello(*control, link->hosts, link->worker.get()));
}

// A failure in one of the two groups ends the other.
Status ConnectHost(const std::shared_ptr<control::Control>& parent, uint32_t token, Link* link) {
  const CommunicatorSpec& group = parent->spec();
  control::GroupSpec spec;
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
      std::make_shared<control::Control>(spec, job, shm::SegmentLayout::Shape(spec.rank_size));
  link->host = std::make_shared<shm::ShmCommunicator>(std::move(control));
  COLLOPS_RETURN_IF_ERROR(link->host->Connect());
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
  COLLOPS_RETURN_IF_ERROR(ConnectWorkers(control.get(), made.get(), &token));
  made->heads = std::make_unique<Heads>(made->worker.get(), made->hosts, spec.rank);
  if (made->hosts.own_ranks().size() > 1) {
    COLLOPS_RETURN_IF_ERROR(ConnectHost(control, token, made.get()));
  }
  *link = std::move(made);
  control->step().set_carrier((*link)->heads.get());
  return Ok();
}

}  // namespace collops::ucx
