#include "collops/comm/control/first_contact/connection.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "collops/comm/control/first_contact/local_socket.h"
#include "collops/core/env.h"

namespace collops::control {
namespace {

constexpr size_t kHeadBytes = 4;
constexpr size_t kReadBytes = 16 * 1024;

// Silence is noticed after about 4 seconds, idle or sending.
constexpr int kKeepIdleS = 1;
constexpr int kKeepIntervalS = 1;
constexpr int kKeepCount = 3;
constexpr int kUserTimeoutMs = 4000;

void SetOption(int socket, int level, int option, int value) {
  // Every Linux that this library runs on knows these options.
  static_cast<void>(setsockopt(socket, level, option, &value, sizeof(value)));
}

bool IsLater(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS;
}

ConnectionState StateAfter(int error) {
  switch (error) {
    case ECONNRESET:
    case EPIPE:
      return ConnectionState::kReset;
    case ETIMEDOUT:
      return ConnectionState::kTimedOut;
    case ECONNREFUSED:
      return ConnectionState::kRefused;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
    case EADDRNOTAVAIL:
      return ConnectionState::kUnreachable;
    default:
      return ConnectionState::kBroken;
  }
}

// Whether the other host has yet to confirm bytes, or the end of them, and still can.
bool HasUnconfirmed(int socket) {
  int bytes = 0;
  tcp_info info{};
  socklen_t length = sizeof(info);
  return ioctl(socket, SIOCOUTQ, &bytes) == 0 && bytes > 0 &&
         getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
         info.tcpi_state != TCP_CLOSE;
}

size_t LengthAt(const std::byte* head) {
  size_t length = 0;
  for (size_t i = 0; i < kHeadBytes; ++i) length = length << 8 | std::to_integer<size_t>(head[i]);
  return length;
}

in_port_t* PortOf(sockaddr_storage* storage) {
  if (storage->ss_family == AF_INET6) return &reinterpret_cast<sockaddr_in6*>(storage)->sin6_port;
  return &reinterpret_cast<sockaddr_in*>(storage)->sin_port;
}

int FindAddresses(const std::string& host, int flags, addrinfo** found) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags;
  return getaddrinfo(host.c_str(), nullptr, &wanted, found);
}

SocketAddress AddressFrom(const addrinfo& found, int port) {
  SocketAddress address;
  std::memcpy(&address.storage, found.ai_addr, found.ai_addrlen);
  address.length = found.ai_addrlen;
  address.set_port(port);
  return address;
}

// Many hosts have their own name as 127.0.1.1 in /etc/hosts, where no other host reaches them.
bool IsLoopback(const addrinfo& found) {
  if (found.ai_family == AF_INET) {
    constexpr uint32_t kLoopbackNet = 127;
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(*found.ai_addr);
    return ntohl(v4.sin_addr.s_addr) >> 24 == kLoopbackNet;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(*found.ai_addr);
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0;
}

}  // namespace

std::string HostIdentity() {
  const std::string given = GetVariable("COLLOPS_SERVER_ID");
  if (!given.empty()) return "server " + given;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  char name[256] = "";
  if (!std::getline(file, boot) && gethostname(name, sizeof(name) - 1) == 0) boot = name;
  struct stat net{};
  return Concat("boot ", boot, " net ", stat("/proc/self/ns/net", &net) == 0 ? net.st_ino : 0);
}

std::string HostName() {
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) != 0) return "";
  return Printable(name, kMostHostNameBytes);
}

std::string Printable(std::string text, size_t most) {
  if (text.size() > most) text.resize(most);
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

int SocketAddress::port() const {
  sockaddr_storage copy = storage;
  return ntohs(*PortOf(&copy));
}

void SocketAddress::set_port(int port) {
  *PortOf(&storage) = htons(static_cast<in_port_t>(port));
}

std::string SocketAddress::Host() const {
  char host[NI_MAXHOST] = "";
  const auto* const address = reinterpret_cast<const sockaddr*>(&storage);
  if (getnameinfo(address, length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "an address of no known kind";
  }
  return host;
}

std::string SocketAddress::Text() const {
  const bool v6 = storage.ss_family == AF_INET6;
  return Concat(v6 ? "[" : "", Host(), v6 ? "]:" : ":", port());
}

bool ParseNumeric(const std::string& host, int port, SocketAddress* address) {
  addrinfo* found = nullptr;
  if (FindAddresses(host, AI_NUMERICHOST, &found) != 0) return false;
  *address = AddressFrom(*found, port);
  freeaddrinfo(found);
  return true;
}

Status Resolve(const std::string& host, int port, SocketAddress* address) {
  addrinfo* found = nullptr;
  const int error = FindAddresses(host, 0, &found);
  COLLOPS_CHECK_ARG(error == 0, ERROR_RT_FAIL, "\"", host,
                    "\" is not an address, and the name cannot be resolved: ",
                    error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error));
  const addrinfo* best = found;
  while (best != nullptr && IsLoopback(*best)) best = best->ai_next;
  *address = AddressFrom(best == nullptr ? *found : *best, port);
  freeaddrinfo(found);
  return Ok();
}

SocketAddress OwnAddress(int socket) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return {};
  }
  return address;
}

SocketAddress PeerAddress(int socket) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return {};
  }
  return address;
}

Connection::Connection(UniqueFd socket)
    : socket_(std::move(socket)),
      peer_(PeerAddress(socket_.get()).Text()),
      state_(ConnectionState::kOpen) {
  Prepare();
}

Connection::Connection(const SocketAddress& to)
    : socket_(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      peer_(to.Text()),
      state_(ConnectionState::kConnecting) {
  if (!socket_.valid()) {
    EndBy(errno);
    return;
  }
  Prepare();
  const auto* const address = reinterpret_cast<const sockaddr*>(&to.storage);
  if (connect(socket_.get(), address, to.length) == 0) {
    CheckConnected();
  } else if (errno != EINPROGRESS && errno != EINTR) {
    EndBy(errno);
  }
}

void Connection::Prepare() {
  const int socket = socket_.get();
  SetOption(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleS);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalS);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPCNT, kKeepCount);
  SetOption(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
}

Status Connection::ended() const {
  if (alive()) return Ok();
  return Error(state_ == ConnectionState::kBroken ? ERROR_RT_FAIL : ERROR_PEER_LOST, why_);
}

void Connection::End(ConnectionState state, std::string why) {
  state_ = state;
  why_ = std::move(why);
  socket_.reset();
  queue_.clear();
  queue_begin_ = 0;
  arrived_.clear();
  arrived_begin_ = 0;
}

void Connection::EndBy(int error) {
  const ConnectionState state = StateAfter(error);
  switch (state) {
    case ConnectionState::kRefused:
      return End(state, Concat("nobody listens at ", peer_));
    case ConnectionState::kUnreachable:
      return End(state, Concat("there is no route to ", peer_, ": ", std::strerror(error)));
    case ConnectionState::kTimedOut:
      return End(state, Concat(peer_, " has not answered for ", kUserTimeoutMs / 1000, " s"));
    case ConnectionState::kReset:
      return End(state, Concat(peer_, " has reset the connection: its process has ended"));
    case ConnectionState::kConnecting:
    case ConnectionState::kOpen:
    case ConnectionState::kClosed:
    case ConnectionState::kBroken:
      break;
  }
  const bool lacks_descriptors = error == EMFILE || error == ENFILE;
  End(state, lacks_descriptors
                 ? TooManyFiles().message()
                 : Concat("the connection to ", peer_, " failed: ", std::strerror(error)));
}

void Connection::Break(const std::string& did) {
  if (alive()) End(ConnectionState::kBroken, Concat(peer_, " ", did));
}

void Connection::CheckConnected() {
  pollfd polled{socket_.get(), POLLOUT, 0};
  if (poll(&polled, 1, 0) <= 0) return;
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return EndBy(error);
  // A socket that connects to a free port of its own host may meet itself.
  if (OwnAddress(socket_.get()).Text() == PeerAddress(socket_.get()).Text()) {
    return EndBy(ECONNREFUSED);
  }
  state_ = ConnectionState::kOpen;
}

std::string Connection::peer_host() const {
  const size_t colon = peer_.rfind(':');
  const bool v6 = !peer_.empty() && peer_.front() == '[';
  if (colon == std::string::npos || (v6 && colon < 2)) return peer_;
  return v6 ? peer_.substr(1, colon - 2) : peer_.substr(0, colon);
}

bool Connection::Send(const Frame& frame, const std::vector<int>& descriptors) {
  if (!alive() || !writable_ || frame.size() > kMostFrameBytes) return false;
  if (has_packets_) {
    const SocketResult sent = control::Send(socket_.get(), frame.data(), frame.size(), descriptors);
    lacks_room_ = sent == SocketResult::kWouldBlock;
    return sent == SocketResult::kDone;
  }
  const size_t waiting = queue_.size() - queue_begin_;
  if (waiting > 0 && waiting + kHeadBytes + frame.size() > kMostQueuedBytes) return false;
  for (size_t i = 0; i < kHeadBytes; ++i) {
    queue_.push_back(static_cast<std::byte>(frame.size() >> 8 * (kHeadBytes - 1 - i) & 0xff));
  }
  queue_.insert(queue_.end(), frame.begin(), frame.end());
  Flush();
  return true;
}

void Connection::Flush() {
  if (state_ == ConnectionState::kConnecting) CheckConnected();
  while (state_ == ConnectionState::kOpen && writable_ && !flushed()) {
    const ssize_t sent = send(socket_.get(), queue_.data() + queue_begin_,
                              queue_.size() - queue_begin_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && IsLater(errno)) break;
    if (sent < 0) {
      writable_ = false;
      queue_begin_ = queue_.size();
    } else {
      queue_begin_ += static_cast<size_t>(sent);
    }
  }
  const bool half_sent = queue_begin_ >= queue_.size() / 2;
  if (!half_sent) return;
  queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(queue_begin_));
  queue_begin_ = 0;
}

size_t Connection::ArrivedFrameBytes() {
  const size_t arrived = arrived_.size() - arrived_begin_;
  if (arrived < kHeadBytes) return 0;
  const size_t length = LengthAt(arrived_.data() + arrived_begin_);
  if (length > most_frame_bytes_) {
    End(ConnectionState::kBroken, Concat(peer_, " sent a frame of ", length, " bytes: at most ",
                                         most_frame_bytes_, " are allowed"));
    return 0;
  }
  return arrived < kHeadBytes + length ? 0 : kHeadBytes + length;
}

void Connection::Read() {
  if (arrived_begin_ > 0) {
    arrived_.erase(arrived_.begin(),
                   arrived_.begin() + static_cast<std::ptrdiff_t>(arrived_begin_));
    arrived_begin_ = 0;
  }
  const size_t before = arrived_.size();
  arrived_.resize(before + kReadBytes);
  const ssize_t count = recv(socket_.get(), arrived_.data() + before, kReadBytes, MSG_DONTWAIT);
  const int error = errno;
  arrived_.resize(before + static_cast<size_t>(std::max<ssize_t>(count, 0)));
  if (count == 0) End(ConnectionState::kClosed, Concat(peer_, " closed the connection"));
  if (count < 0 && !IsLater(error)) EndBy(error);
}

bool Connection::ReceivePacket(Frame* frame, std::vector<UniqueFd>* descriptors) {
  if (!alive()) return false;
  size_t bytes = 0;
  std::vector<UniqueFd> taken;
  frame->resize(most_frame_bytes_);
  const SocketResult result =
      control::Receive(socket_.get(), frame->data(), frame->size(), &bytes, &taken);
  if (result == SocketResult::kWouldBlock) return false;
  if (result == SocketResult::kClosed) {
    End(ConnectionState::kClosed, Concat(peer_, " closed the connection"));
    return false;
  }
  lost_descriptors_ = result == SocketResult::kNoDescriptors;
  frame->resize(bytes);
  if (descriptors != nullptr) *descriptors = std::move(taken);
  return true;
}

bool Connection::HasArrived() const {
  return socket_.valid() && Readable(socket_.get());
}

bool Connection::Receive(Frame* frame, std::vector<UniqueFd>* descriptors) {
  if (has_packets_) return ReceivePacket(frame, descriptors);
  Flush();
  while (state_ == ConnectionState::kOpen) {
    const size_t bytes = ArrivedFrameBytes();
    if (bytes > 0) {
      const auto begin = arrived_.begin() + static_cast<std::ptrdiff_t>(arrived_begin_);
      frame->assign(begin + kHeadBytes, begin + static_cast<std::ptrdiff_t>(bytes));
      arrived_begin_ += bytes;
      return true;
    }
    const size_t before = arrived_.size() - arrived_begin_;
    if (state_ == ConnectionState::kOpen) Read();
    if (arrived_.size() == before) return false;
  }
  return false;
}

void Connection::CloseWriting() {
  if (state_ == ConnectionState::kOpen) static_cast<void>(shutdown(socket_.get(), SHUT_WR));
}

// A socket that is closed with bytes unread is reset, and what it has not sent is lost. So all that
// arrives is read until the other host has confirmed all.
void Connection::Finish(const Deadline& deadline) {
  bool closed = false;
  while (alive() && writable_ && !has_packets_ && !deadline.Passed()) {
    Flush();
    if (state_ == ConnectionState::kOpen && flushed() && !std::exchange(closed, true))
      CloseWriting();
    char unread[kReadBytes];
    while (recv(socket_.get(), unread, sizeof(unread), MSG_DONTWAIT) > 0) continue;
    if (closed && !HasUnconfirmed(socket_.get())) break;
    constexpr int kRoundMs = 1;
    pollfd polled = Polled();
    static_cast<void>(poll(closed ? nullptr : &polled, closed ? 0 : 1, kRoundMs));
  }
  if (alive())
    End(ConnectionState::kClosed, Concat("the connection to ", peer_, " was closed here"));
}

pollfd Connection::Polled() const {
  const bool wants_room = state_ == ConnectionState::kConnecting || !flushed() || lacks_room_;
  return {socket_.get(), static_cast<short>(POLLIN | (wants_room ? POLLOUT : 0)), 0};
}

void AwaitReady(std::vector<pollfd> polled) {
  static_cast<void>(poll(polled.data(), polled.size(), kLookMs));
}

}  // namespace collops::control
