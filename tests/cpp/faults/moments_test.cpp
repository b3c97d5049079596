// All ranks of a job are killed at a moment: drawn evenly from exec to exit, or at a point of first
// contact, Split, messages or close at which one rank is held. Nothing is left, and a new job of
// the same name starts at once. COLLOPS_ALL_FAULTS=1: 200 moments instead of 20.
#include <sched.h>
#include <spawn.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "faults/held_points.h"
#include "faults/ways.h"

namespace {

using collops::Communicator;
using Clock = std::chrono::steady_clock;
using held::Board;

constexpr int kSize = 3;
// A new job of few calls; a busy machine needs some of it.
const double kAtOnceS = check::Patience(5.0);

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The job of one rank.
void BeARank(const collops::JobIdentity& job, int rank, bool brief) {
  held::Enter(held::kFirstContact);
  auto comm = ranks::Make(job, rank, kSize);
  EXPECT_EQ(comm->Connect().message(), "");
  ++held::Mine().board->met;
  if (brief) return;
  const auto call = [&](size_t number, bool in_window) {
    const ways::Way& way = ways::All()[number];
    std::vector<int32_t> plain(static_cast<size_t>(way.x_elements(kSize)));
    std::vector<int32_t> output(static_cast<size_t>(way.output_elements(kSize)));
    std::shared_ptr<collops::Window> window;
    int32_t* x = plain.data();
    if (in_window) {
      EXPECT_EQ(comm->AllocateWindow(way.x_elements(kSize) * 4, &window).message(), "");
      x = static_cast<int32_t*>(window->data());
    }
    way.Fill(rank, kSize, x);
    EXPECT_EQ(way.Call(*comm, x, output.data()).message(), "");
    EXPECT_EQ(way.Wrong(rank, kSize, output.data()), 0);
  };
  held::Enter(held::kCalls);
  for (size_t number = 0; number < 8; ++number) call(number, false);
  held::Enter(held::kWindows);
  for (size_t number = 1; number < 8; number += 2) call(number, true);
  held::Enter(held::kSplit);
  for (int i = 0; i < 3; ++i) {
    std::shared_ptr<Communicator> part;
    EXPECT_EQ(comm->Split(rank / 2, 0, &part).message(), "");
    EXPECT_EQ(part->Barrier().message(), "");
  }
  held::Enter(held::kMessages);
  for (const bool in_window : {false, true}) {
    call(8, in_window);
    call(9, in_window);
  }
  held::Enter(held::kClose);
  EXPECT_EQ(comm->Barrier().message(), "");
  comm->Close("it is through");
  comm.reset();
  held::Enter(held::kEnd);
}

// A job: processes of this program, one per rank.
class Job {
 public:
  // `holder`: the rank that is held at `point`; -1: none.
  // `brief`: it ends after first contact.
  Job(const std::string& name, int holder, const held::Point& point, bool brief = false)
      : start_(Clock::now()), brief_(brief) {
    board_fd_ = static_cast<int>(syscall(SYS_memfd_create, "board", 0));  // passed to the ranks
    EXPECT_EQ(ftruncate(board_fd_, sizeof(Board)), 0);
    board_ = static_cast<Board*>(
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, board_fd_, 0));
    for (int rank = 0; rank < kSize; ++rank)
      Start(name, rank, rank == holder ? point : held::Point());
  }
  ~Job() {
    munmap(board_, sizeof(Board));
    close(board_fd_);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Board& board() { return *board_; }
  Clock::time_point start() const { return start_; }

  void Kill() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
  }
  // Until all ranks have ended well; how long the job took.
  double Finish() {
    for (const pid_t pid : pids_) {
      const ranks::Ended ended = ranks::Wait(pid);
      EXPECT_TRUE(ended.exited);
      EXPECT_EQ(ended.code, 0);
    }
    return SecondsSince(start_);
  }
  const std::vector<pid_t>& pids() const { return pids_; }

 private:
  void Start(const std::string& name, int rank, const held::Point& point) {
    const auto text = [](int number) { return std::to_string(number); };
    const std::string words = "COLLOPS_TEST_RANK=" + text(rank) + " " + text(board_fd_) + " " +
                              text(point.phase) + " " + text(point.function) + " " +
                              text(point.number) + " " + text(point.after ? 1 : 0) + " " +
                              text(brief_ ? 1 : 0) + " " + name;
    std::vector<char*> environment;
    for (char** word = environ; *word != nullptr; ++word) environment.push_back(*word);
    environment.push_back(const_cast<char*>(words.c_str()));
    const std::string id = "COLLOPS_JOB_ID=" + name;
    environment.push_back(const_cast<char*>(id.c_str()));
    environment.push_back(nullptr);
    char program[] = "/proc/self/exe";
    char test[] = "RunsAsARank";
    char* const arguments[] = {program, test, nullptr};
    pid_t pid = 0;
    EXPECT_EQ(posix_spawn(&pid, program, nullptr, nullptr, arguments, environment.data()), 0);
    pids_.push_back(pid);
  }

  Clock::time_point start_;
  bool brief_;
  int board_fd_ = -1;
  Board* board_ = nullptr;
  std::vector<pid_t> pids_;
};

// A network and an IPC namespace of this test's own, in which every socket and semaphore is ours.
bool StandAlone() {
  static const bool alone = unshare(CLONE_NEWNET | CLONE_NEWIPC) == 0;
  return alone;
}

// Sockets of collops, files of shared memory, and semaphores, as the system lists them.
std::set<std::string> Left() {
  std::set<std::string> left;
  std::string line;
  std::ifstream sockets("/proc/net/unix");
  while (StandAlone() && std::getline(sockets, line)) {
    if (line.find("@collops-") != std::string::npos) left.insert(line);
  }
  for (const char* kind : {"shm", "sem", "msg"}) {
    std::ifstream objects(std::string("/proc/sysvipc/") + kind);
    std::getline(objects, line);  // the heading
    while (StandAlone() && std::getline(objects, line)) left.insert(line);
  }
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    if (entry.path().string().find("collops") != std::string::npos) left.insert(entry.path());
  }
  return left;
}

// What is checked after the ranks were killed.
void ExpectNothingLeft(const std::string& name, double* most_s) {
  EXPECT_EQ(Left().size(), 0U);
  const Clock::time_point start = Clock::now();
  Job next(name, -1, {}, true);
  const double took_s = next.Finish();
  *most_s = std::max(*most_s, took_s);
  EXPECT_TRUE(SecondsSince(start) < kAtOnceS);
  EXPECT_EQ(next.board().met, kSize);
}

std::string NewName() {
  return ranks::FreshJob().id;
}

bool All() {
  return std::getenv("COLLOPS_ALL_FAULTS") != nullptr;
}

using Hits = std::map<std::string, int>;

void Print(const char* what, const Hits& hits, double most_s) {
  std::string text;
  for (const auto& [phase, count] : hits) text += " " + phase + " " + std::to_string(count) + ",";
  std::printf("%s:%s the next job of the same name took at most %.3f s\n", what, text.c_str(),
              most_s);
}

}  // namespace

// Not a test: the program of the ranks, which the tests below start.
TEST(RunsAsARank) {
  const char* const words = std::getenv("COLLOPS_TEST_RANK");
  if (words == nullptr) return;
  std::istringstream in(words);
  int board_fd = -1;
  int after = 0;
  int brief = 0;
  std::string name;
  held::State& mine = held::Mine();
  in >> mine.rank >> board_fd >> mine.point.phase >> mine.point.function >> mine.point.number >>
      after >> brief >> name;
  mine.point.after = after == 1;
  mine.board = static_cast<Board*>(
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, board_fd, 0));
  BeARank({name, "the test"}, mine.rank, brief == 1);
}

TEST(KilledAtMomentsDrawnFromExecToExit) {
  std::printf("sockets and semaphores are %s\n", StandAlone() ? "looked at" : "not looked at");
  std::vector<double> lengths_s;
  for (int i = 0; i < 3; ++i) lengths_s.push_back(Job(NewName(), -1, {}).Finish());
  std::sort(lengths_s.begin(), lengths_s.end());
  const double whole_s = lengths_s[1];
  const int moments = All() ? 120 : 12;
  std::mt19937_64 random(20261123);
  Hits hits;
  double most_s = 0;
  for (int i = 0; i < moments; ++i) {
    const double share = (i + std::uniform_real_distribution<double>(0, 1)(random)) / moments;
    const std::string name = NewName();
    Job job(name, -1, {});
    std::this_thread::sleep_until(job.start() +
                                  std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(share * whole_s)));
    ++hits[held::kPhaseNames[job.board().phase[i % kSize]]];
    job.Kill();
    ExpectNothingLeft(name, &most_s);
  }
  Print("one rank's phase when all were killed", hits, most_s);
}

TEST(KilledWhileARankIsHeldAtAPoint) {
  if (kSanitized) return;
  // Which calls of the system there are.
  Job sample(NewName(), -1, {});
  sample.Finish();
  struct Choice {
    int rank;
    held::Point point;
  };
  std::mt19937_64 random(20261124);
  Hits hits, functions;
  double most_s = 0;
  const int per_phase = All() ? 20 : 2;
  for (const int phase : {held::kFirstContact, held::kSplit, held::kMessages, held::kClose}) {
    std::vector<Choice> choices;
    for (int rank = 0; rank < kSize; ++rank) {
      for (int function = 0; function < held::kNumFunctions; ++function) {
        const int calls = sample.board().calls[rank][phase][function];
        for (const bool after : {false, true}) {
          // How often a rank looks for messages differs from run to run.
          if (calls > 0)
            choices.push_back(
                {rank,
                 {phase, function,
                  1 + static_cast<int>(random() % static_cast<uint64_t>((calls + 1) / 2)), after}});
        }
      }
    }
    std::shuffle(choices.begin(), choices.end(), random);
    ASSERT_TRUE(choices.size() >= 2);
    // A point that a rank does not come to, because it made fewer calls this time, does not count.
    int held_here = 0;
    for (int i = 0; held_here < per_phase && i < 8 * per_phase; ++i) {
      const Choice& choice = choices[static_cast<size_t>(i) % choices.size()];
      const std::string name = NewName();
      Job job(name, choice.rank, choice.point);
      const auto ended = [&job] { return job.board().phase[0] == held::kEnd; };
      while (job.board().held == 0 && !ended() && SecondsSince(job.start()) < check::Patience(10))
        usleep(200);
      usleep(static_cast<useconds_t>(random() % 5000));  // the others come to wait
      if (job.board().held == 1) {
        ++held_here;
        ++hits[held::kPhaseNames[phase]];
        ++functions[held::kFunctionNames[choice.point.function]];
      }
      job.Kill();
      ExpectNothingLeft(name, &most_s);
    }
    EXPECT_TRUE(held_here > 0);
  }
  Print("held in", hits, most_s);
  Print("held at", functions, most_s);
}
