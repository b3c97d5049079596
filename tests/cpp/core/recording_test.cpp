// Recordings of one process: their files, what ends them, and children of fork().
#include "collops/core/trace/recording.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "collops/core/trace/log.h"
#include "collops/core/trace/spans.h"

namespace {

using collops::recording::CallSpan;
using collops::recording::Lane;
using collops::recording::WaitSpan;

// A folder of this test, empty at first.
std::string Folder(const char* name) {
  std::string folder = "/tmp/collops-recording-" + std::to_string(getpid()) + "-" + name;
  EXPECT_EQ(mkdir(folder.c_str(), 0700), 0);
  return folder;
}

void Remove(const std::string& folder) {
  EXPECT_EQ(std::system(("rm -r " + folder).c_str()), 0);
}

std::string Text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

Lane LaneOf(uint64_t id, int rank, bool is_thread = false) {
  return {id, "do\"main", "shm", rank, 4, rank, is_thread};
}

void MakeCall(const Lane& lane, const char* name) {
  const CallSpan call(lane, name);
  usleep(2000);
  const WaitSpan wait("outer wait");
  const WaitSpan inner("inner wait");
  usleep(2000);
}

}  // namespace

TEST(ACallIsASliceWithItsWaitsAndTheRest) {
  const std::string folder = Folder("call");
  EXPECT_EQ(collops::StartRecording(folder + "/t.json").message(), "");
  MakeCall(LaneOf(1, 3), "Call");
  EXPECT_EQ(collops::StopRecording().message(), "");
  const std::string text = Text(folder + "/t.rank3.json");
  EXPECT_EQ(text.substr(0, 2), "[\n");
  EXPECT_EQ(text.substr(text.size() - 3), "\n]\n");
  EXPECT_EQ(Count(text, "\"name\":\"Call\",\"cat\":\"call\""), 1);
  // What follows the wait may be too short for a slice.
  const int moves = Count(text, "\"name\":\"move\"");
  EXPECT_EQ(moves == 1 || moves == 2, true);
  EXPECT_EQ(Count(text, "\"name\":\"outer wait\""), 1);
  EXPECT_EQ(Count(text, "inner wait"), 0);
  EXPECT_EQ(Count(text, "\"comm\":\"do\\\"main\""), 2 + moves);
  EXPECT_EQ(Count(text, "\"pid\":4"), Count(text, "\"pid\":"));
  Remove(folder);
}

TEST(NothingIsWrittenWithoutARecording) {
  const std::string folder = Folder("off");
  EXPECT_EQ(chdir(folder.c_str()), 0);
  MakeCall(LaneOf(1, 0), "Call");
  EXPECT_EQ(collops::StopRecording().message(), "");
  EXPECT_EQ(chdir("/"), 0);
  EXPECT_EQ(rmdir(folder.c_str()), 0);
}

TEST(TheSecondRecordingIsRefusedAndTheNextOneReplacesTheFile) {
  const std::string folder = Folder("again");
  const std::string path = folder + "/t.json";
  EXPECT_EQ(collops::StartRecording(path).message(), "");
  EXPECT_EQ(collops::StartRecording(path).message(),
            "StartRecording: this process records to " + path + " already: stop that first");
  MakeCall(LaneOf(1, 0), "First");
  EXPECT_EQ(collops::StopRecording().message(), "");
  EXPECT_EQ(collops::StartRecording(path).message(), "");
  MakeCall(LaneOf(1, 0), "Second");
  EXPECT_EQ(collops::StopRecording().message(), "");
  const std::string text = Text(folder + "/t.rank0.json");
  EXPECT_EQ(Count(text, "First"), 0);
  EXPECT_EQ(Count(text, "Second"), 1);
  Remove(folder);
}

TEST(RanksThatAreThreadsWriteAFileEach) {
  const std::string folder = Folder("threads");
  EXPECT_EQ(collops::StartRecording(folder + "/t.json").message(), "");
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([rank] {
      for (int i = 0; i < 3; ++i)
        MakeCall(LaneOf(static_cast<uint64_t>(rank) + 1, rank, true), "Call");
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(collops::StopRecording().message(), "");
  for (int rank = 0; rank < 3; ++rank) {
    const std::string text = Text(folder + "/t.rank" + std::to_string(rank) + ".json");
    EXPECT_EQ(Count(text, "\"cat\":\"call\""), 3);
  }
  Remove(folder);
}

TEST(AChildOfForkDoesNotRecordUnlessItBeginsItself) {
  const std::string folder = Folder("fork");
  EXPECT_EQ(collops::StartRecording(folder + "/t.json").message(), "");
  MakeCall(LaneOf(1, 0), "Parent");
  const pid_t child = fork();
  if (child == 0) {
    MakeCall(LaneOf(1, 0), "Inherited");
    const bool began = collops::StartRecording(folder + "/t.json").ok();
    MakeCall(LaneOf(1, 0), "Own");
    _exit(began && collops::StopRecording().ok() ? 0 : 1);
  }
  int ended = -1;
  EXPECT_EQ(waitpid(child, &ended, 0), child);
  EXPECT_EQ(ended, 0);
  EXPECT_EQ(collops::StopRecording().message(), "");
  const std::string parents = Text(folder + "/t.rank0.json");
  const std::string childs = Text(folder + "/t.rank0.pid" + std::to_string(child) + ".json");
  EXPECT_EQ(Count(parents, "\"name\":\"Parent\""), 1);
  EXPECT_EQ(Count(parents, "Inherited") + Count(parents, "Own"), 0);
  EXPECT_EQ(Count(childs, "\"name\":\"Own\""), 1);
  EXPECT_EQ(Count(childs, "Inherited") + Count(childs, "Parent"), 0);
  Remove(folder);
}

TEST(WhatHasComeTogetherInAWaitIsOnTheDiskBeforeTheSleep) {
  const std::string folder = Folder("sleep");
  EXPECT_EQ(collops::StartRecording(folder + "/t.json").message(), "");
  const Lane lane = LaneOf(1, 0);
  MakeCall(lane, "Before");
  {
    const CallSpan call(lane, "Waiting");
    const WaitSpan wait("wait");
    WaitSpan::BeforeSleep();
    WaitSpan::BeforeSleep();
    const std::string text = Text(folder + "/t.rank0.json");
    EXPECT_EQ(Count(text, "\"name\":\"Before\""), 1);
    EXPECT_EQ(Count(text, "\"name\":\"Waiting\",\"cat\":\"idle\",\"ph\":\"i\""), 1);
  }
  EXPECT_EQ(collops::StopRecording().message(), "");
  Remove(folder);
}

TEST(AFullDiskEndsTheRecordingWithOneWarning) {
  const std::string folder = Folder("full");
  // Stands for a disk without room.
  EXPECT_EQ(symlink("/dev/full", (folder + "/t.rank0.json").c_str()), 0);
  static std::vector<std::string> lines;
  collops::LogSinkSlot() = [](collops::LogLevel, const std::string& line) {
    lines.push_back(line);
    return true;
  };
  EXPECT_EQ(collops::StartRecording(folder + "/t.json").message(), "");
  MakeCall(LaneOf(1, 0), "Call");
  EXPECT_EQ(collops::recording::On(), false);
  MakeCall(LaneOf(1, 0), "Call");
  collops::LogSinkSlot() = nullptr;
  EXPECT_EQ(lines.size(), size_t{1});
  EXPECT_EQ(lines.at(0).find("collops: warning: no trace is written: cannot open " + folder),
            size_t{0});
  Remove(folder);
}
