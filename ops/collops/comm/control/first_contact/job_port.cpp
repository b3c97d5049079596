#include "collops/comm/control/first_contact/job_port.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "collops/comm/control/board.h"
#include "collops/comm/control/first_contact/local_socket.h"
#include "collops/comm/control/first_contact/messages.h"
#include "collops/core/process/per_process.h"

namespace collops::control {
namespace {

constexpr int kMostPort = 65535;

// Clients that are silent are dropped by then; sooner while others queue at the listener.
constexpr int kMostPortSleepMs = 1000;
constexpr int kCrowdedSleepMs = 50;
// Who asks later than so many that have left waits until its time-out.
constexpr size_t kMostLeavers = 1024;
// Ranks that wait for an answer are told by then that there is none.
constexpr double kPortFarewellS = 0.2;

struct Ports {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<JobPort>> open;
};
PerProcess<Ports> ports;

std::string KeyOf(const SocketAddress& address, const JobSecret& secret) {
  return Concat(address.Text(), "/", secret.job_id, "/", secret.key);
}

Status Claimed(const std::string& domain, pid_t first, pid_t second) {
  return Error(ERROR_RANK_MISMATCH, "comm_domain \"", domain,
               "\": rank 0 is claimed twice, by pid ", first, " and by pid ", second);
}

PortMessage RefusalOf(const Status& reason) {
  PortMessage answer;
  answer.reason = reason;
  return answer;
}

// Where rank 0 listens, as it said itself.
PortMessage PlaceOf(const PortMessage& request) {
  PortMessage answer;
  answer.address = request.address;
  answer.port = request.port;
  return answer;
}

}  // namespace

Frame PortMessage::frame() const {
  FieldWriter fields;
  fields.Number(static_cast<uint64_t>(pid)).Number(meeting).Text(address);
  fields.Number(static_cast<uint64_t>(port));
  WriteReason(reason, &fields);
  return fields.frame();
}

bool PortMessage::Read(const Frame& frame, PortMessage* message) {
  FieldReader fields(frame);
  message->pid = fields.Int(0, std::numeric_limits<int>::max());
  message->meeting = fields.Number();
  message->address = fields.Text(Row::kMostAddressBytes);
  message->port = fields.Int(0, kMostPort);
  message->reason = ReadReason(&fields);
  return fields.Done();
}

Status JobPort::Share(const SocketAddress& address, const JobSecret& secret,
                      std::shared_ptr<JobPort>* port, bool* taken) {
  *taken = false;
  const std::string key = KeyOf(address, secret);
  Ports& all = ports.Get();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::weak_ptr<JobPort>& open = all.open[key];
  *port = open.lock();
  if (*port != nullptr) return Ok();
  auto fresh = std::make_shared<JobPort>(secret);
  COLLOPS_RETURN_IF_ERROR(fresh->Open(address, taken));
  open = fresh;
  *port = std::move(fresh);
  return Ok();
}

Status JobPort::OpenFree(SocketAddress address, const JobSecret& secret,
                         std::shared_ptr<JobPort>* port) {
  address.set_port(0);
  auto fresh = std::make_shared<JobPort>(secret);
  bool taken = false;
  COLLOPS_RETURN_IF_ERROR(fresh->Open(address, &taken));
  Ports& all = ports.Get();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.open[KeyOf(fresh->address(), secret)] = fresh;
  *port = std::move(fresh);
  return Ok();
}

Status JobPort::Open(const SocketAddress& address, bool* taken) {
  COLLOPS_RETURN_IF_ERROR(listener_.Open(address, taken));
  doorbell_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell_.valid()) return TooManyFiles();
  // Signals go to the user's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    status = Error(ERROR_RT_FAIL, "no thread for the job's port: ", error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

JobPort::~JobPort() {
  stop_.store(true);
  const uint64_t ring = 1;
  if (doorbell_.valid()) static_cast<void>(!write(doorbell_.get(), &ring, sizeof(ring)));
  if (thread_.joinable()) thread_.join();
}

void JobPort::Run() {
  while (!stop_.load()) {
    Receive();
    for (Client& client : clients_) ReadFrom(&client);
    clients_.remove_if([](const Client& client) { return !client.connection.alive(); });
    Sleep();
  }
  // What was said until now still counts.
  Receive();
  for (Client& client : clients_) ReadFrom(&client);
  listener_.Close();
  const Deadline deadline = Deadline::After(kPortFarewellS);
  for (Client& client : clients_) client.connection.Finish(deadline);
}

void JobPort::Receive() {
  std::vector<Proven> proven;
  while (listener_.Next(&proven)) continue;
  for (Proven& one : proven) clients_.push_back({std::move(one.connection), std::move(one.claim)});
}

void JobPort::ReadFrom(Client* client) {
  Frame frame;
  while (client->connection.Receive(&frame)) {
    PortMessage request;
    const bool sound =
        PortMessage::Read(frame, &request) && client->request.pid == 0 && request.pid != 0;
    if (!sound) return client->connection.Break("sent an invalid frame");
    TakeRequest(client, request);
  }
}

void JobPort::TakeRequest(Client* client, const PortMessage& request) {
  client->request = request;
  const Claim& claim = client->claim;
  if (claim.purpose == kLeave) return Leave(*client);
  // Its earlier meetings are over.
  const auto is_over = [&](const Leaver& leaver) {
    return leaver.domain == claim.domain && leaver.rank == claim.rank &&
           leaver.meeting != request.meeting;
  };
  leavers_.erase(std::remove_if(leavers_.begin(), leavers_.end(), is_over), leavers_.end());
  for (const Leaver& leaver : leavers_) {
    if (leaver.domain != claim.domain || leaver.meeting != request.meeting) continue;
    return Answer(client, RefusalOf(leaver.reason));
  }
  if (claim.purpose == kRegister && claim.rank == 0) return Lead(client);
  if (claim.purpose != kFind) return client->connection.Break("sent an unsupported request");
  const Client* const leader = LeaderOf(claim.domain);
  if (leader != nullptr) Answer(client, PlaceOf(leader->request));
}

void JobPort::Answer(Client* client, const PortMessage& answer) {
  client->answered = client->connection.Send(answer.frame());
}

JobPort::Client* JobPort::LeaderOf(const std::string& domain) {
  for (Client& client : clients_) {
    if (client.leads && client.claim.domain == domain && client.connection.alive()) return &client;
  }
  return nullptr;
}

void JobPort::Lead(Client* client) {
  const std::string& domain = client->claim.domain;
  Client* rival = LeaderOf(domain);
  // It may have hung up just before.
  if (rival != nullptr) ReadFrom(rival);
  if (rival != nullptr && rival->connection.alive()) {
    const PortMessage refusal = RefusalOf(Claimed(domain, rival->request.pid, client->request.pid));
    Answer(rival, refusal);
    return Answer(client, refusal);
  }
  client->leads = true;
  static_cast<void>(client->connection.Send(PortMessage().frame()));
  const PortMessage where = PlaceOf(client->request);
  for (Client& other : clients_) {
    const bool waits = other.claim.purpose == kFind && other.claim.domain == domain &&
                       other.request.pid != 0 && !other.answered;
    if (waits) Answer(&other, where);
  }
}

void JobPort::Leave(const Client& client) {
  const Claim& claim = client.claim;
  const Status& why = client.request.reason;
  const Status reason = Error(
      why.ok() ? ERROR_PEER_LOST : why.code(), "rank ", claim.rank, " (pid ", client.request.pid,
      ") left before first contact of comm_domain \"", claim.domain, "\": ", why.message());
  for (Client& other : clients_) {
    const bool waits = other.claim.purpose != kLeave && other.claim.domain == claim.domain &&
                       other.request.pid != 0 && other.request.meeting == client.request.meeting &&
                       !other.answered;
    if (waits) Answer(&other, RefusalOf(reason));
  }
  leavers_.push_back({claim.domain, claim.rank, client.request.meeting, reason});
  if (leavers_.size() > kMostLeavers) leavers_.pop_front();
}

void JobPort::Sleep() {
  std::vector<pollfd> polled = {{doorbell_.get(), POLLIN, 0}};
  listener_.AddPolled(&polled);
  for (const Client& client : clients_) polled.push_back(client.connection.Polled());
  static_cast<void>(
      poll(polled.data(), polled.size(), listener_.full() ? kCrowdedSleepMs : kMostPortSleepMs));
}

namespace {

constexpr int kLeastPauseMs = 20;
constexpr int kMostPauseMs = 200;
// Longer than a listener needs to answer.
constexpr double kAnswerS = 1;

// A job that ends may still have the port of the next one; and who has it needs time to answer.
constexpr double kTakenS = 1;
// The name of a host that is being started may become known later than this process began.
constexpr double kLookAgainS = 0.5;
constexpr double kLookForS = 30;

}  // namespace

// The first attempt is at once, each later one after a longer pause.
void Connector::Connect(const SocketAddress& to) {
  to_ = to;
  answer_ = Deadline::After(kAnswerS);
  client_.emplace(Connection(to), secret_, claim_);
}

Status Connector::Step(const SocketAddress& to) {
  if (proven_ || !pause_.Passed()) return Ok();
  if (!client_) Connect(to);
  switch (client_->Step()) {
    case Proof::kUnderWay:
      return Ok();
    case Proof::kRefused: {
      const Status refusal = client_->refusal();
      last_failure_ = refusal.message();
      const bool may_retry = client_->may_retry();
      Drop();
      failed_ = true;
      return may_retry ? Ok() : refusal;
    }
    case Proof::kGiven:
      break;
  }
  proven_ = true;
  pause_ms_ = 0;
  return Ok();
}

bool Connector::TakeFailed() {
  return std::exchange(failed_, false);
}

void Connector::Drop() {
  client_.reset();
  proven_ = false;
  pause_ms_ = std::clamp(2 * pause_ms_, kLeastPauseMs, kMostPauseMs);
  constexpr double kMs = 1e-3;
  pause_ = Deadline::After(pause_ms_ * kMs);
}

void Connector::AddPolled(std::vector<pollfd>* polled) const {
  if (client_) polled->push_back(client_->connection().Polled());
}

// An attempt that has just begun says less than the last one.
std::string Connector::Failure() const {
  if (!client_ || !(last_failure_.empty() || answer_.Passed())) return last_failure_;
  const bool reached = client_->connection().state() == ConnectionState::kOpen;
  return Concat(to_.Text(), reached ? " accepted the connection, but has sent nothing"
                                    : " does not answer attempts to connect");
}

struct Lookup::Answer {
  Status status;
  SocketAddress address;
  std::atomic<bool> done{false};
};

Lookup::Lookup(const std::string& host, int port) : answer_(std::make_shared<Answer>()) {
  answer_->done = ParseNumeric(host, port, &answer_->address);
  if (answer_->done) return;
  const auto look = [host, port, answer = answer_] {
    answer->status = Resolve(host, port, &answer->address);
    answer->done.store(true, std::memory_order_release);
  };
  // Signals go to the user's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(look).detach();
  } catch (const std::system_error&) {
    look();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool Lookup::Done(Status* status, SocketAddress* address) const {
  if (!answer_->done.load(std::memory_order_acquire)) return false;
  *status = answer_->status;
  if (status->ok()) *address = answer_->address;
  return true;
}

PortContact::PortContact(const RendezvousSpec* spec, const char* purpose)
    : spec_(spec),
      connector_(&spec->secret, {spec->domain, purpose, spec->rank, spec->rank_size}) {}

void PortContact::Begin() {
  bool taken = false;
  if (!spec_->has_port || !ParseNumeric(spec_->host, spec_->port, &address_)) return;
  // Step() tries again, and reports an error.
  static_cast<void>(JobPort::Share(address_, spec_->secret, &port_, &taken));
}

Status PortContact::FindAddress() {
  if (address_.length != 0) return Ok();
  if (!look_until_) look_until_ = Deadline::After(kLookForS);
  if (!look_again_.Passed()) return Ok();
  if (!lookup_) lookup_.emplace(spec_->host, spec_->port);
  Status found;
  if (!lookup_->Done(&found, &address_) || found.ok()) return Ok();
  if (look_until_->Passed()) return found;
  not_found_ = found.message();
  lookup_.reset();
  look_again_ = Deadline::After(kLookAgainS);
  return Ok();
}

// Where another process of this job has the port, that one introduces, for as long as it lives.
Status PortContact::KeepPort() {
  if (!spec_->has_port || port_ != nullptr || connector_.proven()) return Ok();
  bool taken = false;
  taken_ = JobPort::Share(address_, spec_->secret, &port_, &taken);
  if (taken_.ok() || !taken) return taken_;
  if (!taken_until_) taken_until_ = Deadline::After(kTakenS);
  return taken_until_->Passed() ? Taken() : Ok();
}

Status PortContact::Taken() const {
  const std::string who = connector_.Failure();
  return Error(taken_.code(), taken_.message(), who.empty() ? "" : ". Its owner: ", who);
}

Status PortContact::Step() {
  COLLOPS_RETURN_IF_ERROR(FindAddress());
  if (address_.length == 0) return Ok();
  COLLOPS_RETURN_IF_ERROR(KeepPort());
  const Status status = connector_.Step(address_);
  if (!status.ok() && !taken_.ok()) return Taken();
  return status;
}

std::string PortContact::Failure() const {
  if (address_.length == 0 && !not_found_.empty()) return not_found_;
  if (address_.length == 0) return Concat("the name \"", spec_->host, "\" is still being resolved");
  return connector_.Failure();
}

PortMessage PortContact::OwnRequest() const {
  PortMessage request;
  request.pid = getpid();
  request.meeting = spec_->meeting;
  return request;
}

Status PortContact::Ask(const Listen& listen, std::optional<PortMessage>* answer) {
  COLLOPS_RETURN_IF_ERROR(Step());
  if (!proven()) return Ok();
  Connection& connection = connector_.connection();
  if (!asked_) {
    PortMessage request = OwnRequest();
    if (listen) COLLOPS_RETURN_IF_ERROR(listen(connection.own_address(), &request));
    asked_ = connection.Send(request.frame());
  }
  Frame frame;
  while (connection.Receive(&frame)) {
    PortMessage received;
    if (!PortMessage::Read(frame, &received) || received.pid != 0) {
      connection.Break("sent an invalid frame");
      break;
    }
    COLLOPS_RETURN_IF_ERROR(received.reason);
    *answer = std::move(received);
  }
  if (connection.alive()) return Ok();
  connector_.Drop();
  asked_ = false;
  return Ok();
}

void PortContact::Finish(const Deadline& deadline) {
  if (proven()) connector_.connection().Finish(deadline);
  connector_.Drop();
  asked_ = false;
}

void PortContact::Leave(const Status& reason, const Deadline& deadline) {
  while (!proven() && !deadline.Passed()) {
    // Where nobody listens, nobody waits who could be told.
    if (!Step().ok() || connector_.TakeFailed()) return;
    std::vector<pollfd> polled;
    AddPolled(&polled);
    if (!proven()) AwaitReady(std::move(polled));
  }
  if (!proven()) return;
  PortMessage request = OwnRequest();
  request.reason = reason;
  static_cast<void>(connector_.connection().Send(request.frame()));
  connector_.connection().Finish(deadline);
}

}  // namespace collops::control
