// Opening UCX at run time: each test in a process of its own, as a process opens it once.
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "collops/comm/backends/ucx/backend.h"
#include "collops/comm/backends/ucx/engine/library.h"
#include "ranks.h"
#include "ucx/installed.h"

namespace {

using collops::ERROR_UNSUPPORTED;
using collops::Status;
using collops::ucx::Library;
using collops::ucx::Load;
using collops::ucx::SetWheelFolder;

void InChild(const std::function<void()>& body) {
  const ranks::Ended ended = ranks::Wait(ranks::Start(body));
  EXPECT_TRUE(ended.exited);
  EXPECT_EQ(ended.code, 0);
}

// As InChild(), with an open UCX.
void WithUcx(const std::function<void(const Library&)>& body) {
  InChild([&] {
    if (!ucx_tests::IsThere()) return void(std::puts("skipped: no UCX is installed"));
    const Library* library = nullptr;
    ASSERT_TRUE(Load(&library).ok());
    body(*library);
  });
}

// As InChild(), where the wheel is installed.
void WithWheel(const std::function<void(const std::string&)>& body) {
  const std::string folder = ucx_tests::WheelFolder();
  if (folder.empty()) return void(std::puts("skipped: libucx-cu13 is not installed"));
  InChild([&] { body(folder); });
}

// The lines of this process's mappings that contain the name, each file once.
std::vector<std::string> Mapped(const std::string& name) {
  std::vector<std::string> files;
  FILE* const maps = std::fopen("/proc/self/maps", "r");
  char line[4096];
  while (std::fgets(line, sizeof(line), maps) != nullptr) {
    const char* const path = std::strchr(line, '/');
    if (path == nullptr || std::strstr(path, name.c_str()) == nullptr) continue;
    if (files.empty() || files.back() != path) files.emplace_back(path);
  }
  std::fclose(maps);
  return files;
}

auto HandlerOf(int number) {
  struct sigaction action = {};
  EXPECT_EQ(sigaction(number, nullptr, &action), 0);
  return action.sa_handler;
}

}  // namespace

TEST(UcxSaysItsVersionPathAndTransports) {
  WithUcx([](const Library& library) {
    EXPECT_TRUE(library.IsAtLeast(1, 12));
    EXPECT_FALSE(library.IsAtLeast(2, 0));
    EXPECT_EQ(access(library.path.c_str(), R_OK), 0);
    collops::ucx::Report report;
    EXPECT_EQ(Describe(&report).message(), "");
    EXPECT_EQ(report.version, library.version);
    const auto facts = collops::ucx::ShownFacts();
    ASSERT_EQ(facts.size(), size_t{4});
    EXPECT_CONTAINS(facts[0].second, library.path + " (");
    EXPECT_EQ(facts[1].second, library.version);
    EXPECT_CONTAINS(facts[2].second, "tcp/");
    EXPECT_CONTAINS(facts[3].second, report.has_rdma ? "yes" : "no: ");
  });
}

TEST(WithoutRdmaItSaysWhy) {
  collops::ucx::Report report;
  EXPECT_EQ(ShowRdma(report), "no: this host has no device for it");
  report.host_has_rdma = true;
  EXPECT_EQ(ShowRdma(report), "no: this UCX does not use RDMA here: install the system's UCX");
  report.is_wheel = true;
  EXPECT_EQ(ShowRdma(report), "no: this UCX has no RDMA (wheel): install the system's UCX");
  report.has_rdma = true;
  EXPECT_EQ(ShowRdma(report), "yes");
}

TEST(OpeningUcxLeavesEnvironmentSignalsAndLibcAsTheyAre) {
  const int signals[] = {SIGHUP, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGINT, SIGTERM};
  InChild([&] {
    std::vector<std::string> before;
    for (char** entry = environ; *entry != nullptr; ++entry) before.emplace_back(*entry);
    unsigned char code[3][16];
    void* const functions[] = {reinterpret_cast<void*>(mmap), reinterpret_cast<void*>(munmap),
                               dlsym(RTLD_DEFAULT, "sbrk")};
    for (int i = 0; i < 3; ++i) std::memcpy(code[i], functions[i], sizeof(code[i]));
    // A sanitizer has handlers of its own.
    std::vector<decltype(SIG_DFL)> handlers;
    for (const int number : signals) handlers.push_back(HandlerOf(number));
    if (!ucx_tests::IsThere()) return void(std::puts("skipped: no UCX is installed"));
    std::vector<std::string> after;
    for (char** entry = environ; *entry != nullptr; ++entry) after.emplace_back(*entry);
    EXPECT_TRUE(before == after);
    for (size_t i = 0; i < handlers.size(); ++i) {
      EXPECT_TRUE(HandlerOf(signals[i]) == handlers[i]);
    }
    if (collops::ucx::HostHasRdma()) return;  // its registrations need the changed functions
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(std::memcmp(code[i], functions[i], sizeof(code[i])), 0);
    }
  });
}

TEST(AVariableOfTheUserStays) {
  InChild([] {
    setenv("UCX_MEM_EVENTS", "try", 1);
    if (!ucx_tests::IsThere()) return void(std::puts("skipped: no UCX is installed"));
    EXPECT_EQ(std::string(std::getenv("UCX_MEM_EVENTS")), "try");
    EXPECT_TRUE(std::getenv("UCX_LOG_FILE") == nullptr);
  });
}

TEST(TheWheelIsOneCopyWhoeverElseLoadsIt) {
  for (const bool others_first : {false, true}) {
    WithWheel([&](const std::string& folder) {
      const auto load_as_others_do = [&] {
        for (const char* name : {"libucs.so", "libucs_signal.so", "libuct.so", "libucp.so"}) {
          EXPECT_TRUE(dlopen((folder + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr);
        }
      };
      if (others_first) load_as_others_do();
      SetWheelFolder(folder);
      const Library* library = nullptr;
      EXPECT_EQ(Load(&library).message(), "");
      if (!others_first) load_as_others_do();
      EXPECT_TRUE(dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL) != nullptr);
      for (const char* name : {"/libucs.so", "/libuct.so", "/libucp.so"}) {
        EXPECT_EQ(Mapped(name).size(), 1u);
      }
      if (others_first) EXPECT_EQ(library->source, "already loaded in this process");
    });
  }
}

TEST(AMissingUcxSaysWhatToInstall) {
  InChild([] {
    setenv("COLLOPS_UCX_LIBRARY", "/no/such/libucp.so.0", 1);
    const Library* library = nullptr;
    const Status status = Load(&library);
    EXPECT_EQ(status.code(), ERROR_UNSUPPORTED);
    EXPECT_CONTAINS(status.message(), "backend ucx: UCX cannot be opened: ");
    EXPECT_CONTAINS(status.message(), "/no/such/libucp.so.0");
    EXPECT_CONTAINS(status.message(), "pip install 'collops[multihost]'");
    // Once it is there, it is found.
    unsetenv("COLLOPS_UCX_LIBRARY");
    if (!ucx_tests::WheelFolder().empty()) EXPECT_TRUE(ucx_tests::IsThere());
  });
}

TEST(TransportsThatAreNotThereAreTheReason) {
  InChild([] {
    setenv("UCX_TLS", "no_such_transport", 1);
    if (!ucx_tests::IsThere()) return void(std::puts("skipped: no UCX is installed"));
    collops::ucx::Report report;
    const Status status = Describe(&report);
    EXPECT_EQ(status.code(), ERROR_UNSUPPORTED);
    EXPECT_CONTAINS(status.message(), "with UCX_TLS=no_such_transport");
  });
}
