// Recordings of one process: what a call looks like, and one recording after another.
#include "collops/core/trace/recording.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "check.h"
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

Lane LaneOf(uint64_t id, int rank) {
  return {id, "do\"main", "shm", rank, 4, rank, false};
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
