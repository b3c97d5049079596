#pragma once

#include <poll.h>

#include <deque>
#include <string>
#include <vector>

#include "collops/comm/control/descriptor.h"
#include "collops/comm/control/first_contact/connection.h"
#include "collops/comm/control/first_contact/handshake.h"
#include "collops/core/status.h"

namespace collops::control {

// Listens at one address of this host. No function waits.
class Listener {
 public:
  // Port 0: a free port, of COLLOPS_PORT_RANGE where that is set. An error if the port is taken,
  // which `taken` then says, or the address not of this host. A child of fork() does not listen:
  // UniqueFd closes the socket there.
  static Status Open(const SocketAddress& address, Listener* listener, bool* taken = nullptr);

  // With the port that was found.
  const SocketAddress& address() const { return address_; }
  int socket() const { return socket_.get(); }
  bool valid() const { return socket_.valid(); }
  void Close();

  // Not valid if nobody waits to be accepted. If this process may not open a descriptor, the client
  // is turned away, and tries again.
  UniqueFd Accept();
  // Clients that were turned away.
  int turned_away() const { return turned_away_; }

 private:
  bool TurnAway();

  SocketAddress address_;
  UniqueFd socket_;
  UniqueFd spare_;  // reserved: closed to take a client when no descriptor is left
  int turned_away_ = 0;
};

// One who has proven to be of this job.
struct Proven {
  Connection connection;
  Claim claim;
};

// A listener that lets in who proves to be of this job. At most kMostUnproven clients prove
// themselves at once, each in at most kPatienceS; later ones queue. A stranger costs a descriptor
// for a moment: while others queue, one that has said nothing for kSilenceS, was refused, or has
// not proven itself in kProofS makes room, the oldest first. No function waits; one thread uses it.
class JobListener {
 public:
  static constexpr size_t kMostUnproven = 64;
  static constexpr double kPatienceS = 5.0;
  static constexpr double kSilenceS = 0.5;
  static constexpr double kProofS = 1.5;

  explicit JobListener(JobSecret secret) : secret_(std::move(secret)) {}
  JobListener(const JobListener&) = delete;
  JobListener& operator=(const JobListener&) = delete;

  // Port 0: any free port. `taken`: an error is that of a port that somebody has.
  Status Open(const SocketAddress& address, bool* taken = nullptr) {
    return Listener::Open(address, &listener_, taken);
  }
  bool open() const { return listener_.valid(); }
  const SocketAddress& address() const { return listener_.address(); }
  // Accepts no more; drops those who have proven nothing yet.
  void Close();

  // True if one more has proven to be of this job.
  bool Next(std::vector<Proven>* proven);
  // Whoever queues is no reason to wake while the listener is full(): poll() no longer than 50 ms.
  void AddPolled(std::vector<pollfd>* polled) const;
  bool full() const { return clients_.size() >= kMostUnproven; }

  // The last one who was turned away, and why; Ok: no one. For the message of a time-out.
  Status last_refusal() const;
  bool lacks_descriptors() const { return listener_.turned_away() > 0; }
  // The last who were turned away, none twice: Challenge::turned_away().
  static constexpr size_t kMostTurnedAway = 4;
  const std::deque<std::string>& turned_away() const { return turned_away_; }

 private:
  struct Client {
    Challenge challenge;
    Deadline patience;
    Deadline silence;
    Deadline proof;
  };
  void AcceptAll();
  bool MakeRoom();
  void NoteRefusal(const Challenge& challenge);

  JobSecret secret_;
  Listener listener_;
  std::deque<Client> clients_;
  Status last_refusal_;
  std::deque<std::string> turned_away_;
};

}  // namespace collops::control
