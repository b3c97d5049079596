#include "collops/comm/control/tcp/first_contact/job_port.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "collops/comm/control/bootstrap/socket.h"
#include "collops/core/process/per_process.h"

namespace collops::control::tcp {
namespace {

// Clients that are silent are dropped by then; sooner while others queue at the door.
constexpr int kNapMs = 1000;
constexpr int kCrowdedNapMs = 50;
// Who asks later than so many that have left waits until its time-out.
constexpr size_t kMostLeavers = 1024;
// Ranks that wait for an answer are told by then that there is none.
constexpr double kFarewellS = 0.2;

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

}  // namespace

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
  COLLOPS_RETURN_IF_ERROR(door_.Open(address, taken));
  bell_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell_.valid()) return TooManyFiles();
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
  if (bell_.valid()) static_cast<void>(!write(bell_.get(), &ring, sizeof(ring)));
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
  door_.Close();
  const Deadline deadline = Deadline::After(kFarewellS);
  for (Client& client : clients_) client.connection.Finish(deadline);
}

void JobPort::Receive() {
  std::vector<Proven> proven;
  while (door_.Next(&proven)) continue;
  for (Proven& one : proven) clients_.push_back({std::move(one.connection), std::move(one.claim)});
}

void JobPort::ReadFrom(Client* client) {
  Frame frame;
  while (client->connection.Receive(&frame)) {
    Said said;
    const bool sound = Said::Read(frame, &said) && client->said.pid == 0 && said.pid != 0;
    if (!sound) return client->connection.Break("sent an invalid frame");
    Hear(client, said);
  }
}

void JobPort::Hear(Client* client, const Said& said) {
  client->said = said;
  const Claim& claim = client->claim;
  if (claim.purpose == kLeave) return Leave(*client);
  // Its earlier meetings are over.
  const auto is_over = [&](const Leaver& leaver) {
    return leaver.domain == claim.domain && leaver.rank == claim.rank &&
           leaver.meeting != said.meeting;
  };
  leavers_.erase(std::remove_if(leavers_.begin(), leavers_.end(), is_over), leavers_.end());
  for (const Leaver& leaver : leavers_) {
    if (leaver.domain != claim.domain || leaver.meeting != said.meeting) continue;
    return Answer(client, RefusalFrame(leaver.reason));
  }
  if (claim.purpose == kRegister && claim.rank == 0) return Lead(client);
  if (claim.purpose != kFind) return client->connection.Break("sent an unsupported request");
  const Client* const leader = LeaderOf(claim.domain);
  if (leader != nullptr) Answer(client, MeetAtFrame(leader->said.address, leader->said.port));
}

void JobPort::Answer(Client* client, const Frame& frame) {
  client->told = client->connection.Send(frame);
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
    const Frame verdict = RefusalFrame(Claimed(domain, rival->said.pid, client->said.pid));
    Answer(rival, verdict);
    return Answer(client, verdict);
  }
  client->leads = true;
  static_cast<void>(client->connection.Send(RegisteredFrame()));
  const Frame where = MeetAtFrame(client->said.address, client->said.port);
  for (Client& other : clients_) {
    const bool waits = other.claim.purpose == kFind && other.claim.domain == domain &&
                       other.said.pid != 0 && !other.told;
    if (waits) Answer(&other, where);
  }
}

void JobPort::Leave(const Client& client) {
  const Claim& claim = client.claim;
  const Status& why = client.said.reason;
  const Status reason =
      Error(why.ok() ? ERROR_PEER_LOST : why.code(), "rank ", claim.rank, " (pid ", client.said.pid,
            ") left before first contact of comm_domain \"", claim.domain, "\": ", why.message());
  for (Client& other : clients_) {
    const bool waits = other.claim.purpose != kLeave && other.claim.domain == claim.domain &&
                       other.said.pid != 0 && other.said.meeting == client.said.meeting &&
                       !other.told;
    if (waits) Answer(&other, RefusalFrame(reason));
  }
  leavers_.push_back({claim.domain, claim.rank, client.said.meeting, reason});
  if (leavers_.size() > kMostLeavers) leavers_.pop_front();
}

void JobPort::Sleep() {
  std::vector<pollfd> polled = {{bell_.get(), POLLIN, 0}};
  door_.AddPolled(&polled);
  for (const Client& client : clients_) polled.push_back(client.connection.Polled());
  static_cast<void>(poll(polled.data(), polled.size(), door_.full() ? kCrowdedNapMs : kNapMs));
}

}  // namespace collops::control::tcp
