#include "collops/comm/control/tcp/connection.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace collops::control::tcp {
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

bool IsLocal(int socket) {
  int domain = 0;
  socklen_t length = sizeof(domain);
  return getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

size_t LengthAt(const std::byte* head) {
  size_t length = 0;
  for (size_t i = 0; i < kHeadBytes; ++i) length = length << 8 | std::to_integer<size_t>(head[i]);
  return length;
}

}  // namespace

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
  End(state, Concat("the connection to ", peer_, " failed: ", std::strerror(error)));
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

bool Connection::Send(const Frame& frame) {
  if (!alive() || !writable_ || frame.size() > kMostFrameBytes) return false;
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
  ssize_t count = recv(socket_.get(), arrived_.data() + before, kReadBytes, MSG_DONTWAIT);
  // A peer of this host that closed with frames unread: what it sent before can still be read.
  if (count < 0 && errno == ECONNRESET && IsLocal(socket_.get())) {
    count = recv(socket_.get(), arrived_.data() + before, kReadBytes, MSG_DONTWAIT);
  }
  const int error = errno;
  arrived_.resize(before + static_cast<size_t>(std::max<ssize_t>(count, 0)));
  if (count == 0) End(ConnectionState::kClosed, Concat(peer_, " closed the connection"));
  if (count < 0 && !IsLater(error)) EndBy(error);
}

bool Connection::Receive(Frame* frame) {
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
  while (alive() && writable_ && !deadline.Passed()) {
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
  const bool wants_room = state_ == ConnectionState::kConnecting || !flushed();
  return {socket_.get(), static_cast<short>(POLLIN | (wants_room ? POLLOUT : 0)), 0};
}

}  // namespace collops::control::tcp
