# find_package(collops) gives the target collops::collops.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include("${CMAKE_CURRENT_LIST_DIR}/collopsTargets.cmake")
