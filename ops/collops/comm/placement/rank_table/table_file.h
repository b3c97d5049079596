#pragma once

#include <string>

#include "collops/core/status.h"

namespace collops::rank_table {

// An error of what is no regular file that can be read; `name` begins the message.
Status CheckTableFile(const std::string& path, const std::string& name);

// Reads a regular file, or a link to one, that is no larger than any rank table. Never waits: what
// is no regular file (a pipe, a device, a folder) is refused before it is read.
Status ReadTableFile(const std::string& path, const std::string& name, std::string* text);

}  // namespace collops::rank_table
