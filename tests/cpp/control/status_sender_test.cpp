// What a host sends about its ranks, and in which order: no host sees an effect before its cause,
// wherever the watcher or the connection stops between two frames.
#include <poll.h>
#include <unistd.h>

#include <thread>

#include "check.h"
#include "collops/comm/control/endpoint.h"
#include "collops/comm/control/hosts/watcher.h"
#include "collops/core/deadline.h"

namespace {

using namespace collops;
using namespace collops::control;

// A bridge that stores the frames it gets, as far as there is room.
class Tape : public Bridge {
 public:
  explicit Tape(int rank_size) : rank_size_(rank_size) {}

  bool Tell(int, const Frame& frame) override {
    if (room_ == 0) return false;
    --room_;
    StatusUpdate update;
    EXPECT_TRUE(Decode(frame, rank_size_, &update));
    text_ += Letter(update.kind) + std::to_string(update.rank) + " ";
    return true;
  }
  bool Take(int*, Frame*) override { return false; }
  bool Lost(int) const override { return false; }
  void AddPolled(std::vector<pollfd>*) const override {}

  void GiveRoom(int frames) { room_ = frames; }
  // The kind and the rank of each frame since the last call.
  std::string Told() { return std::exchange(text_, ""); }

 private:
  static std::string Letter(StatusKind kind) {
    constexpr const char* kLetters[] = {"?",      "beat", "head",  "finished",
                                        "failed", "left", "ended", "pair"};
    return kLetters[static_cast<int>(kind)];
  }

  const int rank_size_;
  int room_ = 1000;
  std::string text_;
};

// Host 0, with its first `ranks` ranks. Each further rank is alone on its host: the first of them
// on host 1, the next on host 2.
class Host {
 public:
  explicit Host(int ranks, int others = 1) : own_(ranks), size_(ranks + others), bridge_(size_) {
    EXPECT_EQ(Segment::Create(Board::Bytes(size_), &segment_).message(), "");
    EXPECT_EQ(pipe(life_), 0);
    group_ = MakeGroup();
    std::vector<int> own;
    for (int r = 0; r < size_; ++r) {
      if (r < own_) own.push_back(r);
      ends_.push_back(std::make_unique<Endpoint>(MakeGroup(), r, size_));
    }
    sender_ = std::make_unique<StatusSender>(&group_, own, size_);
  }
  ~Host() {
    for (const int end : life_) close(end);
  }

  Endpoint& end(int rank) { return *ends_[static_cast<size_t>(rank)]; }
  Tape& bridge() { return bridge_; }
  void Look(bool all = true) { sender_->Look(all); }
  bool Tell(int host = 1) { return sender_->SendTo(host, &bridge_); }
  void Begin(int rank, uint64_t step, HeadKind kind = HeadKind::kCall) {
    end(rank).head(rank, step).step.store(StepWord(step, kind));
  }
  // Looks without having been rung until so much is told, or for long.
  std::string LookUntilTold() {
    const Deadline deadline = Deadline::After(check::Patience(10));
    std::string told;
    while (told.empty() && !deadline.Passed()) {
      Look(false);
      EXPECT_TRUE(Tell());
      told = bridge_.Told();
    }
    return told;
  }

 private:
  Group MakeGroup() const {
    Group group;
    group.segment = segment_;
    for (int r = 0; r < size_; ++r) {
      group.peers.emplace_back();
      group.peers.back().host = r < own_ ? 0 : 1 + r - own_;
      if (r < own_)
        group.peers.back().lifeline = collops::control::SharedFd(UniqueFd(dup(life_[0])));
    }
    return group;
  }

  const int own_;
  const int size_;
  Segment segment_;
  int life_[2];
  Group group_;
  std::vector<std::unique_ptr<Endpoint>> ends_;
  Tape bridge_;
  std::unique_ptr<StatusSender> sender_;
};

// Both ranks have begun step 2. Rank 1 fails in it; rank 0 sees that and leaves.
void FailAndLeave(Host& host) {
  for (const int rank : {0, 1}) {
    host.end(rank).Finish(1);
    host.Begin(rank, 2);
  }
  host.end(1).PublishFailure(Error(ERROR_TIMEOUT, "too late"), 2);
  host.end(0).PublishLeft("it closed its communicator");
}

constexpr const char* kFailAndLeave = "head0 head1 finished0 finished1 failed1 left0 ";

}  // namespace

TEST(ADepartureIsSentAfterTheFailureThatCausedIt) {
  Host host(2);
  FailAndLeave(host);
  host.Look();
  EXPECT_TRUE(host.Tell());
  EXPECT_EQ(host.bridge().Told(), kFailAndLeave);
  EXPECT_TRUE(host.Tell());
  EXPECT_EQ(host.bridge().Told(), "");
}

// A mark goes to the host of the marked rank alone, before what its rank does next.
TEST(AMarkIsSentToTheHostThatItIsFor) {
  Host host(2, 2);
  host.end(1).MarkPair(2, 1);
  host.end(1).PublishLeft("it closed its communicator");
  host.Look();
  EXPECT_TRUE(host.Tell(1));
  EXPECT_EQ(host.bridge().Told(), "pair1 left1 ");
  EXPECT_TRUE(host.Tell(2));
  EXPECT_EQ(host.bridge().Told(), "left1 ");
}

TEST(TheOrderIsTheSameWithLittleRoom) {
  Host host(2);
  FailAndLeave(host);
  host.bridge().GiveRoom(0);
  host.Look();
  EXPECT_FALSE(host.Tell());
  for (int i = 0; i < 6; ++i) {
    host.bridge().GiveRoom(1);
    host.Look();
    EXPECT_EQ(host.Tell(), i == 5);
  }
  EXPECT_EQ(host.bridge().Told(), kFailAndLeave);
}

// Peers may be reading why it has left.
TEST(TheReasonOfARankThatHasLeftIsNotWrittenAgain) {
  Host host(2);
  host.end(0).PublishLeft("its work is done");
  host.end(0).PublishFailure(Error(ERROR_ABORTED, "enough"), 0);
  const collops::Status status = host.end(1).GroupFailure();
  EXPECT_EQ(status.code(), ERROR_ABORTED);
  EXPECT_EQ(status.message(), "its work is done (reported by rank 0)");
}

// While the watcher reads the state of many ranks, the first one fails and the last one therefore
// leaves.
TEST(ChangesDuringALookAreSentCauseFirst) {
  constexpr int kRanks = 60;
  for (int i = 0; i < 100; ++i) {
    Host host(kRanks);
    std::atomic<bool> looks{false};
    std::thread ranks([&] {
      while (!looks.load()) std::this_thread::yield();
      host.end(0).PublishFailure(Error(ERROR_ABORTED, "enough"), 0);
      host.end(kRanks - 1).PublishLeft("it closed its communicator");
    });
    looks = true;
    std::string told;
    while (told.find("left") == std::string::npos) {
      host.Look();
      EXPECT_TRUE(host.Tell());
      told += host.bridge().Told();
    }
    ranks.join();
    EXPECT_EQ(told, "failed0 left59 ");
  }
}

// Rank 1 of host 1 has failed, and rank 0 therefore leaves. Host 2 may not have heard of the
// failure, nor of the heads that it rests on. Host 1 knows it all.
TEST(WhatAnotherHostHasCausedIsPassedOn) {
  Host host(1, 2);
  for (const int rank : {0, 1, 2}) host.end(rank).Finish(3);
  for (const int rank : {0, 1, 2}) host.Begin(rank, 4);
  host.Look();
  EXPECT_TRUE(host.Tell(2));
  EXPECT_EQ(host.bridge().Told(), "head0 finished0 ");
  host.end(1).PublishFailure(Error(ERROR_RANK_MISMATCH, "they differ"), 4);
  host.end(0).PublishLeft("it closed its communicator");
  for (const int parts : {1, 100}) {
    host.bridge().GiveRoom(parts);
    host.Look();
    EXPECT_EQ(host.Tell(2), parts > 1);
  }
  EXPECT_EQ(host.bridge().Told(), "head1 failed1 left0 ");
  EXPECT_TRUE(host.Tell(2));
  EXPECT_EQ(host.bridge().Told(), "");
  EXPECT_TRUE(host.Tell(1));
  EXPECT_EQ(host.bridge().Told(), "head0 head2 finished0 left0 ");
}

// Nobody waits for the heads of carried steps, unless a step does not end.
TEST(ACarriedHeadIsSentOnceItHasStayedForAWhile) {
  Host host(2);
  for (const int rank : {0, 1}) host.Begin(rank, 1, HeadKind::kCarried);
  host.Look(false);
  EXPECT_TRUE(host.Tell());
  EXPECT_EQ(host.bridge().Told(), "");
  host.end(0).FinishOnHost(1);
  // A rank that has finished its step is not waited for.
  std::string told;
  while (told.size() < std::string("head1 finished0 ").size()) {
    const std::string more = host.LookUntilTold();
    told += more;
    ASSERT_TRUE(!more.empty());
  }
  EXPECT_CONTAINS(told, "head1 ");
  EXPECT_CONTAINS(told, "finished0 ");
  EXPECT_TRUE(told.find("head0") == std::string::npos);
}

TEST(ARingOrAnEndSendsAllHeads) {
  for (const bool rung : {false, true}) {
    Host host(2);
    for (const int rank : {0, 1}) host.Begin(rank, 1, HeadKind::kCarried);
    host.end(0).FinishOnHost(1);
    if (!rung) host.end(0).PublishLeft("its work is done");
    host.Look(rung);
    EXPECT_TRUE(host.Tell());
    EXPECT_EQ(host.bridge().Told(), std::string("head0 head1 finished0 ") + (rung ? "" : "left0 "));
  }
}

TEST(AHeadThatIsBeingWrittenIsNotSent) {
  Host host(2);
  host.Begin(0, 1, HeadKind::kChanging);
  host.Begin(1, 1, HeadKind::kCarried);
  host.Look();
  EXPECT_TRUE(host.Tell());
  EXPECT_EQ(host.bridge().Told(), "head1 ");
}

// Only the heads of the failed step are passed on, and none of a failure outside a step.
TEST(WhatHasNotCausedAFailureIsNotPassedOn) {
  for (const uint64_t step : {uint64_t{0}, uint64_t{4}}) {
    Host host(2, 2);
    for (const int rank : {0, 1, 2, 3}) host.Begin(rank, 3);
    host.Begin(3, 4);
    host.end(0).PublishFailure(Error(ERROR_ABORTED, "enough"), step);
    host.Look();
    EXPECT_TRUE(host.Tell(1));
    EXPECT_EQ(host.bridge().Told(),
              step == 0 ? "head0 head1 failed0 " : "head0 head1 head3 failed0 ");
  }
}
