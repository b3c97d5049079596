#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "collops/comm/control/bootstrap/unique_fd.h"
#include "collops/comm/control/tcp/connection.h"
#include "collops/comm/control/tcp/first_contact/rendezvous_spec.h"

namespace collops::control::tcp {

// One rank of a host speaks for the others there, so that rank 0 has one connection to each host:
// the first that listens at a name of this host, to which the others then connect. It passes on
// what they say to rank 0, and what rank 0 says to all. No function waits, except the ends; one
// thread uses it.
class HostSpeaker {
 public:
  // Ranks that may speak for each other have one name: those of one host, user, group, job and key,
  // with one version of the protocol.
  static std::string NameOf(const RendezvousSpec& spec);

  // False if another socket has the name.
  bool Open(const std::string& name);
  // From then on until an end.
  bool open() const { return open_; }
  // Of the speaker, and its process; not valid if nobody listens at the name, or another user does.
  static UniqueFd Reach(const std::string& name, pid_t* pid);

  // For all followers, also those that come later: frames that they get one after another, and the
  // latest word, which replaces the one before.
  void Pass(const Frame& frame) { passed_.push_back(frame); }
  void Tell(const Frame& frame);
  // Rank 0 has the rows of all: whoever comes later, or has sent none, is not of the group.
  void Complete();
  // One round: takes followers, sends them what they do not have yet, and passes on to `rank_0`
  // what they say. Null: there is no connection yet. An error if no descriptor is left for one.
  Status Serve(Connection* rank_0);
  void AddPolled(std::vector<pollfd>* polled) const;

  // Hangs up, once the followers have all that was passed.
  void Finish(const Deadline& deadline);
  // Tells the followers that first contact ends, and why, and hangs up.
  void End(const Status& reason, const Deadline& deadline);

 private:
  struct Follower {
    Connection connection;
    int rank = -1;  // -1: its row has not come
    size_t passed = 0;
    uint64_t told = 0;
    bool left = false;  // it said why it leaves
  };

  Status Accept();
  static void Hear(Follower* follower, Connection* rank_0);
  static void HearNote(Follower* follower, const Frame& frame, Connection* rank_0);
  void Send(Follower* follower) const;

  UniqueFd listener_;
  bool open_ = false;
  std::list<Follower> followers_;
  std::vector<Frame> passed_;
  Frame latest_;
  uint64_t num_told_ = 0;
};

}  // namespace collops::control::tcp
