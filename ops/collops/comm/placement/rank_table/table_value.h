#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collops/core/json_fwd.h"
#include "collops/core/status.h"

namespace collops::rank_table {

// One value of a rank table and its place in the text, which every error names:
// rank table "hccl.json": server_list[1].device[0].rank_id must be ..., got "x".
// A view: valid as long as the JSON document.
class TableValue {
 public:
  TableValue() = default;
  TableValue(const Json& json, std::string file) : json_(&json), file_(std::move(file)) {}

  const std::string& path() const { return path_; }
  bool Has(const char* key) const;

  // The member called `key`, which must be there.
  Status Get(const char* key, TableValue* member) const;
  // The entries of the list called `key`, which must have at least one.
  Status List(const char* key, std::vector<TableValue>* entries) const;

  // Members that are strings, as HCCL wants all of versions 1.0 to 1.2.
  Status Text(const char* key, std::string* text) const;
  Status OptionalText(const char* key, std::string* text) const;
  // A string of decimal digits, or a JSON number where `digits` is false (version 2.0).
  Status Number(const char* key, int64_t lowest, int64_t highest, int64_t* number,
                bool digits = true) const;
  // A member that says how long a list is, if it is there.
  Status Count(const char* key, size_t length, const char* list, bool digits = true) const;

  // An error about this value as a whole: file, place, then the parts.
  template <typename... Parts>
  Status Wrong(const Parts&... parts) const {
    return Error(ERROR_INVALID_PARAM, file_, ": ", path_, parts...);
  }

 private:
  TableValue(const Json& json, std::string file, std::string path)
      : json_(&json), file_(std::move(file)), path_(std::move(path)) {}
  std::string PathOf(const char* key) const;
  Status MustBe(const std::string& rule) const;

  const Json* json_ = nullptr;
  std::string file_;
  std::string path_;
};

}  // namespace collops::rank_table
