#include "collops/comm/control/bootstrap/shared_fd.h"

#include <sys/stat.h>

#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "collops/core/process/per_process.h"

namespace collops::control {
namespace {

// The sockets that this process shares, by inode.
struct Sockets {
  std::mutex mutex;
  std::map<ino_t, std::weak_ptr<UniqueFd>> by_inode;
};
PerProcess<Sockets> sockets;

}  // namespace

SharedFd SharedFd::OfSocket(UniqueFd socket) {
  struct stat info = {};
  if (!socket.valid() || fstat(socket.get(), &info) != 0) return SharedFd(std::move(socket));
  SharedFd shared;
  Sockets& all = sockets.Get();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::weak_ptr<UniqueFd>& known = all.by_inode[info.st_ino];
  shared.fd_ = known.lock();
  if (shared.fd_ != nullptr) return shared;
  for (auto it = all.by_inode.begin(); it != all.by_inode.end();) {
    it = it->second.expired() && it->first != info.st_ino ? all.by_inode.erase(it) : std::next(it);
  }
  shared.fd_ = std::make_shared<UniqueFd>(std::move(socket));
  known = shared.fd_;
  return shared;
}

}  // namespace collops::control
