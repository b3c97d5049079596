// Variables that only several hosts need, and the table of sizes.
#include "collops/core/env.h"

#include <cstdlib>

#include "check.h"

namespace {

// A variable of this process, as long as the object lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

}  // namespace

TEST(ThePortIsRead) {
  unsetenv("COLLOPS_PORT");
  collops::Env env;
  EXPECT_EQ(collops::Env::Read(&env).message(), "");
  EXPECT_EQ(env.port, 29577);
  for (const char* text : {"1", "65535"}) {
    const Variable port("COLLOPS_PORT", text);
    EXPECT_EQ(collops::Env::Read(&env).message(), "");
    EXPECT_EQ(std::to_string(env.port), text);
  }
  for (const char* text : {"0", "65536", "-1", "http", "1.5", "99999999999"}) {
    const Variable port("COLLOPS_PORT", text);
    EXPECT_EQ(collops::Env::Read(&env).message(),
              std::string("COLLOPS_PORT must be a port from 1 to 65535, got \"") + text + "\"");
  }
}

TEST(TheRangeOfPortsIsRead) {
  unsetenv("COLLOPS_PORT_RANGE");
  collops::Env env;
  EXPECT_EQ(collops::Env::Read(&env).message(), "");
  EXPECT_EQ(env.first_port, 0);
  {
    const Variable range("COLLOPS_PORT_RANGE", "30000-30099");
    EXPECT_EQ(collops::Env::Read(&env).message(), "");
    EXPECT_EQ(env.first_port, 30000);
    EXPECT_EQ(env.last_port, 30099);
  }
  for (const char* text : {"30000", "30000-", "-30000", "2-1", "0-5", "1-65536", "a-b", "1-2-3"}) {
    const Variable range("COLLOPS_PORT_RANGE", text);
    EXPECT_EQ(collops::Env::Read(&env).message(),
              std::string("COLLOPS_PORT_RANGE must be two ports from 1 to 65535, as 30000-30099, "
                          "got \"") +
                  text + "\"");
  }
}

TEST(TheTableOfSizesIsRead) {
  unsetenv("COLLOPS_TUNING");
  collops::Env env;
  EXPECT_EQ(collops::Env::Read(&env).message(), "");
  EXPECT_EQ(env.tuning.all_reduce_one_step_2, 256 << 10);
  EXPECT_EQ(env.tuning.all_reduce_one_step, 32 << 10);
  EXPECT_EQ(env.tuning.streamed_output, 16 << 20);
  const Variable sizes("COLLOPS_TUNING", "all_reduce_one_step=3k,streamed_output=2g");
  EXPECT_EQ(collops::Env::Read(&env).message(), "");
  EXPECT_EQ(env.tuning.all_reduce_one_step_2, 256 << 10);
  EXPECT_EQ(env.tuning.all_reduce_one_step, 3 << 10);
  EXPECT_EQ(env.tuning.streamed_output, int64_t{2} << 30);
}

TEST(AWrongTableOfSizesIsRefused) {
  const std::pair<const char*, const char*> rows[] = {
      {"16k", "COLLOPS_TUNING=16k: \"16k\" is not a pair such as all_reduce_one_step=32k"},
      {"all_reduce_one_step=1,chunk=2",
       "COLLOPS_TUNING=all_reduce_one_step=1,chunk=2: \"chunk\" is unknown; the sizes "
       "are all_reduce_one_step_2, all_reduce_one_step, streamed_output"},
      {"streamed_output=-1", "streamed_output must be a whole number of bytes up to 1024g"},
      {"streamed_output=1.5m", "got \"1.5m\""},
      {"streamed_output=", "got \"\""},
      {"streamed_output=k", "got \"k\""},
      {"streamed_output=1025g", "got \"1025g\""},
      {"streamed_output=99999999999999999999", "got \"99999999999999999999\""},
  };
  for (const auto& [text, message] : rows) {
    const Variable sizes("COLLOPS_TUNING", text);
    collops::Env env;
    const collops::Status status = collops::Env::Read(&env);
    EXPECT_EQ(status.code(), collops::ERROR_INVALID_PARAM);
    EXPECT_CONTAINS(status.message(), message);
    EXPECT_CONTAINS(status.message(), "COLLOPS_TUNING");
    EXPECT_EQ(env.tuning.streamed_output, 16 << 20);
  }
}

TEST(EveryWrongVariableIsFoundWhereReadingStopsAtTheFirst) {
  EXPECT_EQ(collops::EnvProblems().size(), size_t{0});
  const Variable port("COLLOPS_PORT", "http");
  const Variable timeout("COLLOPS_TIMEOUT_S", "soon");
  const std::vector<collops::EnvProblem> problems = collops::EnvProblems();
  ASSERT_EQ(problems.size(), size_t{2});
  EXPECT_EQ(std::string(problems[0].name), "COLLOPS_TIMEOUT_S");
  EXPECT_EQ(std::string(problems[1].name), "COLLOPS_PORT");
  EXPECT_CONTAINS(problems[1].message, "got \"http\"");
  collops::Env env;
  EXPECT_EQ(collops::Env::Read(&env).message(), problems[0].message);
}
