#include "collops/comm/control/segment.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "collops/core/process/cpu_place.h"
#include "collops/core/process/per_process.h"
#include "collops/core/status.h"

namespace collops::control {
namespace {

// False for a text that is no number, such as "max".
bool ParseBytes(const std::string& text, int64_t* bytes) {
  const char* const end = text.data() + text.size();
  int64_t number = 0;
  const std::from_chars_result result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end || number < 0) return false;
  *bytes = number;
  return true;
}

bool ReadBytes(const std::string& path, int64_t* bytes) {
  std::ifstream file(path);
  std::string text;
  return static_cast<bool>(file >> text) && ParseBytes(text, bytes);
}

// The sum of the named numbers in a file of lines "name number".
int64_t SumOf(const std::string& path, const std::vector<std::string>& names) {
  std::ifstream file(path);
  std::string name;
  std::string number;
  int64_t sum = 0;
  while (file >> name >> number) {
    int64_t bytes = 0;
    const bool wanted = std::find(names.begin(), names.end(), name) != names.end();
    if (wanted && ParseBytes(number, &bytes)) sum += bytes;
    file.ignore(256, '\n');
  }
  return sum;
}

// The bytes left in one cgroup; false if it has no limit.
bool LeftIn(const Cgroup& cgroup, int64_t* limit, int64_t* left) {
  const bool second = cgroup.version == 2;
  const std::string folder = cgroup.folder + "/memory.";
  if (!ReadBytes(folder + (second ? "max" : "limit_in_bytes"), limit)) return false;
  int64_t used = 0;
  if (!ReadBytes(folder + (second ? "current" : "usage_in_bytes"), &used)) used = 0;
  const int64_t cache =
      second ? SumOf(folder + "stat", {"inactive_file", "active_file", "slab_reclaimable"})
             : SumOf(folder + "stat", {"total_inactive_file", "total_active_file"});
  // The kernel's own page data count in the cgroup too, and its counters lag a little.
  const int64_t room = *limit / 64;
  *left = std::max<int64_t>(*limit - room - std::max<int64_t>(used - cache, 0), 0);
  return true;
}

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Status CheckForeign(int fd, int64_t bytes) {
  struct stat info = {};
  COLLOPS_CHECK_ARG(fstat(fd, &info) == 0 && info.st_size == bytes && bytes > 0, ERROR_PEER_LOST,
                    "a peer handed over shared memory of ", info.st_size, " bytes, expected ",
                    bytes);
  // Without the seals the owner could shrink the file, and this process would get SIGBUS. fcntl()
  // returns -1 for a file that cannot be sealed.
  const int seals = fcntl(fd, F_GET_SEALS);
  COLLOPS_CHECK_ARG(seals >= 0 && (seals & kSeals) == kSeals, ERROR_PEER_LOST,
                    "a peer handed over shared memory that is not sealed in size");
  return Ok();
}

// Shared memory has no limit of its own: if it exceeds the free memory, the kernel kills a process.
// `left`: bytes of the segment that are not allocated yet.
Status CheckAvailable(int64_t bytes, int64_t left) {
  constexpr int64_t kAlwaysTried = 1 << 20;
  if (left <= kAlwaysTried) return Ok();
  const AvailableMemory available = FindAvailableMemory();
  COLLOPS_CHECK_ARG(left < available.bytes, ERROR_OUT_OF_HOST_MEMORY, "cannot allocate ", bytes,
                    " bytes of shared memory: ", available.bytes + (bytes - left),
                    " bytes are available ", available.where);
  return Ok();
}

// A request beyond this process's limit of files (ulimit -f), which holds for shared memory too, is
// an error and also a SIGXFSZ to this thread, which would end the process. While this lives, such a
// signal waits; what has come meanwhile is dropped.
class WithoutSizeSignal {
 public:
  WithoutSizeSignal() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    sigemptyset(&size_signal_);
    sigaddset(&size_signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &size_signal_, &before_);
  }
  WithoutSizeSignal(const WithoutSizeSignal&) = delete;
  WithoutSizeSignal& operator=(const WithoutSizeSignal&) = delete;
  ~WithoutSizeSignal() {
    const timespec now{};
    while (!was_pending_ && sigtimedwait(&size_signal_, nullptr, &now) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  bool was_pending_ = false;
  sigset_t size_signal_;
  sigset_t before_;
};

// `error`: what the system answered to a request for shared memory. Only some answers mean a lack
// of memory; a sandbox's filter that denies the call does not.
ErrorCode CodeOf(int error) {
  switch (error) {
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EAGAIN:
      return ERROR_OUT_OF_HOST_MEMORY;
    case ENOSYS:
    case EPERM:
    case EACCES:
    case EOPNOTSUPP:
      return ERROR_UNSUPPORTED;
    default:
      return ERROR_RT_FAIL;
  }
}

std::string AdviceOn(int error) {
  if (CodeOf(error) == ERROR_UNSUPPORTED) {
    return ": the kernel, or a filter of the container or sandbox (seccomp), does not allow it";
  }
  return error == EMFILE || error == ENFILE ? ": raise the limit (ulimit -n)" : "";
}

// What has been allocated of the file.
int64_t AllocatedBytes(int fd) {
  constexpr int64_t kBlock = 512;  // of st_blocks, whatever the file system
  struct stat info = {};
  return fstat(fd, &info) == 0 ? info.st_blocks * kBlock : 0;
}

// In pieces: a signal makes some kernels undo the whole request that it interrupts, and other ranks
// may allocate at the same time.
Status Reserve(int fd, int64_t bytes) {
  constexpr int64_t kPiece = 8 << 20;
  const WithoutSizeSignal guard;
  for (int64_t begin = 0; begin < bytes; begin += kPiece) {
    const int64_t left = std::max<int64_t>(bytes - AllocatedBytes(fd), 0);
    COLLOPS_RETURN_IF_ERROR(CheckAvailable(bytes, left));
    int error = EINTR;
    while (error == EINTR) error = posix_fallocate(fd, begin, std::min(kPiece, bytes - begin));
    COLLOPS_CHECK_ARG(error == 0, CodeOf(error), "cannot allocate ", bytes,
                      " bytes of shared memory: ", std::strerror(error), AdviceOn(error));
  }
  return Ok();
}

// Allocates the parts of the ranks on other NUMA nodes than this thread's from there. What fails
// here comes again in Reserve(), which allocates the rest.
void ReserveOnNodes(int fd, const SegmentShape& shape, const std::vector<CpuPlace>& places) {
  constexpr int64_t kPage = 4096;
  const int here = CpuPlace::Here().node;
  std::map<int, int> cores;  // of each node, one
  for (const CpuPlace& place : places) {
    if (place.node >= 0 && place.node != here) cores.emplace(place.node, place.cpu);
  }
  for (const auto& [node, cpu] : cores) {
    RunOn(cpu, [&, of_node = node] {
      const WithoutSizeSignal guard;
      for (size_t rank = 0; rank < places.size(); ++rank) {
        if (places[rank].node != of_node) continue;
        for (const SegmentShape::Area& area : shape.areas) {
          const int64_t begin = area.begin + static_cast<int64_t>(rank) * area.rank_bytes;
          const int64_t first = begin / kPage * kPage;
          const int64_t end = (begin + area.rank_bytes) / kPage * kPage;
          if (end > first) static_cast<void>(posix_fallocate(fd, first, end - first));
        }
      }
    });
  }
}

}  // namespace

AvailableMemory FindAvailableMemory(const MemoryFiles& files) {
  AvailableMemory available{INT64_MAX, "on this machine"};
  std::ifstream info(files.meminfo);
  for (std::string line; std::getline(info, line);) {
    std::istringstream fields(line);
    std::string name, kibibytes;
    int64_t number = 0;
    fields >> name >> kibibytes;
    if (name != "MemAvailable:" || !ParseBytes(kibibytes, &number)) continue;
    available.bytes = number * 1024;
  }
  for (const Cgroup& cgroup : FindCgroups("memory", files.cgroups)) {
    int64_t limit = 0;
    int64_t left = 0;
    if (!LeftIn(cgroup, &limit, &left) || left >= available.bytes) continue;
    available = {
        left, Concat("in the memory cgroup ", cgroup.folder, ", whose limit is ", limit, " bytes")};
  }
  return available;
}

struct Segment::Mapping {
  Mapping(UniqueFd file, void* address, int64_t size)
      : fd(std::move(file)), data(address), bytes(size) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(data, static_cast<size_t>(bytes)); }

  const UniqueFd fd;
  void* const data;
  const int64_t bytes;
};

// The segments that this process has mapped.
struct Segment::Mappings {
  static PerProcess<Mappings> here;
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<Mapping>> by_inode;
};
PerProcess<Segment::Mappings> Segment::Mappings::here;

void* Segment::data() const {
  return mapping_ == nullptr ? nullptr : mapping_->data;
}
int64_t Segment::bytes() const {
  return mapping_ == nullptr ? 0 : mapping_->bytes;
}
int Segment::fd() const {
  return mapping_ == nullptr ? -1 : mapping_->fd.get();
}

Status Segment::Create(const SegmentShape& shape, const std::vector<CpuPlace>& places,
                       Segment* segment) {
  const int64_t bytes = shape.bytes;
  UniqueFd fd(memfd_create("collops", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  COLLOPS_CHECK_ARG(fd.valid(), CodeOf(errno),
                    "cannot create shared memory (memfd_create): ", std::strerror(errno),
                    AdviceOn(errno));
  // Allocated now, so that lack of memory is an error here and not a SIGBUS in a call.
  COLLOPS_RETURN_IF_ERROR(CheckAvailable(bytes, bytes));
  ReserveOnNodes(fd.get(), shape, places);
  COLLOPS_RETURN_IF_ERROR(Reserve(fd.get(), bytes));
  COLLOPS_CHECK_ARG(fcntl(fd.get(), F_ADD_SEALS, kSeals) == 0, CodeOf(errno),
                    "cannot seal shared memory: ", std::strerror(errno), AdviceOn(errno));
  return Adopt(std::move(fd), bytes, true, segment);
}

Status Segment::Map(UniqueFd fd, int64_t bytes, Segment* segment) {
  COLLOPS_RETURN_IF_ERROR(CheckForeign(fd.get(), bytes));
  return Adopt(std::move(fd), bytes, false, segment);
}

// Finds this process's mapping of the file, or makes it. Only the creator keeps the file open.
// Files are told apart by device and inode: huge pages have a device of their own.
Status Segment::Adopt(UniqueFd fd, int64_t bytes, bool keep_open, Segment* segment) {
  Mappings& mappings = Mappings::here.Get();
  struct stat info = {};
  COLLOPS_CHECK_ARG(fstat(fd.get(), &info) == 0, ERROR_RT_FAIL,
                    "cannot inspect shared memory: ", std::strerror(errno));
  const std::lock_guard<std::mutex> lock(mappings.mutex);
  for (auto it = mappings.by_inode.begin(); it != mappings.by_inode.end();) {
    it = it->second.expired() ? mappings.by_inode.erase(it) : std::next(it);
  }
  std::weak_ptr<Mapping>& known = mappings.by_inode[{info.st_dev, info.st_ino}];
  segment->mapping_ = known.lock();
  if (segment->mapping_ != nullptr) return Ok();
  void* data =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  COLLOPS_CHECK_ARG(data != MAP_FAILED, CodeOf(errno), "cannot map ", bytes,
                    " bytes of shared memory: ", std::strerror(errno),
                    errno != ENOMEM ? AdviceOn(errno)
                                    : ": raise this process's limit of address space (ulimit -v) "
                                      "or of mappings (vm.max_map_count)");
  if (!keep_open) fd.reset();
  segment->mapping_ = std::make_shared<Mapping>(std::move(fd), data, bytes);
  known = segment->mapping_;
  return Ok();
}

}  // namespace collops::control
