#pragma once

#include <string>

namespace collops::control::tcp {

// Equal in two processes if they can meet in the memory and sockets of one host: COLLOPS_SERVER_ID;
// else the boot of the machine and the network namespace. So a container is a host of its own.
// Virtual machines that were copied while they ran may need COLLOPS_SERVER_ID.
std::string HostIdentity();

}  // namespace collops::control::tcp
