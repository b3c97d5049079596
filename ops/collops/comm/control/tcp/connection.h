#pragma once

#include <poll.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/control/descriptor.h"
#include "collops/comm/control/hosts/bridge.h"
#include "collops/comm/control/tcp/socket_address.h"
#include "collops/core/deadline.h"
#include "collops/core/status.h"

namespace collops::control::tcp {

constexpr size_t kMostFrameBytes = 64 * 1024;

// What has become of a connection.
enum class ConnectionState {
  kConnecting,
  kOpen,
  kClosed,       // by the other end
  kReset,        // the other end's process ended with frames unread, or its host forgot it
  kTimedOut,     // the other host has not answered for about four seconds
  kRefused,      // nobody listens there
  kUnreachable,  // no way leads there
  kBroken,       // another error, or bytes that are no frame
};

// A connection, of TCP or within this host, that carries frames, each with its length before it. No
// function waits, except Finish(). Frames that cannot be sent at once are queued, up to a limit.
// One thread uses it.
class Connection {
 public:
  static constexpr size_t kMostQueuedBytes = 1024 * 1024;

  // There is none.
  Connection() = default;
  // Begins to connect.
  explicit Connection(const SocketAddress& to);
  // An accepted socket.
  explicit Connection(UniqueFd socket);
  // A connected socket of this host (AF_UNIX), whose other end is called `peer`.
  Connection(UniqueFd socket, std::string peer)
      : socket_(std::move(socket)), peer_(std::move(peer)), state_(ConnectionState::kOpen) {}

  // The address and port of the other end, for messages.
  const std::string& peer() const { return peer_; }
  SocketAddress own_address() const { return OwnAddress(socket_.get()); }
  ConnectionState state() const { return state_; }
  bool alive() const {
    return state_ == ConnectionState::kConnecting || state_ == ConnectionState::kOpen;
  }
  // Ok, or why the connection has ended, e.g. "10.0.0.2:4711 closed the connection".
  Status ended() const;

  // A frame that is longer ends the connection; it is checked before memory is taken.
  void LimitFrames(size_t bytes) { most_frame_bytes_ = bytes; }

  // False if the queue is full, or the connection has ended: the frame was not sent.
  bool Send(const Frame& frame);
  // The next frame that has arrived. The end of the connection is seen after its last frame.
  bool Receive(Frame* frame);
  // Sends what is queued, as far as there is room.
  void Flush();
  bool flushed() const { return queue_.size() == queue_begin_; }
  // Sends what is queued and reads nothing more; the other end gets all before it sees the end.
  // Then it sees the end even if it sends. Waits for its host, not for its process.
  void Finish(const Deadline& deadline);
  // No more frames will be sent: the other end sees the end once it has read all.
  void CloseWriting();

  // Ends it because of what the other end `did`, e.g. "sent a frame that cannot be".
  void Break(const std::string& did);

  // What to wait for in poll(): a frame, or room for what is queued.
  pollfd Polled() const;

 private:
  void Prepare();
  void CheckConnected();
  void Read();
  void End(ConnectionState state, std::string why);
  void EndBy(int error);
  // 0 if no whole frame has arrived.
  size_t ArrivedFrameBytes();

  UniqueFd socket_;
  std::string peer_;
  ConnectionState state_ = ConnectionState::kClosed;
  std::string why_;
  bool writable_ = true;  // false after an error of a send: only what has arrived is still read
  size_t most_frame_bytes_ = kMostFrameBytes;
  Frame queue_;
  size_t queue_begin_ = 0;
  Frame arrived_;
  size_t arrived_begin_ = 0;
};

}  // namespace collops::control::tcp
