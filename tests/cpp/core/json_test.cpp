#include "collops/core/json.h"

#include <string>

#include "check.h"

namespace {

using collops::Json;
using collops::ParseJson;
using collops::Status;

std::string ErrorOf(const std::string& text) {
  Json json = "untouched";
  const Status status = ParseJson(text, "t", &json);
  EXPECT_EQ(status.code(), collops::ERROR_INVALID_PARAM);
  EXPECT_EQ(json, "untouched");
  return status.message();
}

struct Fault {
  const char* text;
  const char* place;
  const char* what;
};

constexpr const char* kRest =
    " is not a JSON value: a string in double quotes, a number, true, false or null is needed";

}  // namespace

TEST(AFaultIsNamedWithLineAndColumn) {
  const Fault faults[] = {
      {"", "line 1, column 1 (byte 0 of 0)", "the text is empty"},
      {" \n", "line 1, column 1 (byte 0 of 2)", "the text is empty"},
      {"\xff\xfe{", "line 1, column 1 (byte 0 of 3)", "the text is not UTF-8"},
      {"[\"\xe4\xb8\xad\xff\"]", "line 1, column 4 (byte 5 of 8)", "the text is not UTF-8"},
      {"[\"\xe9\"]", "line 1, column 3 (byte 2 of 5)", "the text is not UTF-8"},
      {"[\"\xe9t\", 1]", "line 1, column 3 (byte 2 of 9)", "the text is not UTF-8"},
      {"{\"a\": [1, 2,\n]}", "line 1, column 12 (byte 11 of 15)",
       "the comma before ']' must be left out"},
      {"{\"a\": 1,}", "line 1, column 8 (byte 7 of 9)", "the comma before '}' must be left out"},
      {"{\n'a': 1}", "line 2, column 1 (byte 2 of 9)",
       "a string must be in double quotes, not in single ones"},
      {"[\"a\", 'b']", "line 1, column 7 (byte 6 of 10)",
       "a string must be in double quotes, not in single ones"},
      {"{\"a\": 1} // b", "line 1, column 10 (byte 9 of 13)", "JSON has no comments"},
      {"# a\n{}", "line 1, column 1 (byte 0 of 6)", "JSON has no comments"},
      {"{a: 1}", "line 1, column 2 (byte 1 of 6)", "a key in double quotes is needed, got 'a'"},
      {"{\"a\": 1,, ", "line 1, column 9 (byte 8 of 10)",
       "a key in double quotes is needed, got ','"},
      {"{\"a\" = 1}", "line 1, column 6 (byte 5 of 9)", "':' is needed after the key, got '='"},
      {"{\"a\": }", "line 1, column 7 (byte 6 of 7)", "a value is needed, got '}'"},
      {"{\"a\": 1\n \"b\": 2}", "line 2, column 2 (byte 9 of 16)",
       "',' or '}' is needed after the value, got a string"},
      {"[1 2]", "line 1, column 4 (byte 3 of 5)", "',' or ']' is needed after the value, got '2'"},
      {"{\"a\": [1}", "line 1, column 9 (byte 8 of 9)",
       "'}' does not close '[' of line 1, column 7"},
      {"{}}", "line 1, column 3 (byte 2 of 3)", "'}' closes nothing"},
      {"{} {}", "line 1, column 4 (byte 3 of 5)", "the text must end after its value, got '{'"},
      {"{\"a\":\n {\"b\": 1,", "line 2, column 10 (byte 15 of 15)",
       "the text ends here, and '{' of line 2, column 2 is not closed"},
      {"{\"a\": \"b}", "line 1, column 7 (byte 6 of 9)",
       "the string that begins here is not closed"},
      {"{\"a\": \"b\n\"}", "line 1, column 7 (byte 6 of 11)",
       "the string that begins here is not closed"},
      {"[\"\t\"]", "line 1, column 3 (byte 2 of 5)",
       "a control character in a string must be written as \\t"},
      {"[\"a\\x41\"]", "line 1, column 4 (byte 3 of 9)", "'\\x' is not an escape sequence of JSON"},
  };
  for (const Fault& fault : faults) {
    EXPECT_EQ(ErrorOf(fault.text),
              collops::Concat("t: malformed JSON at ", fault.place, ": ", fault.what));
  }
}

TEST(WhatIsNoValueIsShownWhole) {
  for (const std::string word : {"NaN", "-Infinity", "nan", "True", "None", "nul", "undefined",
                                 "1.", ".5", "+1", "01", "0x10", "-", "1e", "10.0.0.1", "node-a"}) {
    const std::string expected = collops::Concat("'", word, "'", kRest);
    for (const char* after : {"", "]", ", 1]", " ]"}) {
      const std::string text = "[1, " + word + after;
      EXPECT_EQ(ErrorOf(text), collops::Concat("t: malformed JSON at line 1, column 5 (byte 4 of ",
                                               text.size(), "): ", expected));
    }
  }
}

TEST(AKeyThatIsGivenTwiceAndANumberOutOfRangeHaveAPlace) {
  EXPECT_EQ(ErrorOf("[{\"a\": {\"b\": 1,\n  \"b\": 2}}]"),
            "t: [0].a.b is given twice in one object, again at line 2, column 3");
  EXPECT_EQ(ErrorOf("{\"a\": 1,\n \"b\": 1e999 }"),
            "t: the JSON text has a number that is out of range at line 2, column 7: 1e999");
}

TEST(AZeroByteDoesNotEndTheText) {
  EXPECT_CONTAINS(ErrorOf(std::string("[1]\0[", 5)),
                  "(byte 3 of 5): the text must end after its value, got '\\u0000'");
}

TEST(AByteOrderMarkIsNoFault) {
  Json json;
  EXPECT_TRUE(ParseJson("\xef\xbb\xbf{\"a\": 1}", "t", &json).ok());
  EXPECT_EQ(json["a"], 1);
  EXPECT_CONTAINS(ErrorOf("\xef\xbb\xbf{a}"), "line 1, column 2 (byte 4 of 6)");
}
