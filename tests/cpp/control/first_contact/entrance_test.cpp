// Where a group waits for new processes: who is taken, in which order, and who is dropped.
#include "collops/comm/control/first_contact/entrance.h"

#include "check.h"
#include "collops/comm/control/first_contact/local_socket.h"
#include "collops/comm/control/first_contact/messages.h"
#include "ranks.h"

namespace {

using namespace collops::control;
using collops::ERROR_PEER_LOST;
using collops::ERROR_RANK_MISMATCH;
using collops::Status;

std::string FreshName() {
  return "collops-entrance-" + ranks::FreshJob().id;
}

// One round of both.
bool Round(Entrance* entrance, Entrant* guest, Invitation* invitation) {
  bool invited = false;
  EXPECT_EQ(entrance->Look().message(), "");
  EXPECT_EQ(guest->Look(invitation, &invited).message(), "");
  EXPECT_EQ(entrance->Look().message(), "");
  return invited;
}

Frame Words(std::initializer_list<uint64_t> words) {
  FieldWriter fields;
  for (const uint64_t word : words) fields.Number(word);
  return fields.frame();
}

// A process that connects by hand and says `said`; what it hears until the other end hangs up.
Frame Say(const std::string& name, Entrance* entrance, const Frame& said) {
  Connection connection(ConnectTo(name), "the entrance");
  EXPECT_TRUE(connection.Send(said));
  EXPECT_EQ(entrance->Look().message(), "");
  Frame heard;
  if (!connection.Receive(&heard)) heard.clear();
  Frame more;
  EXPECT_FALSE(connection.Receive(&more));
  EXPECT_FALSE(connection.alive());
  return heard;
}

}  // namespace

TEST(TheFirstThatComeAreInvitedInTheirOrder) {
  const std::string name = FreshName();
  Entrance entrance(name, 2);
  std::deque<Entrant> guests;
  Invitation invitation;
  for (int i = 0; i < 3; ++i) {
    guests.emplace_back(name);
    EXPECT_FALSE(Round(&entrance, &guests.back(), &invitation));
    EXPECT_EQ(entrance.num_present(), i + 1);
  }
  collops::Tuning tuning;
  tuning.streamed_output = 12345;
  entrance.Invite({77, 4, 6, tuning});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Round(&entrance, &guests[static_cast<size_t>(i)], &invitation), i < 2);
    if (i == 2) break;
    EXPECT_EQ(invitation.rank, 4 + i);
    EXPECT_EQ(invitation.rank_size, 6);
    EXPECT_EQ(invitation.meeting(), "grow 77");
    EXPECT_EQ(invitation.tuning.streamed_output, 12345);
    EXPECT_FALSE(guests[static_cast<size_t>(i)].HasNews());
    guests[static_cast<size_t>(i)].TellMet(invitation);
    EXPECT_EQ(entrance.Look().message(), "");
    EXPECT_EQ(entrance.AllMet(), i == 1);
  }
  EXPECT_EQ(entrance.CheckInvited().message(), "");
  entrance.Release();
  EXPECT_TRUE(guests[0].HasNews());
  EXPECT_FALSE(guests[2].HasNews());
}

TEST(OneThatEndsIsMissedAndTheNextTakesItsPlace) {
  const std::string name = FreshName();
  Entrance entrance(name, 2);
  Entrant first(name);
  Entrant last(name);
  Invitation invitation;
  {
    Entrant gone(name);
    EXPECT_FALSE(Round(&entrance, &gone, &invitation));
    EXPECT_FALSE(Round(&entrance, &first, &invitation));
    entrance.Invite({1, 1, 3, {}});
    EXPECT_TRUE(Round(&entrance, &first, &invitation));
    EXPECT_EQ(invitation.rank, 2);
    first.TellMet(invitation);
  }
  EXPECT_EQ(entrance.Look().message(), "");
  EXPECT_EQ(entrance.CheckInvited().code(), ERROR_PEER_LOST);
  EXPECT_EQ(entrance.num_present(), 1);
  EXPECT_FALSE(Round(&entrance, &last, &invitation));
  entrance.Invite({2, 1, 3, {}});
  EXPECT_TRUE(Round(&entrance, &first, &invitation));
  EXPECT_EQ(invitation.rank, 1);
  EXPECT_EQ(entrance.CheckInvited().message(), "");
  // That it has met before says nothing of this meeting.
  EXPECT_TRUE(Round(&entrance, &last, &invitation));
  last.TellMet(invitation);
  EXPECT_EQ(entrance.Look().message(), "");
  EXPECT_FALSE(entrance.AllMet());
}

TEST(StrangersAreDroppedAndAnotherVersionIsTold) {
  const std::string name = FreshName();
  Entrance entrance(name, 1);
  EXPECT_EQ(entrance.Look().message(), "");
  const auto join = static_cast<uint64_t>(MessageKind::kJoin);
  const auto hello = static_cast<uint64_t>(MessageKind::kHello);
  for (const Frame& said : {Frame(3, std::byte{7}), Words({1, 2, 3}), Words({kLocalVersion}),
                            Words({kLocalVersion, hello, 1}), Words({kLocalVersion, join}),
                            Words({kLocalVersion, join, 1, 2})}) {
    EXPECT_TRUE(Say(name, &entrance, said).empty());
  }
  EXPECT_EQ(entrance.Hindrance(), "");
  Status verdict;
  EXPECT_TRUE(
      ReadLocalVerdict(Say(name, &entrance, Words({kLocalVersion + 1, join, 1})), &verdict));
  EXPECT_EQ(verdict.code(), ERROR_RANK_MISMATCH);
  EXPECT_CONTAINS(verdict.message(), " run different versions of collops: install one");
  EXPECT_CONTAINS(entrance.Hindrance(), " came with another version of collops");
  // Those that say nothing do not keep a process away.
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 2 * kMaxRanks; ++i) {
    silent.push_back(ConnectTo(name));
    if (i % 32 == 0) EXPECT_EQ(entrance.Look().message(), "");
  }
  Entrant guest(name);
  Invitation invitation;
  EXPECT_FALSE(Round(&entrance, &guest, &invitation));
  EXPECT_EQ(entrance.num_present(), 1);
  // A guest that says what no guest says.
  Connection odd(ConnectTo(name), "the entrance");
  EXPECT_TRUE(odd.Send(Words({kLocalVersion, join, 0, 5, 0, 0, 0})));
  EXPECT_EQ(entrance.Look().message(), "");
  EXPECT_EQ(entrance.num_present(), 2);
  EXPECT_TRUE(odd.Send(Words({kLocalVersion, join, 0, 5, 0, 0, 0})));
  EXPECT_EQ(entrance.Look().message(), "");
  EXPECT_EQ(entrance.num_present(), 1);
}

// Such as a rank 0 that was stopped, and that the others have left out.
TEST(OneThatHoldsTheNameDoesNotKeepAnybodyAway) {
  const std::string name = FreshName();
  const UniqueFd stopped = Listen(name);
  Entrant guest(name);
  Invitation invitation;
  bool invited = false;
  EXPECT_EQ(guest.Look(&invitation, &invited).message(), "");
  EXPECT_TRUE(guest.connected());
  Entrance entrance(name, 1);
  EXPECT_EQ(entrance.Look().message(), "");
  EXPECT_EQ(entrance.Hindrance(), "");
  EXPECT_FALSE(Round(&entrance, &guest, &invitation));
  EXPECT_EQ(entrance.num_present(), 1);
  entrance.Invite({5, 1, 2, {}});
  EXPECT_TRUE(Round(&entrance, &guest, &invitation));
  EXPECT_EQ(entrance.num_present(), 1);
}

TEST(AGuestHearsOfAnotherVersionAndOfATakenName) {
  const std::string name = FreshName();
  const UniqueFd taken = Listen(name);
  {
    std::vector<UniqueFd> others;
    for (const char* end : {"-1", "-2", "-3"}) others.push_back(Listen(name + end));
    Entrance entrance(name, 1);
    EXPECT_EQ(entrance.Look().message(), "");
    EXPECT_CONTAINS(entrance.Hindrance(), "other processes on this host have taken the sockets");
  }
  for (const Frame& said : {Frame(3, std::byte{7}), Words({kLocalVersion + 1, 2, 3})}) {
    Entrant guest(name);
    Invitation invitation;
    bool invited = false;
    EXPECT_EQ(guest.Look(&invitation, &invited).message(), "");
    Connection other(Accept(taken), "the guest");
    EXPECT_TRUE(other.Send(said));
    EXPECT_TRUE(guest.HasNews());
    EXPECT_EQ(guest.Look(&invitation, &invited).code(), ERROR_RANK_MISMATCH);
  }
}
