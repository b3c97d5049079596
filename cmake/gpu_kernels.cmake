# collops_kernels.fatbin, from nvcc. Where there is no nvcc that works, the library is built without
# it: the backends on GPUs then say why (ops/collops/kernels/cuda/launch/fatbin.cpp).
option(COLLOPS_GPU_KERNELS "Build the GPU kernels, if there is an nvcc" ON)
set(COLLOPS_NVCC_HINTS "" CACHE STRING "Folders in which to look for nvcc, besides PATH")
set(gpu_kernels ${PROJECT_BINARY_DIR}/collops_kernels.fatbin)
set(gpu_kernels_reason "")
# For the kernels of a reduction to have the CPU's bits, no sum and product become one fma.
set(nvcc_flags -std=c++17 -fatbin --fmad=false)

if(NOT COLLOPS_GPU_KERNELS)
  set(gpu_kernels_reason "it was built with COLLOPS_GPU_KERNELS=OFF")
elseif(COLLOPS_SANITIZE)
  set(gpu_kernels_reason "it was built for a sanitizer")
elseif(CMAKE_CROSSCOMPILING)
  set(gpu_kernels_reason "it was built for another kind of machine")
else()
  find_program(COLLOPS_NVCC nvcc HINTS ENV CUDA_HOME PATH_SUFFIXES bin
               PATHS ${COLLOPS_NVCC_HINTS} /usr/local/cuda/bin DOC "CUDA's compiler")
  if(NOT COLLOPS_NVCC)
    set(gpu_kernels_reason "there was no nvcc when it was built")
  endif()
endif()

# One that lacks a header or a host compiler is found out here, and not in the middle of the build.
if(NOT gpu_kernels_reason)
  set(probe ${PROJECT_BINARY_DIR}/CMakeFiles/gpu_kernels_probe)
  file(WRITE ${probe}.cu "extern \"C\" __global__ void probe(int* out) { *out = blockIdx.x; }\n")
  execute_process(COMMAND ${COLLOPS_NVCC} ${nvcc_flags} ${probe}.cu -o ${probe}.fatbin
                  RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE probe_error)
  execute_process(COMMAND ${COLLOPS_NVCC} --list-gpu-code OUTPUT_VARIABLE gpu_codes ERROR_QUIET)
  if(NOT failed EQUAL 0)
    string(REGEX MATCH "[^\n]*(error|fatal|not found|No such)[^\n]*" first_error "${probe_error}")
    string(REGEX REPLACE "[\"\\\\;$]" " " first_error "${first_error}")
    set(gpu_kernels_reason "the nvcc of its build did not work: ${first_error} (${failed})")
  endif()
endif()

if(gpu_kernels_reason)
  message(STATUS "collops: no GPU kernels: ${gpu_kernels_reason}")
  set_property(SOURCE ops/collops/kernels/cuda/launch/fatbin.cpp TARGET_DIRECTORY collops APPEND PROPERTY
               COMPILE_DEFINITIONS "COLLOPS_NO_KERNELS=\"${gpu_kernels_reason}\"")
  return()
endif()

# Code of the GPUs that this nvcc knows, and PTX for those to come.
set(newest 80)
foreach(arch 80 90 100 120)
  if(gpu_codes MATCHES "sm_${arch}\n")
    list(APPEND nvcc_flags -gencode arch=compute_${arch},code=sm_${arch})
    set(newest ${arch})
  endif()
endforeach()
list(APPEND nvcc_flags -gencode arch=compute_${newest},code=compute_${newest})
if(COLLOPS_WERROR)
  list(APPEND nvcc_flags -Werror all-warnings)
endif()

file(GLOB kernel_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ops/collops/kernels/cuda/bodies/*.h
     ${PROJECT_SOURCE_DIR}/ops/collops/kernels/cuda/peers/*.h)
add_custom_command(
    OUTPUT ${gpu_kernels}
    COMMAND ${COLLOPS_NVCC} ${nvcc_flags} --threads 2 -I${PROJECT_SOURCE_DIR}/ops
            ${PROJECT_SOURCE_DIR}/ops/collops/kernels/cuda/bodies/kernels.cu -o ${gpu_kernels}
    DEPENDS ${PROJECT_SOURCE_DIR}/ops/collops/kernels/cuda/bodies/kernels.cu ${kernel_headers}
            ${PROJECT_SOURCE_DIR}/ops/collops/core/dtype.h ${PROJECT_SOURCE_DIR}/ops/collops/kernels/half.h
    COMMENT "Compiling the GPU kernels" VERBATIM)
add_custom_target(collops_kernels ALL DEPENDS ${gpu_kernels})
install(FILES ${gpu_kernels} DESTINATION . COMPONENT python EXCLUDE_FROM_ALL)
