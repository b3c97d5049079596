# NLOHMANN_JSON_INCLUDE_DIR, the folder that holds nlohmann/json.hpp: the caller's, or that of pip's
# nlohmann-json, of CMAKE_PREFIX_PATH, or of the system.
set(NLOHMANN_JSON_INCLUDE_DIR "" CACHE PATH "Folder that holds nlohmann/json.hpp; empty: looked for")
if(NOT NLOHMANN_JSON_INCLUDE_DIR)
  # What was found before holds while it is there. A failure is not kept: after it, headers may be
  # installed, or another Python may be first on PATH.
  if(NOT EXISTS "${COLLOPS_JSON_HEADERS}/nlohmann/json_fwd.hpp")
    unset(COLLOPS_JSON_HEADERS CACHE)
    find_program(python_on_path NAMES python3 python NO_CACHE)
    set(pip_headers "")
    foreach(python ${Python_EXECUTABLE} ${python_on_path})
      execute_process(
          COMMAND ${python} -c "import nlohmann_json; print(nlohmann_json.__path__[0] + '/include')"
          OUTPUT_VARIABLE said OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      list(APPEND pip_headers ${said})
    endforeach()
    find_path(COLLOPS_JSON_HEADERS nlohmann/json_fwd.hpp HINTS ${pip_headers}
              DOC "Folder that holds nlohmann/json.hpp, as it was found")
    mark_as_advanced(COLLOPS_JSON_HEADERS)
  endif()
  set(NLOHMANN_JSON_INCLUDE_DIR "${COLLOPS_JSON_HEADERS}")
endif()
if(NOT NLOHMANN_JSON_INCLUDE_DIR)
  message(FATAL_ERROR "collops: nlohmann/json.hpp was not found. Do one of these:\n"
          "  pip install nlohmann-json               (in the Python that is first on PATH)\n"
          "  apt install nlohmann-json3-dev          (Debian, Ubuntu)\n"
          "  cmake -DNLOHMANN_JSON_INCLUDE_DIR=DIR   (the folder that holds nlohmann/json.hpp)")
elseif(NOT EXISTS "${NLOHMANN_JSON_INCLUDE_DIR}/nlohmann/json_fwd.hpp")
  message(FATAL_ERROR "collops: NLOHMANN_JSON_INCLUDE_DIR is ${NLOHMANN_JSON_INCLUDE_DIR}, where there is no "
          "nlohmann/json_fwd.hpp: it must be the folder that holds nlohmann/json.hpp and nlohmann/json_fwd.hpp "
          "(-UNLOHMANN_JSON_INCLUDE_DIR: let CMake look for it)")
endif()
