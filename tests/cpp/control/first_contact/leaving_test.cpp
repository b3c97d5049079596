// A rank that closes before first contact tells the others; who closes it beside does not wait.
#include <poll.h>

#include <atomic>
#include <thread>

#include "collops/comm/control/control.h"
#include "collops/comm/control/first_contact/hosts_meeting.h"
#include "control/first_contact/ranks_that_meet.h"

namespace {

using namespace collops;
using collops::control::Control;
using collops::control::HostsMeeting;

}  // namespace

TEST(ASecondThreadNeedNotWaitUntilTheOthersAreTold) {
  // A job's port that accepts connections and says nothing.
  auto silent = loopback::ListenAt("127.0.0.1");
  CommunicatorSpec spec;
  spec.backend = "ucx";
  spec.rank = 1;
  spec.rank_size = 2;
  const auto rendezvous = loopback::SpecOf(spec.rank, spec.rank_size, silent.address().port());
  const JobIdentity job = {"a job", "the test"};
  Control control(spec, std::make_unique<HostsMeeting>(spec, job, rendezvous, int64_t{1} << 20));
  std::atomic<bool> told{false};
  std::thread first([&] {
    control.Close("it ends");
    told = true;
  });
  pollfd polled = {silent.socket(), POLLIN, 0};
  EXPECT_EQ(poll(&polled, 1, 20000), 1);  // it is telling them
  control.Abort("the second thread");
  EXPECT_TRUE(control.failed());
  EXPECT_TRUE(!told);
  first.join();
}
