#include "collops/comm/control/first_contact/job_port.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "collops/comm/control/board.h"
#include "collops/comm/control/first_contact/local_socket.h"
#include "collops/comm/control/first_contact/missing_ranks.h"
#include "collops/core/process/per_process.h"

namespace collops::control {
namespace {

// Clients that are silent are dropped by then; sooner while others queue at the listener.
constexpr int kMostPortSleepMs = 1000;
constexpr int kCrowdedSleepMs = 50;
// Who asks later than so many that have left waits until its time-out.
constexpr size_t kMostLeavers = 1024;
// So many that have asked are told to a rank 0 that comes after them.
constexpr size_t kMostAskers = 1024;
// Strangers may come all the time: those who wait are told at most so often whom the port has
// turned away.
constexpr double kTellTurnedAwayS = 1.0;
// Ranks that wait for an answer are told by then that there is none.
constexpr double kPortFarewellS = 0.2;

struct Ports {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<JobPort>> open;
};
PerProcess<Ports> ports;

std::string WhereIs(const Connection& connection, const Claim& claim) {
  return HostText(Printable(claim.host, kMostHostNameBytes), connection.peer_host());
}

Frame NewsOf(int rank, const std::string& where) {
  PortNews news;
  news.rank = rank;
  news.where = where;
  return news.frame();
}

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
    TellTurnedAway();
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
  // Its earlier meetings are over, and so are those of a process that was this rank before.
  const auto is_over = [&](const Leaver& leaver) {
    return leaver.domain == claim.domain && leaver.rank == claim.rank &&
           (leaver.meeting != request.meeting || leaver.pid != request.pid);
  };
  leavers_.erase(std::remove_if(leavers_.begin(), leavers_.end(), is_over), leavers_.end());
  for (const Leaver& leaver : leavers_) {
    if (leaver.domain != claim.domain || leaver.meeting != request.meeting) continue;
    return Answer(client, RefusalOf(leaver.reason));
  }
  if (claim.purpose == kRegister && claim.rank == 0) return Lead(client);
  if (claim.purpose != kFind) return client->connection.Break("sent an unsupported request");
  Find(client);
}

// Whoever asks again, as it has not reached rank 0, is told of once more: rank 0 knows whether it
// has come.
void JobPort::Find(Client* client) {
  const Claim& claim = client->claim;
  const auto is_same = [&](const Asker& asker) {
    return asker.rank == claim.rank && asker.domain == claim.domain;
  };
  askers_.erase(std::remove_if(askers_.begin(), askers_.end(), is_same), askers_.end());
  askers_.push_back(
      {claim.domain, claim.rank, client->request.meeting, WhereIs(client->connection, claim)});
  if (askers_.size() > kMostAskers) askers_.pop_front();
  Client* const leader = LeaderOf(claim.domain);
  if (leader == nullptr) return TellTurnedAwayTo(client);
  const bool same_meeting = leader->request.meeting == client->request.meeting;
  if (same_meeting) {
    static_cast<void>(leader->connection.Send(NewsOf(claim.rank, askers_.back().where)));
  }
  Answer(client, PlaceOf(leader->request));
}

void JobPort::TellTurnedAwayTo(Client* client) const {
  PortNews news;
  news.turned_away = {listener_.turned_away().begin(), listener_.turned_away().end()};
  if (!news.turned_away.empty()) static_cast<void>(client->connection.Send(news.frame()));
}

void JobPort::TellTurnedAway() {
  if (!tell_again_.Passed() || listener_.turned_away() == told_turned_away_) return;
  told_turned_away_ = listener_.turned_away();
  tell_again_ = Deadline::After(kTellTurnedAwayS);
  for (Client& client : clients_) {
    const bool waits = client.leads || (client.claim.purpose == kFind && client.request.pid != 0);
    if (waits && !client.answered) TellTurnedAwayTo(&client);
  }
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
  TellTurnedAwayTo(client);
  for (const Asker& asker : askers_) {
    if (asker.domain != domain || asker.meeting != client->request.meeting) continue;
    static_cast<void>(client->connection.Send(NewsOf(asker.rank, asker.where)));
  }
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
  const Status reason =
      Error(why.ok() ? ERROR_PEER_LOST : why.code(), "rank ", claim.rank, " (pid ",
            client.request.pid, " on ", WhereIs(client.connection, claim),
            ") left before first contact of comm_domain \"", claim.domain, "\": ", why.message());
  for (Client& other : clients_) {
    const bool waits = other.claim.purpose != kLeave && other.claim.domain == claim.domain &&
                       other.request.pid != 0 && other.request.meeting == client.request.meeting &&
                       !other.answered;
    if (waits) Answer(&other, RefusalOf(reason));
  }
  leavers_.push_back(
      {claim.domain, claim.rank, client.request.pid, client.request.meeting, reason});
  if (leavers_.size() > kMostLeavers) leavers_.pop_front();
}

void JobPort::Sleep() {
  std::vector<pollfd> polled = {{doorbell_.get(), POLLIN, 0}};
  listener_.AddPolled(&polled);
  for (const Client& client : clients_) polled.push_back(client.connection.Polled());
  static_cast<void>(
      poll(polled.data(), polled.size(), listener_.full() ? kCrowdedSleepMs : kMostPortSleepMs));
}

}  // namespace collops::control
