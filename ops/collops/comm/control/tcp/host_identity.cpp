#include "collops/comm/control/tcp/host_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "collops/core/env.h"
#include "collops/core/status.h"

namespace collops::control::tcp {

std::string HostIdentity() {
  const std::string given = GetVariable("COLLOPS_SERVER_ID");
  if (!given.empty()) return "server " + given;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  char name[256] = "";
  if (!std::getline(file, boot) && gethostname(name, sizeof(name) - 1) == 0) boot = name;
  struct stat net{};
  return Concat("boot ", boot, " net ", stat("/proc/self/ns/net", &net) == 0 ? net.st_ino : 0);
}

}  // namespace collops::control::tcp
