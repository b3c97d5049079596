#include "collops/comm/control/first_contact/job_listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "collops/comm/control/first_contact/local_socket.h"
#include "collops/core/env.h"

namespace collops::control {
namespace {

constexpr int kType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
// Hosts that come at once wait here; the kernel may lower it (net.core.somaxconn).
constexpr int kBacklog = 4096;

UniqueFd OpenSpare() {
  return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

bool IsEveryAddress(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    return v4.sin_addr.s_addr == htonl(INADDR_ANY);
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
  return IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr) != 0;
}

// An error of the client that was to be accepted; the next one may be sound.
bool IsOfOneClient(int error) {
  return error == ECONNABORTED || error == EINTR || error == EPROTO || error == ENETDOWN ||
         error == EHOSTDOWN || error == EHOSTUNREACH || error == ENETUNREACH || error == EPERM;
}

Status CannotListen(const SocketAddress& address, int error) {
  const std::string where = address.Text();
  COLLOPS_CHECK_ARG(error != EADDRINUSE, ERROR_RT_FAIL, "cannot listen at ", where,
                    ": another process has port ", address.port(),
                    ": end it, or set COLLOPS_PORT to a free port, the same in all ranks");
  COLLOPS_CHECK_ARG(error != EADDRNOTAVAIL, ERROR_RT_FAIL, "cannot listen at ", where,
                    ": this host does not have the address");
  COLLOPS_CHECK_ARG(error != EACCES, ERROR_RT_FAIL, "cannot listen at ", where,
                    ": this user may not have ", "port ", address.port(),
                    ": set COLLOPS_PORT to one of 1024 or more");
  return Error(ERROR_RT_FAIL, "cannot listen at ", where, ": ", std::strerror(error));
}

// Not valid, with errno, if nobody can listen there.
UniqueFd ListenAt(const SocketAddress& address) {
  UniqueFd opened(::socket(address.storage.ss_family, kType, 0));
  const int socket = opened.get();
  const int yes = 1;
  const bool listens =
      opened.valid() && setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
      bind(socket, reinterpret_cast<const sockaddr*>(&address.storage), address.length) == 0 &&
      listen(socket, kBacklog) == 0;
  const int error = errno;
  if (!listens) opened.reset();
  errno = error;
  return opened;
}

// The first free port of a range, beginning at another one in each process.
UniqueFd ListenInRange(SocketAddress address, int first, int last) {
  const int ports = last - first + 1;
  UniqueFd opened;
  for (int i = 0; i < ports; ++i) {
    address.set_port(first + (static_cast<int>(getpid()) + i) % ports);
    opened = ListenAt(address);
    if (opened.valid() || errno != EADDRINUSE) break;
  }
  return opened;
}

}  // namespace

Status Listener::Open(const SocketAddress& address, Listener* listener, bool* taken) {
  COLLOPS_CHECK_ARG(!IsEveryAddress(address), ERROR_INVALID_PARAM, address.Text(),
                    " means every address of the host: name the one that the other hosts reach");
  Env env;
  COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
  const bool in_range = address.port() == 0 && env.first_port > 0;
  Listener opened;
  opened.socket_ =
      in_range ? ListenInRange(address, env.first_port, env.last_port) : ListenAt(address);
  if (!opened.socket_.valid()) {
    const int error = errno;
    if (taken != nullptr) *taken = error == EADDRINUSE;
    if (OutOfDescriptors()) return TooManyFiles();
    COLLOPS_CHECK_ARG(!in_range || error != EADDRINUSE, ERROR_RT_FAIL, "cannot listen at ",
                      address.Host(), ": all ports of COLLOPS_PORT_RANGE=", env.first_port, "-",
                      env.last_port, " are taken: name more ports, on all hosts");
    return CannotListen(address, error);
  }
  opened.address_ = OwnAddress(opened.socket_.get());
  opened.spare_ = OpenSpare();
  *listener = std::move(opened);
  return Ok();
}

void Listener::Close() {
  socket_.reset();
  spare_.reset();
}

UniqueFd Listener::Accept() {
  while (socket_.valid()) {
    UniqueFd client(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client.valid()) {
      if (!spare_.valid()) spare_ = OpenSpare();
      return client;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
    if (OutOfDescriptors()) {
      if (!TurnAway()) break;
    } else if (!IsOfOneClient(errno)) {
      break;
    }
  }
  return UniqueFd();
}

// A client that is left in the queue would wake every poll(), and block those behind it.
bool Listener::TurnAway() {
  if (!spare_.valid()) return false;
  spare_.reset();
  UniqueFd client(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const bool turned_away = client.valid();
  client.reset();
  spare_ = OpenSpare();
  if (turned_away) ++turned_away_;
  return turned_away;
}

void JobListener::Close() {
  listener_.Close();
  clients_.clear();
}

void JobListener::AcceptAll() {
  // A flood of strangers does not keep this thread from those who are there.
  for (size_t i = 0; i < kMostUnproven; ++i) {
    if (full() && !MakeRoom()) return;
    UniqueFd socket = listener_.Accept();
    if (!socket.valid()) return;
    clients_.push_back({Challenge(Connection(std::move(socket)), &secret_),
                        Deadline::After(kPatienceS), Deadline::After(kSilenceS),
                        Deadline::After(kProofS)});
  }
}

// A rank says who it is as soon as it is connected.
bool JobListener::MakeRoom() {
  if (!listener_.valid() || !Readable(listener_.socket())) return false;
  const auto strange = std::find_if(clients_.begin(), clients_.end(), [](const Client& client) {
    const bool refused = !client.challenge.refusal().ok();
    const bool silent = client.silence.Passed() && (refused || !client.challenge.greeted());
    return silent || client.proof.Passed();
  });
  if (strange == clients_.end()) return false;
  clients_.erase(strange);
  return true;
}

bool JobListener::Next(std::vector<Proven>* proven) {
  AcceptAll();
  for (auto client = clients_.begin(); client != clients_.end();) {
    Challenge& challenge = client->challenge;
    const bool was_refused = !challenge.refusal().ok();
    const Proof proof = challenge.Step();
    if (proof == Proof::kGiven) {
      proven->push_back({std::move(challenge.connection()), challenge.claim()});
      clients_.erase(client);
      return true;
    }
    if (proof == Proof::kRefused && !was_refused) NoteRefusal(challenge);
    // Who was refused is kept until he has read why: closing at once could take it from him.
    const bool over = proof == Proof::kRefused && !challenge.connection().alive();
    client = over || client->patience.Passed() ? clients_.erase(client) : client + 1;
  }
  return false;
}

// One that comes again and again, from a port of its own each time, takes no other's place.
void JobListener::NoteRefusal(const Challenge& challenge) {
  last_refusal_ = challenge.refusal();
  const std::string& who = challenge.turned_away();
  if (who.empty() || std::count(turned_away_.begin(), turned_away_.end(), who) > 0) return;
  turned_away_.push_back(who);
  if (turned_away_.size() > kMostTurnedAway) turned_away_.pop_front();
}

void JobListener::AddPolled(std::vector<pollfd>* polled) const {
  if (listener_.valid() && !full()) polled->push_back({listener_.socket(), POLLIN, 0});
  for (const Client& client : clients_) {
    polled->push_back(client.challenge.connection().Polled());
  }
}

Status JobListener::last_refusal() const {
  COLLOPS_CHECK_ARG(
      listener_.turned_away() == 0, ERROR_RT_FAIL,
      "this process turned clients away because it has too many open files: raise the limit "
      "(ulimit -n)");
  return last_refusal_;
}

}  // namespace collops::control
