// Messages over a second worker move while a wait of the first one sleeps.
#include "collops/comm/control/waiter.h"
#include "ucx/pairs.h"

namespace {

using namespace ucx_tests;
using collops::control::MessageProgress;
using collops::control::WaitDuties;
using collops::control::WakeCondition;

// Longer than any wait here may take.
constexpr double kLongS = 60;
constexpr int kLongMs = 60'000;

const uint64_t kTag = Tag{1, 1, 0}.Of(TagKind::kData);

}  // namespace

TEST(AMessageOfAnotherWorkerEndsASleep) {
  RunConnected(2, [](const Entry& e) {
    const std::unique_ptr<Worker> messages = Connected(e.mesh, e.me);
    ASSERT_TRUE(messages != nullptr);
    const Entry beside = {e.mesh, e.me, *messages};
    std::vector<std::byte> body = DataOf(1, 0, 1000);
    Request request;
    if (e.me == 1) {
      EXPECT_EQ(e.mesh.Hear(1, 0), "asleep");
      EXPECT_EQ(messages->Send(0, kTag, body.data(), body.size(), &request).message(), "");
      return Settle(beside);
    }
    std::vector<std::byte> got(body.size());
    EXPECT_EQ(messages->Receive(1, kTag, got.data(), got.size(), &request).message(), "");
    bool said = false;
    WaitDuties duties;
    duties.progress_messages = [&] {
      return messages->Progress() && messages->Test(&request) ? MessageProgress::kMoved
                                                              : MessageProgress::kNoDoorbell;
    };
    duties.wake_condition = [&] {
      const int update = messages->Arm();
      if (update < 0) return WakeCondition();
      if (!std::exchange(said, true)) e.mesh.Say(0, 1, "asleep");
      return WakeCondition{update, kLongMs};
    };
    const Watch watch = {{}, [] { return collops::Ok(); }, kLongS, &duties};
    const auto came = [&] { return !request.pending(); };
    EXPECT_EQ(e.worker.Until("a message", came, watch, Deadline::After(kLimitS)).message(), "");
    EXPECT_TRUE(said);
    EXPECT_TRUE(got == body);
    Settle(beside);
  });
}

TEST(ASleepIsAsShortAsMessagesNeedIt) {
  RunConnected(1, [](const Entry& e) {
    int sleeps = 0;
    WaitDuties duties;
    duties.progress_messages = [] { return MessageProgress::kUnderWay; };
    duties.wake_condition = [&] {
      ++sleeps;
      return WakeCondition{-1, 1};
    };
    const Watch watch = {{}, [] { return collops::Ok(); }, kLongS, &duties};
    const auto enough = [&] { return sleeps == 3; };
    EXPECT_EQ(e.worker.Until("three sleeps", enough, watch, Deadline::After(kLimitS)).message(),
              "");
    // Messages may move at once: it looks again, and does not sleep.
    duties.wake_condition = [&] {
      ++sleeps;
      return WakeCondition();
    };
    const auto more = [&] { return sleeps == 6; };
    EXPECT_EQ(e.worker.Until("three looks", more, watch, Deadline::After(kLimitS)).message(), "");
  });
}
