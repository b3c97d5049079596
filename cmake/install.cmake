# What `cmake --install` puts in place: the library, the public headers, find_package(collops) and
# collops.pc.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/collops)
set(public_headers
    atb.h collops.h
    comm/agreement.h comm/call.h comm/communicator.h comm/communicator_spec.h
    comm/pairs/transfer.h comm/rank_set.h comm/registry.h comm/user_calls.h
    comm/window.h
    core/dtype.h core/operation.h core/prepackable.h core/status.h core/tensor.h core/trace/event.h core/trace/log.h
    core/trace/recording.h core/tuning.h
    operators/atb/acl.h operators/atb/operation.h operators/atb/params.h operators/atb/status.h
    operators/atb/types.h
    operators/params.h)
foreach(header ${public_headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ops/collops/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/collops/${folder})
endforeach()
target_include_directories(collops INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS collops EXPORT collopsTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
# Debug information is 20 times as large as the code, and of use with the sources alone.
option(COLLOPS_INSTALL_DEBUG "Install the library with its debug information" OFF)
if(CMAKE_STRIP AND NOT COLLOPS_INSTALL_DEBUG)
  set(installed "\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/$<TARGET_FILE_NAME:collops>")
  install(CODE "execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-debug \"${installed}\" COMMAND_ERROR_IS_FATAL ANY)")
endif()
install(EXPORT collopsTargets NAMESPACE collops:: DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/collopsConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES cmake/collopsConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/collopsConfigVersion.cmake
        DESTINATION ${package_dir})

# For pkg-config, found from the file's own folder, so that the prefix can be moved.
set(pc_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_prefix /prefix/${pc_folder} /prefix)
set(pc_include_dir "\${prefix}")
cmake_path(APPEND pc_include_dir ${CMAKE_INSTALL_INCLUDEDIR})
set(pc_lib_dir "\${prefix}")
cmake_path(APPEND pc_lib_dir ${CMAKE_INSTALL_LIBDIR})
set(pc_static_libs "-pthread -l${CMAKE_DL_LIBS}")
if(COLLOPS_SHARED)
  set(pc_static_libs "")
endif()
configure_file(cmake/collops.pc.in collops.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/collops.pc DESTINATION ${pc_folder})
