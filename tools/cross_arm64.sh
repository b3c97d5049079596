#!/bin/sh
# Usage: cross_arm64.sh [CMAKE ARGUMENT...]. Compiles the core for arm64 and runs the tests of its
# kernels, and of calls between ranks, under an emulator. Ends with 77 where the tools are missing.
set -eu
cd "$(dirname "$0")/.."
build=build/aarch64
tests="half_test reduce_test copy_test isa_test gemm_test gemm_bfmmla_test arithmetic_peak_test"
tests="$tests shm_calls_test"

need() {
    command -v "$1" >/dev/null 2>&1 || {
        echo "collops: $1 not found: install the Debian package $2" >&2
        exit 77
    }
}

need cmake cmake
need aarch64-linux-gnu-g++ g++-aarch64-linux-gnu
need qemu-aarch64 qemu-user
cmake -S . -B $build -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DCOLLOPS_WERROR=ON "$@"
cmake --build $build -j "$(nproc)" --target $tests
ctest --test-dir $build -j "$(nproc)" --output-on-failure -R "^($(echo $tests | tr ' ' '|'))\$"
