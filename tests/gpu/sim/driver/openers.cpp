#include "driver/openers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <string>

#include "driver/memory.h"

namespace collops_sim {
namespace {

constexpr size_t kMostOpeners = 64;

// The page, mapped while this lives.
class Page {
 public:
  Page(int file, size_t at)
      : found_(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                    static_cast<off_t>(at))) {}
  ~Page() {
    if (found_ != MAP_FAILED) munmap(found_, kPage);
  }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;

  // Puts `to` where `from` is, once.
  void Replace(int from, int to) {
    for (size_t i = 0; i < size(); ++i) {
      int expected = from;
      if (At(i).compare_exchange_strong(expected, to)) return;
    }
  }
  std::atomic<int>& At(size_t i) { return static_cast<std::atomic<int>*>(found_)[i]; }
  size_t size() const { return found_ == MAP_FAILED ? 0 : kMostOpeners; }

 private:
  void* const found_;
};

// Not one that has ended and whose parent has yet to ask for it.
bool IsAlive(int process) {
  if (kill(process, 0) != 0) return false;
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(stat, text);
  const size_t end = text.rfind(')');
  return end != std::string::npos && end + 2 < text.size() && text[end + 2] != 'Z';
}

}  // namespace

void NoteOpener(int file, size_t at) {
  Page(file, at).Replace(0, getpid());
}

void ForgetOpener(int file, size_t at) {
  Page(file, at).Replace(getpid(), 0);
}

int FindOpener(int file, size_t at) {
  Page page(file, at);
  for (size_t i = 0; i < page.size(); ++i) {
    const int process = page.At(i);
    if (process != 0 && IsAlive(process)) return process;
  }
  return 0;
}

}  // namespace collops_sim
