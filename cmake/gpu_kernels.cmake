# collops_kernels.fatbin, from nvcc, which takes longer than all else. Without it the backends on GPUs
# say why (ops/collops/kernels/cuda/kernels.cpp).
set(COLLOPS_GPU_KERNELS AUTO CACHE STRING
    "Build the GPU kernels with nvcc: AUTO (if this machine has NVIDIA's driver), ON or OFF")
set_property(CACHE COLLOPS_GPU_KERNELS PROPERTY STRINGS AUTO ON OFF)
set(COLLOPS_NVCC_HINTS "" CACHE STRING "Folders in which to look for nvcc, before PATH")
# For a build with another interpreter or for another kind of machine, in which they are the same.
set(COLLOPS_GPU_KERNELS_FILE "" CACHE FILEPATH "GPU kernels that are compiled already")
set(gpu_kernels ${PROJECT_BINARY_DIR}/collops_kernels.fatbin)
set(gpu_kernels_reason "")
# For the kernels of a reduction to have the CPU's bits, no sum and product become one fma. What
# nvcc 13 compresses, a driver before 580 cannot read.
set(nvcc_flags -std=c++17 -fatbin --fmad=false --no-compress)

set(has_driver FALSE)
if(EXISTS /proc/driver/nvidia/version)
  set(has_driver TRUE)
endif()
if(NOT COLLOPS_GPU_KERNELS)
  set(gpu_kernels_reason "it was built with COLLOPS_GPU_KERNELS=OFF")
elseif(COLLOPS_SANITIZE)
  set(gpu_kernels_reason "it was built for a sanitizer")
elseif(COLLOPS_GPU_KERNELS STREQUAL "AUTO" AND NOT has_driver)
  string(CONCAT gpu_kernels_reason "it was built on a machine without NVIDIA's driver: build it on one with a "
         "GPU, or with CMAKE_ARGS=-DCOLLOPS_GPU_KERNELS=ON")
else()
  find_program(COLLOPS_NVCC nvcc HINTS ENV CUDA_HOME ${COLLOPS_NVCC_HINTS} PATH_SUFFIXES bin
               PATHS /usr/local/cuda/bin DOC "CUDA's compiler")
  if(NOT COLLOPS_NVCC)
    string(CONCAT gpu_kernels_reason "there was no nvcc when it was built: install one, as by "
           "pip install nvidia-cuda-nvcc, and build collops again, as by "
           "pip install --force-reinstall --no-cache-dir")
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
  set(kind STATUS)
  if(COLLOPS_GPU_KERNELS AND (has_driver OR NOT COLLOPS_GPU_KERNELS STREQUAL "AUTO"))
    set(kind WARNING)  # they are wanted
  endif()
  message(${kind} "collops: no GPU kernels: ${gpu_kernels_reason}")
  set_property(SOURCE ops/collops/kernels/cuda/kernels.cpp TARGET_DIRECTORY collops APPEND PROPERTY
               COMPILE_DEFINITIONS "COLLOPS_NO_KERNELS=\"${gpu_kernels_reason}\"")
  return()
endif()

execute_process(COMMAND ${COLLOPS_NVCC} --version OUTPUT_VARIABLE nvcc_version)
string(REGEX MATCH "release [0-9.]+" nvcc_version "${nvcc_version}")
string(REPLACE "release " "" nvcc_version "${nvcc_version}")
set_property(SOURCE ops/collops/kernels/cuda/kernels.cpp TARGET_DIRECTORY collops APPEND PROPERTY
             COMPILE_DEFINITIONS "COLLOPS_NVCC=\"${nvcc_version}\"")
if(COLLOPS_GPU_KERNELS_FILE)
  install(FILES ${COLLOPS_GPU_KERNELS_FILE} DESTINATION . RENAME collops_kernels.fatbin COMPONENT python
          EXCLUDE_FROM_ALL)
  return()
endif()

# Code of the GPUs that this nvcc knows, and PTX for those between them and to come.
list(APPEND nvcc_flags -gencode arch=compute_80,code=compute_80)
set(newest 80)
foreach(arch 80 90 100 120)
  if(gpu_codes MATCHES "sm_${arch}\n")
    list(APPEND nvcc_flags -gencode arch=compute_${arch},code=sm_${arch})
    set(newest ${arch})
  endif()
endforeach()
if(newest GREATER 80)
  list(APPEND nvcc_flags -gencode arch=compute_${newest},code=compute_${newest})
endif()
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
