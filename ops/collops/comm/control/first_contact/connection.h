#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/control/descriptor.h"
#include "collops/core/deadline.h"
#include "collops/core/status.h"

namespace collops::control {

using Frame = std::vector<std::byte>;

// Equal in two processes if they can meet in the memory and sockets of one host: COLLOPS_SERVER_ID;
// else the boot of the machine and the network namespace. So a container is a host of its own.
// Virtual machines that were copied while they ran may need COLLOPS_SERVER_ID.
std::string HostIdentity();

// The name that this host gives itself, in letters that a message may have; may be empty.
constexpr size_t kMostHostNameBytes = 64;
std::string HostName();
// Text of a process that may be anyone's, as a message may have it: in one line, at most so long.
std::string Printable(std::string text, size_t most);

// An IPv4 or IPv6 address with a port.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;  // 0: none

  // "10.0.0.1:29577", "[fe80::1%2]:29577"
  std::string Text() const;
  // The address alone: "10.0.0.1", "fe80::1%2".
  std::string Host() const;
  int port() const;
  void set_port(int port);
};

// False for a name.
bool ParseNumeric(const std::string& host, int port, SocketAddress* address);

// The address of `host`, which is an address or a name; looks a name up, which may take a minute
// (see Lookup). Of several addresses, one of this host alone (127.0.0.1) comes last.
Status Resolve(const std::string& host, int port, SocketAddress* address);

// The address of this end of a connection, or of a listener; of the other end of a connection.
SocketAddress OwnAddress(int socket);
SocketAddress PeerAddress(int socket);

constexpr size_t kMostFrameBytes = 64 * 1024;
// So many frames of one connection are taken in a round: whoever sends without end is heard again
// in the next one.
constexpr int kMostHeard = 16;

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

// A connection that carries frames: by TCP, each with its length before it, or within this host,
// each a packet that may have descriptors. No function waits, except Finish(). Of TCP, frames that
// cannot be sent at once are queued, up to a limit. One thread uses it.
class Connection {
 public:
  static constexpr size_t kMostQueuedBytes = 1024 * 1024;

  // There is none.
  Connection() = default;
  // Begins to connect.
  explicit Connection(const SocketAddress& to);
  // An accepted socket.
  explicit Connection(UniqueFd socket);
  // A connected socket of this host (local_socket.h), whose other end is called `peer`.
  Connection(UniqueFd socket, std::string peer)
      : socket_(std::move(socket)),
        peer_(std::move(peer)),
        state_(ConnectionState::kOpen),
        has_packets_(true) {}

  // The address and port of the other end, for messages.
  const std::string& peer() const { return peer_; }
  // The address of it alone, of TCP: "10.0.0.1", also after its end.
  std::string peer_host() const;
  SocketAddress own_address() const { return OwnAddress(socket_.get()); }
  ConnectionState state() const { return state_; }
  bool alive() const {
    return state_ == ConnectionState::kConnecting || state_ == ConnectionState::kOpen;
  }
  // Ok, or why the connection has ended, e.g. "10.0.0.2:4711 closed the connection".
  Status ended() const;

  // A frame that is longer ends the connection; it is checked before memory is taken.
  void LimitFrames(size_t bytes) { most_frame_bytes_ = bytes; }

  // False if there is no room, or the connection has ended: the frame was not sent. Only a packet
  // has descriptors.
  bool Send(const Frame& frame, const std::vector<int>& descriptors = {});
  // The next frame that has arrived. The end of the connection is seen after its last frame.
  bool Receive(Frame* frame, std::vector<UniqueFd>* descriptors = nullptr);
  // Whether Receive() would find something: a packet, or the end.
  bool HasArrived() const;
  // The last frame came without its descriptors: this process may not open them.
  bool lost_descriptors() const { return lost_descriptors_; }
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

  // What to wait for in poll(): a frame, or room for what is to be sent.
  pollfd Polled() const;

 private:
  bool ReceivePacket(Frame* frame, std::vector<UniqueFd>* descriptors);
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
  bool has_packets_ = false;
  bool lacks_room_ = false;  // for a packet
  bool lost_descriptors_ = false;
  size_t most_frame_bytes_ = kMostFrameBytes;
  Frame queue_;
  size_t queue_begin_ = 0;
  Frame arrived_;
  size_t arrived_begin_ = 0;
};

// How often a wait looks for Ctrl-C and its deadline.
constexpr int kLookMs = 50;
// Sleeps until one of them is ready, at most kLookMs.
void AwaitReady(std::vector<pollfd> polled);

}  // namespace collops::control
