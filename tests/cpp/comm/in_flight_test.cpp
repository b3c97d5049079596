// CallsInFlight keeps objects alive until their event is reached, or as long as their graph.
#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "check.h"
#include "collops/comm/streams/stream_communicator.h"

namespace {

using collops::CallsInFlight;
using collops::Deadline;
using collops::Status;
using collops::kernels::DeviceRuntime;

// A runtime whose streams advance only when a test says so.
class FakeRuntime : public DeviceRuntime {
 public:
  struct FakeEvent {
    Stream stream = nullptr;
    int place = 0;  // the number of the stream's calls before it
    bool is_destroyed = false;
  };
  struct FakeStream {
    int queued = 0;
    int done = 0;
    Graph graph = nullptr;
  };

  Status CreateEvent(Event* event) override {
    *event = &events.emplace_back();
    return create;
  }
  Status RecordEvent(Event event, Stream stream) override {
    if (!record.ok()) return record;
    *At(event) = {stream, ++static_cast<FakeStream*>(stream)->queued, false};
    return record;
  }
  Progress QueryEvent(Event event) override {
    ++num_queries;
    if (is_broken) return Progress::kUnknown;
    FakeStream* const stream = static_cast<FakeStream*>(At(event)->stream);
    if (stream->done < stream->queued && num_queries >= moves_after) ++stream->done;
    return stream->done >= At(event)->place ? Progress::kReached : Progress::kAhead;
  }
  void DestroyEvent(Event event) override { At(event)->is_destroyed = true; }
  Status FindGraph(Stream stream, Graph* graph) override {
    *graph = static_cast<FakeStream*>(stream)->graph;
    return find_graph;
  }
  void KeepWithGraph(Graph graph, std::shared_ptr<const void> kept) override {
    graphs[graph].push_back(std::move(kept));
  }

  size_t CountDestroyed() const {
    const auto is_destroyed = [](const FakeEvent& event) { return event.is_destroyed; };
    return static_cast<size_t>(std::count_if(events.begin(), events.end(), is_destroyed));
  }

  // The runtime's answers, and the query from which on the streams advance by themselves.
  Status create, record, find_graph;
  bool is_broken = false;
  int moves_after = 1 << 30;

  // What was asked of the runtime.
  std::list<FakeEvent> events;
  std::map<Graph, std::vector<std::shared_ptr<const void>>> graphs;
  int num_queries = 0;

 private:
  static FakeEvent* At(Event event) { return static_cast<FakeEvent*>(event); }
};

const Status kBroken = collops::Error(collops::ERROR_RT_FAIL, "the runtime says no");

// An object to keep alive, and whether it still is.
struct Thing {
  std::shared_ptr<const void> mine = std::make_shared<int>(7);
  std::weak_ptr<const void> seen = mine;

  std::shared_ptr<const void> Give() { return std::move(mine); }
  bool lives() const { return !seen.expired(); }
};

Deadline Soon() {
  return Deadline::After(0.02);
}
Deadline Late() {
  return Deadline::After(check::Patience(60));
}

}  // namespace

TEST(ObjectsAreKeptUntilTheStreamIsPastTheirWork) {
  FakeRuntime runtime;
  FakeRuntime::FakeStream stream;
  CallsInFlight in_flight(&runtime);
  Thing first;
  Thing second;
  EXPECT_TRUE(in_flight.Keep(&stream, first.Give(), "Call", 0).ok());
  EXPECT_TRUE(in_flight.Keep(&stream, second.Give(), "Call", 0).ok());
  in_flight.Reap();
  EXPECT_TRUE(first.lives() && second.lives());
  stream.done = 1;
  in_flight.Reap();
  EXPECT_TRUE(!first.lives() && second.lives());
  stream.done = 2;
  in_flight.Reap();
  EXPECT_FALSE(second.lives());
}

TEST(EachCallReapsAndUsesEventsAgain) {
  FakeRuntime runtime;
  FakeRuntime::FakeStream slow;
  std::vector<FakeRuntime::FakeStream> streams(50);
  CallsInFlight in_flight(&runtime);
  EXPECT_TRUE(in_flight.Keep(&slow, nullptr, "Call", 0).ok());
  for (FakeRuntime::FakeStream& stream : streams) {
    Thing thing;
    EXPECT_TRUE(in_flight.Keep(&stream, thing.Give(), "Call", 0).ok());
    EXPECT_TRUE(thing.lives());
    stream.done = 1;
  }
  EXPECT_EQ(runtime.events.size(), size_t{2});
}

TEST(DrainWaitsAndDestroysTheEvents) {
  FakeRuntime runtime;
  FakeRuntime::FakeStream stream;
  CallsInFlight in_flight(&runtime);
  Thing thing;
  EXPECT_TRUE(in_flight.Keep(&stream, thing.Give(), "Call", 0).ok());
  EXPECT_TRUE(in_flight.Keep(&stream, nullptr, "Call", 0).ok());
  runtime.moves_after = runtime.num_queries + 5;
  EXPECT_EQ(in_flight.Drain(Late()).message(), "");
  EXPECT_FALSE(thing.lives());
  EXPECT_EQ(stream.done, 2);
  EXPECT_EQ(runtime.CountDestroyed(), size_t{2});
  EXPECT_TRUE(in_flight.empty());
}

TEST(UnfinishedWorkAtTheDeadlineIsKeptUntilExit) {
  FakeRuntime runtime;
  FakeRuntime::FakeStream stream;
  Thing past;
  Thing running;
  {
    CallsInFlight in_flight(&runtime);
    EXPECT_TRUE(in_flight.Keep(&stream, past.Give(), "Call", 0).ok());
    EXPECT_TRUE(in_flight.Keep(&stream, running.Give(), "Call", 0).ok());
    stream.done = 1;
    const Status status = in_flight.Drain(Soon());
    EXPECT_EQ(status.code(), collops::ERROR_TIMEOUT);
    EXPECT_CONTAINS(status.message(), "work on 1 streams did not end within 0.02 s");
    EXPECT_FALSE(in_flight.Drain(Soon()).ok());
  }
  EXPECT_TRUE(!past.lives() && running.lives());
  EXPECT_EQ(runtime.CountDestroyed(), size_t{1});
}

TEST(WorkOfUnknownStateIsNotWaitedFor) {
  FakeRuntime runtime;
  FakeRuntime::FakeStream stream;
  CallsInFlight in_flight(&runtime);
  Thing thing;
  EXPECT_TRUE(in_flight.Keep(&stream, thing.Give(), "Call", 0).ok());
  runtime.is_broken = true;
  const int before = runtime.num_queries;
  EXPECT_EQ(in_flight.Drain(Late()).code(), collops::ERROR_RT_FAIL);
  EXPECT_EQ(runtime.num_queries, before + 1);
  EXPECT_TRUE(thing.lives());
  EXPECT_EQ(runtime.CountDestroyed(), size_t{0});
}

TEST(WorkWithoutAnEventIsKeptUntilExit) {
  FakeRuntime runtime;
  for (Status* const answer : {&runtime.create, &runtime.record, &runtime.find_graph}) {
    FakeRuntime::FakeStream stream;
    CallsInFlight in_flight(&runtime);
    Thing thing;
    *answer = kBroken;
    EXPECT_EQ(in_flight.Keep(&stream, thing.Give(), "Call", 0).message(), kBroken.message());
    *answer = collops::Ok();
    EXPECT_TRUE(in_flight.Keep(&stream, nullptr, "Call", 0).ok());
    stream.done = stream.queued;
    EXPECT_EQ(in_flight.Drain(Late()).code(), collops::ERROR_RT_FAIL);
    EXPECT_TRUE(thing.lives());
  }
}

TEST(AGraphKeepsAliveWhatItsCapturedCallNeeds) {
  FakeRuntime runtime;
  FakeRuntime::FakeStream stream;
  CallsInFlight in_flight(&runtime);
  Thing before;
  EXPECT_TRUE(in_flight.Keep(&stream, before.Give(), "Call", 0).ok());
  stream.done = 1;
  int graph = 0;
  stream.graph = &graph;
  Thing captured;
  const int num_queries = runtime.num_queries;
  EXPECT_TRUE(in_flight.Keep(&stream, captured.Give(), "Call", 0).ok());
  // While a stream is captured, no event is queried and none is made.
  EXPECT_EQ(runtime.num_queries, num_queries);
  EXPECT_EQ(runtime.events.size(), size_t{1});
  stream.graph = nullptr;
  const Status status = in_flight.Drain(Late());
  EXPECT_CONTAINS(status.message(), "a captured graph can still be replayed");
  EXPECT_TRUE(!before.lives() && captured.lives());
  runtime.graphs.clear();
  EXPECT_FALSE(captured.lives());
  EXPECT_TRUE(in_flight.Drain(Late()).ok());
}
