// Variables that only several hosts need.
#include "core/env.h"

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

TEST(TheKeyIsRead) {
  const Variable key("COLLOPS_JOB_KEY", "secret");
  collops::Env env;
  EXPECT_EQ(collops::Env::Read(&env).message(), "");
  EXPECT_EQ(env.job_key, "secret");
}
