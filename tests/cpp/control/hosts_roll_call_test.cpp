// The roll call of several hosts: ranks in one thread, which move in an order that is drawn, over
// connections of this host; deaths are listeners and connections that close.
#include "collops/comm/control/hosts/hosts_roll_call.h"

#include <numeric>
#include <random>
#include <set>

#include "control/first_contact/loopback.h"

namespace {

using namespace collops;
using namespace collops::control;

const JobSecret kSecret = {"a job", "a key"};
const double kTimeoutS = check::Patience(60);

// One rank. It calls the roll, meets the members, and goes on until one of them is not there.
class Rank {
 public:
  // What the ranks of a new group see of each other when they meet, and later.
  struct Groups {
    std::map<std::string, std::set<int>> entered;
    std::map<std::string, std::set<int>> left;  // or have ended
  };

  Rank(int number, Groups* groups) : number_(number), groups_(*groups) {
    lobby_ = std::make_shared<Lobby>(std::make_unique<JobListener>(kSecret));
    EXPECT_EQ(lobby_->listener().Open(loopback::At("127.0.0.1")).message(), "");
  }

  Row row() const {
    Row row;
    row.rank = number_;
    row.pid = number_ + 1;
    row.host = std::to_string(number_ / 2);
    row.address = "127.0.0.1";
    row.port = lobby_->listener().address().port();
    return row;
  }

  void Begin(const std::vector<Row>& rows, const std::vector<int>& exclude = {},
             double timeout_s = kTimeoutS, double excluded_s = kTimeoutS,
             std::function<Ending(int)> ending = nullptr) {
    introduction_.rows = rows;
    introduction_.secret = kSecret;
    introduction_.lobby = lobby_;
    members_.resize(rows.size());
    std::iota(members_.begin(), members_.end(), 0);
    HostsRollCall::Spec spec = SpecOf(timeout_s);
    spec.ending = std::move(ending);
    for (const int r : exclude) spec.excluded.Add(r);
    spec.excluded_s = excluded_s;
    roll_.emplace(&introduction_, spec);
  }

  // One move.
  void Move(std::mt19937* draw) {
    if (roll_ && !roll_->decided()) {
      status_ = roll_->Step();
      if (!status_.ok()) End();
      return;
    }
    if (roll_) return Meet(draw);
    // A call of the new group finds that a member is not there.
    if (met_ && !groups_.left[group_].empty() && (*draw)() % 4 == 0) CallAgain();
  }

  // Its process ends, or its caller gives up.
  void Die() {
    End();
    lobby_.reset();
    dead_ = true;
  }

  bool dead() const { return dead_; }
  Lobby& lobby() { return *lobby_; }
  Status Step() { return roll_->Step(); }
  bool met() const { return met_; }
  const Status& status() const { return status_; }
  const std::string& group() const { return group_; }
  const std::vector<int>& members() const { return members_; }

 private:
  HostsRollCall::Spec SpecOf(double timeout_s) const {
    HostsRollCall::Spec spec;
    spec.domain = "dp";
    spec.group = group_;
    const auto own = std::find(members_.begin(), members_.end(), number_);
    spec.rank = static_cast<int>(own - members_.begin());
    spec.excluded = RankSet::None(static_cast<int>(members_.size()));
    spec.timeout_s = timeout_s;
    return spec;
  }

  void End() {
    roll_.reset();
    if (!next_.empty()) groups_.left[next_].insert(number_);
    if (met_) groups_.left[group_].insert(number_);
    met_ = false;
  }

  void Meet(std::mt19937* draw) {
    next_ = Concat("shrink ", roll_->token());
    std::vector<int> members;
    for (size_t r = 0; r < members_.size(); ++r) {
      if (roll_->members().Contains(static_cast<int>(r))) members.push_back(members_[r]);
    }
    const bool in_vain = roll_->MeetsInVain() || !groups_.left[next_].empty();
    std::set<int>& entered = groups_.entered[next_];
    const bool complete = entered.size() == members.size() && (*draw)() % 3 == 0;
    if (!in_vain) entered.insert(number_);
    // All have come: one of them may see it, and another one the loss of a third.
    if (!in_vain && !complete) return;
    if (!in_vain) roll_->Arrive();
    met_ = !in_vain;
    if (in_vain) groups_.left[next_].insert(number_);
    roll_.reset();
    group_ = next_;
    next_.clear();
    members_ = members;
    if (in_vain) CallAgain();
  }

  void CallAgain() {
    groups_.left[group_].insert(number_);
    met_ = false;
    std::vector<Row> rows;
    for (const Row& row : introduction_.rows) {
      const bool is_member =
          std::find(members_.begin(), members_.end(), row.pid - 1) != members_.end();
      if (!is_member) continue;
      rows.push_back(row);
      rows.back().rank = static_cast<int>(rows.size()) - 1;
    }
    introduction_.rows = rows;
    roll_.emplace(&introduction_, SpecOf(kTimeoutS));
  }

  const int number_;
  Groups& groups_;
  std::shared_ptr<Lobby> lobby_;
  Introduction introduction_;
  std::string group_;
  std::string next_;  // while it meets
  std::vector<int> members_;
  std::optional<HostsRollCall> roll_;
  bool met_ = false;
  bool dead_ = false;
  Status status_;
};

struct Ranks {
  explicit Ranks(int size) {
    for (int r = 0; r < size; ++r) all.push_back(std::make_unique<Rank>(r, &groups));
    for (const auto& rank : all) rows.push_back(rank->row());
  }
  void MoveOne(std::mt19937* draw) { all[(*draw)() % all.size()]->Move(draw); }
  void MoveAll(std::mt19937* draw) {
    for (const auto& rank : all) rank->Move(draw);
  }
  std::vector<int> Living() const {
    std::vector<int> living;
    for (size_t r = 0; r < all.size(); ++r) {
      if (!all[r]->dead()) living.push_back(static_cast<int>(r));
    }
    return living;
  }
  // All that live have one group, of these ranks.
  bool Agree() const {
    const std::vector<int> living = Living();
    const std::string& group = all[static_cast<size_t>(living.front())]->group();
    return std::all_of(living.begin(), living.end(), [&](int r) {
      const Rank& rank = *all[static_cast<size_t>(r)];
      return rank.met() && rank.group() == group && rank.members() == living;
    });
  }

  Rank::Groups groups;
  std::vector<std::unique_ptr<Rank>> all;
  std::vector<Row> rows;
};

void Draw(unsigned seed) {
  std::mt19937 draw(seed);
  const int size = 2 + static_cast<int>(draw() % 5);
  Ranks ranks(size);
  const int killed = 1 + static_cast<int>(draw() % static_cast<unsigned>(size - 1));
  std::vector<int> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), draw);
  // The one that leads, and then the next one that does.
  if (draw() % 3 == 0) std::sort(order.begin(), order.end());
  std::vector<int> begin(static_cast<size_t>(size));
  for (int& at : begin) at = static_cast<int>(draw() % 200);
  std::vector<int> end(static_cast<size_t>(killed));
  for (int& at : end) at = static_cast<int>(draw() % 900);
  end.front() = std::min(end.front(), 300);
  for (int move = 0; move < 900; ++move) {
    for (size_t r = 0; r < ranks.all.size(); ++r) {
      if (begin[r] == move && !ranks.all[r]->dead()) ranks.all[r]->Begin(ranks.rows);
    }
    for (size_t i = 0; i < end.size(); ++i) {
      if (end[i] == move) ranks.all[static_cast<size_t>(order[i])]->Die();
    }
    ranks.MoveOne(&draw);
  }
  const bool agree = loopback::Await([&] {
    ranks.MoveAll(&draw);
    return ranks.Agree();
  });
  if (agree) return;
  std::printf("  seed %u: %d of %d ranks\n", seed, killed, size);
  for (const auto& rank : ranks.all) {
    std::printf("  %s%s \"%s\" of %zu: %s\n", rank->dead() ? "dead " : "", rank->met() ? "met" : "",
                rank->group().c_str(), rank->members().size(), rank->status().message().c_str());
  }
}

}  // namespace

TEST(WhoeverDiesTheOthersGetOneGroup) {
  const unsigned draws = std::getenv("COLLOPS_ALL_FAULTS") != nullptr ? 1000 : 100;
  const char* const first = std::getenv("COLLOPS_ROLL_SEED");
  const unsigned begin = first != nullptr ? static_cast<unsigned>(std::atoi(first)) : 0;
  const int failures = check::Failures();
  for (unsigned seed = begin; seed < begin + draws && check::Failures() == failures; ++seed) {
    Draw(seed);
  }
}

// Excluded ranks that call learn it; those with another list, and all that heard them, err.
TEST(RanksAreExcludedByAllOrNone) {
  std::mt19937 draw(1);
  Ranks ranks(4);
  for (size_t r = 0; r < 4; ++r) {
    ranks.all[r]->Begin(ranks.rows, r == 2 ? std::vector<int>{} : std::vector<int>{2});
  }
  loopback::Await([&] {
    ranks.MoveAll(&draw);
    return !ranks.all[2]->status().ok() && ranks.all[0]->met() && ranks.all[3]->met();
  });
  EXPECT_EQ(ranks.all[0]->members(), (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(ranks.all[2]->status().code(), ERROR_ABORTED);
  EXPECT_CONTAINS(ranks.all[2]->status().message(), "has excluded rank 2");

  Ranks others(4);
  for (size_t r = 0; r < 4; ++r) {
    others.all[r]->Begin(others.rows, r < 2 ? std::vector<int>{3} : std::vector<int>{});
  }
  loopback::Await([&] {
    others.MoveAll(&draw);
    return std::none_of(others.all.begin(), others.all.end(),
                        [](const auto& rank) { return rank->status().ok(); });
  });
  for (size_t r = 0; r < 3; ++r) {
    const Status& status = others.all[r]->status();
    EXPECT_EQ(status.code(), ERROR_RANK_MISMATCH);
    EXPECT_CONTAINS(status.message(), "exclude is [3] on rank 0 (pid 1 on 127.0.0.1) and [] on");
  }
}

// Two parts of a group, each of which excludes the other: neither goes on by itself, whichever is
// first.
TEST(PartsThatExcludeEachOtherDisagree) {
  const unsigned draws = std::getenv("COLLOPS_ALL_FAULTS") != nullptr ? 1000 : 50;
  for (unsigned seed = 0; seed < draws; ++seed) {
    std::mt19937 draw(seed);
    const size_t size = 2 + draw() % 5;
    std::vector<int> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), draw);
    const auto border = order.begin() + 1 + static_cast<int>(draw() % (size - 1));
    std::vector<int> parts[] = {{order.begin(), border}, {border, order.end()}};
    Ranks ranks(static_cast<int>(size));
    std::vector<size_t> begin(size);
    for (size_t& at : begin) at = draw() % 100;
    const auto is_over = [&] {
      return std::none_of(ranks.all.begin(), ranks.all.end(),
                          [](const auto& rank) { return rank->status().ok() && !rank->met(); });
    };
    for (size_t move = 0; move < 100; ++move) {
      for (size_t r = 0; r < size; ++r) {
        if (begin[r] != move) continue;
        const bool is_first = std::count(parts[0].begin(), parts[0].end(), static_cast<int>(r)) > 0;
        ranks.all[r]->Begin(ranks.rows, parts[is_first ? 1 : 0]);
      }
      ranks.MoveOne(&draw);
    }
    loopback::Await([&] {
      ranks.MoveAll(&draw);
      return is_over();
    });
    for (const auto& rank : ranks.all) {
      EXPECT_EQ(rank->status().code(), ERROR_RANK_MISMATCH);
      EXPECT_CONTAINS(rank->status().message(), "the ranks that stay pass the same list");
    }
    if (check::Failures() > 0) std::printf("  seed %u: %zu ranks\n", seed, size);
    if (check::Failures() > 0) return;
  }
}

// One that is excluded, and is in no roll call, is waited for a moment only.
TEST(ALivingRankIsExcluded) {
  std::mt19937 draw(1);
  Ranks ranks(3);
  for (size_t r = 0; r < 2; ++r) ranks.all[r]->Begin(ranks.rows, {2}, kTimeoutS, 0.1);
  loopback::Await([&] {
    ranks.MoveAll(&draw);
    return ranks.all[0]->met() && ranks.all[1]->met();
  });
  EXPECT_EQ(ranks.all[0]->members(), (std::vector<int>{0, 1}));
}

// One that has proven who it is sends without end, what cannot be at last: each round hears a part.
TEST(ARoundHearsABoundedNumberOfFrames) {
  Ranks ranks(2);
  ranks.all[0]->Begin(ranks.rows);
  const auto callers = [&] { return ranks.all[0]->lobby().callers().size(); };
  HandshakeClient client(Connection(ranks.all[0]->lobby().listener().address()), &kSecret,
                         Claim{"dp", HostsRollCall::kPurpose, 1, 2});
  loopback::Await([&] {
    EXPECT_EQ(ranks.all[0]->Step().message(), "");
    return client.Step() == Proof::kGiven && callers() == 1;
  });
  RollMessage message;
  message.kind = RollMessage::Kind::kLooks;
  message.rank = 1;
  EXPECT_TRUE(client.connection().Send(message.frame()));
  message.kind = RollMessage::Kind::kArrived;
  for (int i = 0; i < 3 * kMostHeard; ++i) {
    EXPECT_TRUE(client.connection().Send(message.frame()));
  }
  EXPECT_TRUE(client.connection().Send(loopback::FrameOf("no message")));
  EXPECT_EQ(ranks.all[0]->Step().message(), "");
  EXPECT_EQ(callers(), 1);
  loopback::Await([&] {
    EXPECT_EQ(ranks.all[0]->Step().message(), "");
    return callers() == 0;
  });
}

// It is known to have ended before what it said is read.
TEST(WhatARankSaidBeforeItEndedCounts) {
  std::mt19937 draw(1);
  Ranks ranks(3);
  bool ended = false;
  const auto ending = [&](int rank) { return rank == 0 && ended ? kProcessEnded : kIsThere; };
  ranks.all[0]->Begin(ranks.rows, {2}, kTimeoutS, 0.1);
  ranks.all[1]->Begin(ranks.rows, {}, kTimeoutS, kTimeoutS, ending);
  loopback::Await([&] {
    ranks.all[0]->Move(&draw);
    ended = !ranks.all[0]->status().ok();
    if (!ended) ranks.all[1]->Move(&draw);
    return ended;
  });
  ranks.all[0]->Die();
  loopback::Await([&] {
    ranks.all[1]->Move(&draw);
    return !ranks.all[1]->status().ok() || ranks.all[1]->met();
  });
  EXPECT_EQ(ranks.all[1]->status().code(), ERROR_RANK_MISMATCH);
}

// A rank that does not come, although its process lives, is left out after the time-out; it
// learns it when it comes. So is the one that should lead.
TEST(ALateRankIsLeftOutAndLearnsIt) {
  std::mt19937 draw(1);
  for (const size_t late : {0, 2}) {
    Ranks ranks(3);
    for (size_t r = 0; r < 3; ++r) {
      if (r != late) ranks.all[r]->Begin(ranks.rows, {}, check::Patience(1.0));
    }
    const size_t first = late == 0 ? 1 : 0;
    const size_t second = late == 2 ? 1 : 2;
    loopback::Await([&] {
      ranks.MoveAll(&draw);
      return ranks.all[first]->met() && ranks.all[second]->met();
    });
    EXPECT_EQ(ranks.all[first]->members().size(), 2);
    EXPECT_EQ(ranks.all[first]->group(), ranks.all[second]->group());
    // The others are in roll calls again, as ranks that have gone on are in their next one.
    ranks.all[late]->Begin(ranks.rows);
    loopback::Await([&] {
      ranks.groups.left[ranks.all[first]->group()].insert(-1);
      ranks.MoveAll(&draw);
      return !ranks.all[late]->status().ok();
    });
    EXPECT_EQ(ranks.all[late]->status().code(), ERROR_TIMEOUT);
    EXPECT_CONTAINS(ranks.all[late]->status().message(), "the other ranks go on without rank");
  }
}

// A port whose host does not answer: nobody takes those who come, and no more may wait.
class SilentPort {
 public:
  SilentPort() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    SocketAddress at = loopback::At("127.0.0.1");
    auto* const address = reinterpret_cast<sockaddr*>(&at.storage);
    EXPECT_EQ(bind(listener_.get(), address, at.length), 0);
    EXPECT_EQ(listen(listener_.get(), 0), 0);
    EXPECT_EQ(getsockname(listener_.get(), address, &at.length), 0);
    port_ = at.port();
    for (int i = 0; i < 4; ++i) {
      waiting_.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      static_cast<void>(!connect(waiting_.back().get(), address, at.length));
    }
  }
  int port() const { return port_; }

 private:
  UniqueFd listener_;
  std::vector<UniqueFd> waiting_;
  int port_ = 0;
};

// Its other ranks are lost, too: also one whose listener would still take connections.
TEST(AHostThatDoesNotAnswerIsGivenUp) {
  std::mt19937 draw(1);
  const SilentPort silent;
  const Listener mute = loopback::ListenAt("127.0.0.1");
  Ranks unknown(4);
  Ranks cut_off(4);
  for (Ranks* ranks : {&unknown, &cut_off}) {
    ranks->rows[2].port = silent.port();
    ranks->rows[3].port = mute.address().port();
  }
  const auto ending = [](int rank) { return rank < 2 ? kIsThere : kCutOff; };
  const auto begin = Deadline::Clock::now();
  for (size_t r = 0; r < 2; ++r) {
    unknown.all[r]->Begin(unknown.rows);
    cut_off.all[r]->Begin(cut_off.rows, {}, kTimeoutS, kTimeoutS, ending);
  }
  for (const auto& [ranks, reach_s] : {std::pair(&cut_off, HostsRollCall::kReachCutOffS),
                                       std::pair(&unknown, HostsRollCall::kReachS)}) {
    loopback::Await([&] {
      cut_off.MoveAll(&draw);
      unknown.MoveAll(&draw);
      return ranks->all[0]->met() && ranks->all[1]->met();
    });
    const std::chrono::duration<double> took = Deadline::Clock::now() - begin;
    EXPECT_TRUE(took.count() >= reach_s);
    EXPECT_EQ(ranks->all[0]->members(), (std::vector<int>{0, 1}));
    EXPECT_EQ(ranks->all[1]->group(), ranks->all[0]->group());
  }
}

// One that was late, and others that are: fewer than half decide nothing.
TEST(AFewRanksDoNotGoOnWithoutMany) {
  std::mt19937 draw(1);
  Ranks ranks(4);
  ranks.all[0]->Begin(ranks.rows, {}, 0.1);
  loopback::Await([&] {
    ranks.MoveAll(&draw);
    return !ranks.all[0]->status().ok();
  });
  EXPECT_EQ(ranks.all[0]->status().code(), ERROR_TIMEOUT);
  EXPECT_CONTAINS(ranks.all[0]->status().message(), "3 ranks of 4 have neither ended nor come");
}

// A lower rank that both exclude is in no roll call, or excludes nobody: each still hears the
// other's list.
TEST(PartsThatExcludeEachOtherBesideALowerRankDisagree) {
  for (const bool lower_comes : {false, true}) {
    std::mt19937 draw(1);
    Ranks ranks(3);
    const double excluded_s = lower_comes ? kTimeoutS : check::Patience(1.0);
    if (lower_comes) ranks.all[0]->Begin(ranks.rows);
    ranks.all[1]->Begin(ranks.rows, {0, 2}, kTimeoutS, excluded_s);
    ranks.all[2]->Begin(ranks.rows, {0, 1}, kTimeoutS, excluded_s);
    loopback::Await([&] {
      ranks.MoveAll(&draw);
      const auto is_over = [](const Rank& rank) { return !rank.status().ok() || rank.met(); };
      return is_over(*ranks.all[1]) && is_over(*ranks.all[2]);
    });
    for (const size_t r : {1, 2}) EXPECT_EQ(ranks.all[r]->status().code(), ERROR_RANK_MISMATCH);
  }
}
