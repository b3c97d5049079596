#pragma once

#include <poll.h>

#include <deque>
#include <vector>

#include "collops/comm/control/tcp/handshake.h"
#include "collops/comm/control/tcp/listener.h"

namespace collops::control::tcp {

// One who has proven to be of this job.
struct Proven {
  Connection connection;
  Claim claim;
};

// A listener that lets in who proves to be of this job. At most kMostUnproven clients prove
// themselves at once, each in at most kPatienceS; later ones queue. A stranger costs a descriptor
// for a moment: while others queue, one that has said nothing for kSilenceS, was refused, or has
// not proven itself in kProofS makes room, the oldest first. No function waits; one thread uses it.
class Door {
 public:
  static constexpr size_t kMostUnproven = 64;
  static constexpr double kPatienceS = 5.0;
  static constexpr double kSilenceS = 0.5;
  static constexpr double kProofS = 1.5;

  explicit Door(JobSecret secret) : secret_(std::move(secret)) {}
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

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
  // Whoever queues is no reason to wake while the door is full(): poll() no longer than 50 ms.
  void AddPolled(std::vector<pollfd>* polled) const;
  bool full() const { return clients_.size() >= kMostUnproven; }

  // The last one who was turned away, and why; Ok: no one. For the message of a time-out.
  Status last_refusal() const;

 private:
  struct Client {
    Challenge challenge;
    Deadline patience;
    Deadline silence;
    Deadline proof;
  };
  void AcceptAll();
  bool MakeRoom();

  JobSecret secret_;
  Listener listener_;
  std::deque<Client> clients_;
  Status last_refusal_;
};

}  // namespace collops::control::tcp
