# NLOHMANN_JSON_INCLUDE_DIR, the folder that holds nlohmann/json.hpp: the caller's, or that of pip's
# nlohmann-json, of CMAKE_PREFIX_PATH, or of the system.
if(NOT NLOHMANN_JSON_INCLUDE_DIR)
  find_program(COLLOPS_PYTHON_PROGRAM NAMES python3 python DOC "Python, asked for pip's headers")
  set(python ${Python_EXECUTABLE} ${COLLOPS_PYTHON_PROGRAM})
  list(GET python 0 python)
  set(pip_headers "")
  if(python)
    execute_process(
        COMMAND ${python} -c "import nlohmann_json; print(nlohmann_json.__path__[0] + '/include')"
        OUTPUT_VARIABLE pip_headers OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  find_path(NLOHMANN_JSON_INCLUDE_DIR nlohmann/json_fwd.hpp HINTS ${pip_headers}
            DOC "Folder that holds nlohmann/json.hpp")
endif()
if(NOT NLOHMANN_JSON_INCLUDE_DIR)
  message(FATAL_ERROR "collops: nlohmann/json.hpp was not found. Do one of these:\n"
          "  pip install nlohmann-json               (in the Python that is first on PATH)\n"
          "  apt install nlohmann-json3-dev          (Debian, Ubuntu)\n"
          "  cmake -DNLOHMANN_JSON_INCLUDE_DIR=DIR   (the folder that holds nlohmann/json.hpp)")
elseif(NOT EXISTS ${NLOHMANN_JSON_INCLUDE_DIR}/nlohmann/json_fwd.hpp)
  message(FATAL_ERROR "collops: NLOHMANN_JSON_INCLUDE_DIR is ${NLOHMANN_JSON_INCLUDE_DIR}, where there is no "
          "nlohmann/json_fwd.hpp: it must be the folder that holds nlohmann/json.hpp and nlohmann/json_fwd.hpp")
endif()
