// What stands where a rank table should: every kind of file gives an error at once.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "check.h"
#include "collops/comm/placement/rank_table.h"
#include "placement/tables.h"

namespace {

using collops::RankTable;
using tables::Folder;

std::string ErrorOf(const std::string& path) {
  RankTable table;
  return collops::ReadRankTable(path, &table).message();
}

collops::ErrorCode CodeOf(const std::string& path) {
  RankTable table;
  return collops::ReadRankTable(path, &table).code();
}

}  // namespace

TEST(ATableIsReadAlsoThroughALink) {
  const Folder folder;
  std::ofstream(folder.At("table.json")) << tables::kSuperPods;
  EXPECT_EQ(symlink("table.json", folder.At("link.json").c_str()), 0);
  RankTable table;
  EXPECT_EQ(collops::ReadRankTable(folder.At("link.json"), &table).message(), "");
  EXPECT_EQ(table.ranks.size(), 2);
}

TEST(WhatIsNoTableFileIsAnErrorAtOnce) {
  const Folder folder;
  EXPECT_EQ(symlink("loop.json", folder.At("loop.json").c_str()), 0);
  EXPECT_EQ(mkfifo(folder.At("pipe.json").c_str(), 0600), 0);
  EXPECT_CONTAINS(ErrorOf(folder.At("none.json")), "none.json\": No such file or directory");
  EXPECT_CONTAINS(ErrorOf(folder.At("loop.json")), "loop.json\": Too many levels");
  EXPECT_CONTAINS(ErrorOf(folder.At("pipe.json")), "pipe.json\" is not a regular file");
  EXPECT_CONTAINS(ErrorOf("/dev/zero"), "\"/dev/zero\" is not a regular file");
  EXPECT_CONTAINS(ErrorOf("/"), "\"/\" is not a regular file");
  EXPECT_CONTAINS(ErrorOf(""), "No such file or directory");
  EXPECT_CONTAINS(ErrorOf(std::string(5000, 'a')), "File name too long");
  EXPECT_CONTAINS(ErrorOf(folder.At(std::string("table.json\0x", 12))),
                  "the path contains a NUL character");
}

TEST(AFailureOfTheSystemIsNoWrongArgument) {
  const Folder folder;
  std::ofstream(folder.At("table.json")) << tables::kSuperPods;
  EXPECT_EQ(CodeOf(folder.At("none.json")), collops::ERROR_INVALID_PARAM);
  EXPECT_EQ(CodeOf(folder.At("table.json/none.json")), collops::ERROR_INVALID_PARAM);
  // A regular file that can be opened; reading at address 0 of this process is an I/O error.
  EXPECT_EQ(CodeOf("/proc/self/mem"), collops::ERROR_RT_FAIL);
  EXPECT_CONTAINS(ErrorOf("/proc/self/mem"), "\"/proc/self/mem\": Input/output error");
  rlimit limit = {};
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none = {0, limit.rlim_max};
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const collops::ErrorCode code = CodeOf(folder.At("table.json"));
  const std::string text = ErrorOf(folder.At("table.json"));
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(code, collops::ERROR_RT_FAIL);
  EXPECT_CONTAINS(text, "table.json\": Too many open files");
}

TEST(AFileLargerThanAnyTableIsNotRead) {
  const Folder folder;
  const int huge = open(folder.At("huge.json").c_str(), O_CREAT | O_RDWR, 0600);
  EXPECT_EQ(ftruncate(huge, int64_t{1} << 40), 0);  // has no blocks
  close(huge);
  EXPECT_CONTAINS(ErrorOf(folder.At("huge.json")),
                  "has 1099511627776 bytes, the limit is 67108864");
}
