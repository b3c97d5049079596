#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collops/comm/communicator_spec.h"
#include "collops/comm/control/descriptor.h"
#include "collops/comm/control/segment.h"

namespace collops::control {

class Control;
class Lobby;
struct Introduction;

// A communicator's parameters, and what its ranks know of each other where another group has made
// this one: a subgroup, or the ranks of one host of a group on several.
struct GroupSpec : CommunicatorSpec {
  GroupSpec() = default;
  GroupSpec(const CommunicatorSpec& spec) : CommunicatorSpec(spec) {}  // NOLINT: of no other group

  // What the backend says of `table`, as soon as that is complete; null: nothing.
  Status (*check_table)(const std::string& backend, const RankTable& table) = nullptr;
  // Called repeatedly during first contact, which its error ends: a rank cannot come any more.
  std::function<Status()> watch = {};
  // Set where this group lives no longer than the one that it was split from: a failure in one of
  // the two ends the other.
  std::weak_ptr<Control> parent = {};
  // The digest of the rank table of the group that was split: it names the job.
  std::string table_digest = "";
  // On several hosts: what the ranks have told each other over the parent.
  std::shared_ptr<Introduction> introduction = nullptr;
  // The members are known to be on one host.
  bool one_host = false;
  // The backend's own part of the subgroup, which was made when the group was split; and whether
  // the group has no board, so that the subgroup has none.
  std::shared_ptr<void> engine_part = nullptr;
  bool has_no_board = false;
  // This process's rank in the group from which the subgroup comes, however often that was split;
  // -1: it is no subgroup.
  int top_rank = -1;
  // The device that this rank has in the group from which this one comes; -1: that of its thread.
  int device = -1;
  // Of a group that another one was shrunk to: their numbers in that one; and what tells its
  // meeting apart from others of the comm_domain.
  std::vector<int> old_ranks = {};
  std::string meeting = "";
};

class Watcher;

// What a rank knows about a peer, or about itself.
struct Peer {
  pid_t pid = 0;
  SharedFd mailbox;   // a socket for window mails; hangs up when the peer has left
  SharedFd lifeline;  // a pidfd that the peer opened on itself; readable when its process has ended
  int number = -1;    // in messages, if it is not the rank: that of a larger group
  int host = 0;  // a peer of another host has no mailbox or lifeline: a watcher reports its state
};

// The result of first contact: a Peer for every rank, the segment that the ranks of this host
// share, and the inbox of this rank's window mails.
struct Group {
  std::vector<Peer> peers;
  Segment segment;
  UniqueFd inbox;

  int host = 0;  // this rank's host; hosts are numbered in the order of their first ranks
  std::string
      address;        // of this host, for connections of other hosts; only where there are several
  UniqueFd doorbell;  // wakes the watcher of this host; only where there are several hosts
  // Who the ranks are and where each is reached; null: on one host, or of a subgroup.
  std::shared_ptr<Introduction> introduction;
  // Where this rank is reached, until it leaves the group. A group that it was shrunk to, or that
  // grew from it, shares it: the last one that is left closes it.
  std::shared_ptr<Lobby> lobby;
  std::string table_digest;          // of a rank table that was completed at first contact
  std::shared_ptr<Watcher> watcher;  // set in the rank whose process runs the watcher
};

}  // namespace collops::control
