#include "collops/core/json.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iterator>
#include <set>
#include <vector>

namespace collops {
namespace {

constexpr size_t kNone = std::string::npos;
// The deepest value that is read is level_list[i].rank_addr_list[j].ports[k] of a rank table.
constexpr int kMaxDepth = 32;
constexpr size_t kMaxShown = 60;

// A text as the parser takes it; `reached` is how far the parser is.
class Bytes {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Bytes(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  Bytes& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  Bytes operator++(int) {
    const Bytes before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Bytes& other) const { return at_ == other.at_; }
  bool operator!=(const Bytes& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

Json Parse(const std::string& text, const char** reached, const Json::parser_callback_t& watch) {
  return Json::parse(Bytes(text.data(), reached), Bytes(text.data() + text.size(), reached), watch);
}

bool IsContinuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

// "line 2, column 7" of the byte at `position`: both from 1, columns in characters.
std::string LineAndColumn(const std::string& text, size_t position) {
  const std::string before = text.substr(0, position);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  size_t begin = newline == kNone ? 0 : newline + 1;
  if (before.rfind("\xef\xbb\xbf", 0) == 0 && begin == 0) begin = 3;  // a byte order mark
  const auto column = std::count_if(before.begin() + static_cast<std::ptrdiff_t>(begin),
                                    before.end(), [](char c) { return !IsContinuation(c); });
  return Concat("line ", lines + 1, ", column ", column + 1);
}

// Of the bytes that stand in words and numbers; whatever is not ASCII counts as well.
bool IsOfWord(char byte) {
  const auto c = static_cast<unsigned char>(byte);
  return c >= 0x80 || std::isalnum(c) != 0 || (c != '\0' && std::strchr("_+-.$", c) != nullptr);
}

bool IsSpace(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// Bytes for a message, as a JSON string shows them.
std::string Shown(const std::string& bytes) {
  const std::string text =
      Json(bytes.substr(0, kMaxShown)).dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.substr(1, text.size() - 2);
}

bool IsValue(const std::string& word) {
  try {
    const char* reached = nullptr;
    return !Parse(word, &reached, nullptr).is_discarded();
  } catch (const Json::exception&) {
    return false;
  }
}

struct Fault {
  size_t position;
  std::string what;
};

// Finds out what is wrong in a text that the parser refuses at a byte: all that comes before it is
// the beginning of a JSON text.
class Diagnosis {
 public:
  Diagnosis(const std::string& text, size_t refused) : text_(text), at_(refused) {
    Scan(at_);
    if (string_ != kNone) {
      // Either the string is whole and stands where none may be, or it is malformed itself.
      whole_ = at_ < text_.size() && text_[at_] == '"' &&
               IsValue(text_.substr(string_, at_ - string_ + 1));
      if (whole_) at_ = string_;
      return;
    }
    end_ = refused;
    while (end_ < text_.size() && IsOfWord(text_[end_])) ++end_;
    while (at_ > 0 && IsOfWord(text_[at_ - 1])) --at_;
    // The parser refuses "1." at what follows it. A value that is whole is not what it refuses.
    if (end_ == refused && IsValue(text_.substr(at_, end_ - at_))) at_ = refused;
    if (end_ == at_) ++end_;
    Scan(at_);
  }

  Fault Find() const {
    if (string_ != kNone && !whole_) return InString();
    if (text_.find_first_not_of(" \t\r\n") == kNone) return {0, "the text is empty"};
    if (text_.substr(0, 2).find_first_of(std::string("\0\xfe\xff", 3)) != kNone) {
      return {0, "the text is not UTF-8"};
    }
    const Level& level = levels_.back();
    if (at_ >= text_.size()) {
      const std::string open =
          levels_.size() > 1 ? Opener(level) + " is not closed" : std::string("a value is missing");
      return {text_.size(), Concat("the text ends here, and ", open)};
    }
    const char c = text_[at_];
    if (c == '/' || c == '#') return {at_, "JSON has no comments"};
    if (c == '\'') return {at_, "a string must be in double quotes, not in single ones"};
    if (c == '}' || c == ']') {
      if (levels_.size() == 1) return {at_, Concat("'", c, "' closes nothing")};
      if (c != (text_[level.begin] == '{' ? '}' : ']')) {
        return {at_, Concat("'", c, "' does not close ", Opener(level))};
      }
      if (!level.filled && level.mark == ',') {
        return {level.mark_at, Concat("the comma before '", c, "' must be left out")};
      }
    }
    return {at_, Expected(level)};
  }

 private:
  // A bracket that is open, or the whole text; `mark` is the last of { [ , and : in it.
  struct Level {
    size_t begin = kNone;
    char mark = ' ';
    size_t mark_at = 0;
    bool filled = false;  // a key or value comes after the mark
  };

  void Scan(size_t end) {
    levels_.assign(1, {});
    string_ = escape_ = kNone;
    for (size_t i = 0; i < std::min(end, text_.size()); ++i) Pass(i);
  }

  void Pass(size_t i) {
    const char c = text_[i];
    if (string_ != kNone) {
      const bool escaped = escape_ != kNone && i == escape_ + 1;
      if (c == '"' && !escaped) string_ = kNone;
      if (c == '\\' && !escaped) escape_ = i;
      return;
    }
    if (IsSpace(c)) return;
    Level& level = levels_.back();
    if (c == '{' || c == '[') {
      levels_.push_back({i, c, i, false});
    } else if (c == '}' || c == ']') {
      if (levels_.size() > 1) levels_.pop_back();
      levels_.back().filled = true;
    } else if (c == ',' || c == ':') {
      level = {level.begin, c, i, false};
    } else {
      level.filled = true;
      if (c == '"') string_ = i;
    }
  }

  Fault InString() const {
    const char c = at_ < text_.size() ? text_[at_] : '\n';
    if (c == '\n' || c == '\r') return {string_, "the string that begins here is not closed"};
    if ((static_cast<unsigned char>(c) & 0x80) != 0) return {at_, "the text is not UTF-8"};
    if (static_cast<unsigned char>(c) < ' ') {
      return {at_, Concat("a control character in a string must be written as ", Shown({c}))};
    }
    // Of a character that is cut short, the parser refuses the byte after it.
    if ((static_cast<unsigned char>(text_[at_ - 1]) & 0x80) != 0) {
      return {at_ - 1, "the text is not UTF-8"};
    }
    const std::string rest = Shown(text_.substr(escape_ + 1, at_ - escape_));
    return {escape_, Concat("'\\", rest, "' is not an escape sequence of JSON")};
  }

  std::string Opener(const Level& level) const {
    return Concat("'", text_[level.begin], "' of ", LineAndColumn(text_, level.begin));
  }

  std::string Expected(const Level& level) const {
    const bool in_object = levels_.size() > 1 && text_[level.begin] == '{';
    const bool of_key = in_object && level.mark != ':';
    const std::string token = whole_ ? "a string" : Shown(text_.substr(at_, end_ - at_));
    const std::string got = whole_ ? token : Concat("'", token, "'");
    if (!level.filled && of_key) return Concat("a key in double quotes is needed, got ", got);
    if (!level.filled && IsOfWord(text_[at_])) {
      return Concat(got, " is not a JSON value: a string in double quotes, a number, true, false ",
                    "or null is needed");
    }
    if (!level.filled) return Concat("a value is needed, got ", got);
    if (levels_.size() == 1) return Concat("the text must end after its value, got ", got);
    if (of_key) return Concat("':' is needed after the key, got ", got);
    return Concat("',' or '", in_object ? '}' : ']', "' is needed after the value, got ", got);
  }

  const std::string& text_;
  size_t at_;           // the first byte of what is refused
  size_t end_ = kNone;  // the byte after it
  bool whole_ = false;  // it is a string that is well formed
  std::vector<Level> levels_;
  size_t string_ = kNone;  // begin of the string that the place is in
  size_t escape_ = kNone;  // the last backslash in it that begins an escape sequence
};

// Follows the parser through the text, for what a document that is read does not show any more.
class Watcher {
 public:
  Watcher(const std::string& text, const char* const* reached) : text_(text), reached_(reached) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth > kMaxDepth && fault_.empty()) {
      fault_ = Concat(Place(), " is nested more than ", kMaxDepth, " deep");
    }
    if (!fault_.empty()) return false;  // what is dropped takes no memory
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        EnterEntry();
        levels_.push_back({event == Json::parse_event_t::array_start, -1, "", {}});
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        levels_.pop_back();
        break;
      case Json::parse_event_t::key:
        EnterMember(parsed.get<std::string>());
        break;
      case Json::parse_event_t::value:
        EnterEntry();
        break;
    }
    return true;
  }

  const std::string& fault() const { return fault_; }

 private:
  struct Level {
    bool is_array;
    int index;
    std::string key;
    std::set<std::string> keys;
  };

  void EnterEntry() {
    if (!levels_.empty() && levels_.back().is_array) ++levels_.back().index;
  }

  void EnterMember(const std::string& key) {
    levels_.back().key = key;
    if (!levels_.back().keys.insert(key).second) {
      const auto end = static_cast<size_t>(*reached_ - text_.data());
      fault_ = Concat(Place(), " is given twice in one object, again at ",
                      LineAndColumn(text_, text_.rfind('"', end - 2)));
    }
  }

  // Keys are shown as JSON strings' beginnings: they may hold anything.
  std::string Place() const {
    std::string place;
    for (const Level& level : levels_) {
      if (level.is_array) {
        place += Concat("[", level.index, "]");
      } else {
        const std::string key = ShowJson(level.key);
        place += Concat(place.empty() ? "" : ".", key.substr(1, key.size() - 2));
      }
    }
    return place;
  }

  const std::string& text_;
  const char* const* reached_;
  std::vector<Level> levels_;
  std::string fault_;
};

}  // namespace

Status ParseJson(const std::string& text, const std::string& name, Json* json) {
  const char* reached = text.data();
  Watcher watcher(text, &reached);
  Json read;
  size_t refused = kNone;
  try {
    read = Parse(text, &reached, std::ref(watcher));
    refused = text.find('\0');  // which ends the text for the parser
  } catch (const Json::parse_error& error) {
    // The parser counts bytes from 1 and says 0 for an empty text.
    refused = error.byte == 0 ? 0 : error.byte - 1;
  } catch (const Json::exception&) {
    size_t end = static_cast<size_t>(reached - text.data());
    while (end > 0 && !IsOfWord(text[end - 1])) --end;
    size_t begin = end;
    while (begin > 0 && IsOfWord(text[begin - 1])) --begin;
    return Error(ERROR_INVALID_PARAM, name, ": the JSON text has a number that is out of range at ",
                 LineAndColumn(text, begin), ": ", Shown(text.substr(begin, end - begin)));
  }
  if (refused != kNone) {
    const Fault fault = Diagnosis(text, refused).Find();
    return Error(ERROR_INVALID_PARAM, name, ": malformed JSON at ",
                 LineAndColumn(text, fault.position), " (byte ", fault.position, " of ",
                 text.size(), "): ", fault.what);
  }
  COLLOPS_CHECK_ARG(watcher.fault().empty(), ERROR_INVALID_PARAM, name, ": ", watcher.fault());
  *json = std::move(read);
  return Ok();
}

std::string ShowJson(const Json& json) {
  if (json.is_structured()) return json.type_name();
  std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

}  // namespace collops
