#!/bin/sh
# Usage: preflight.sh [PYTHON]. One line per missing tool, each with the Debian package that
# brings it. Needs nothing but sh, and runs before anything is downloaded.
python=${1:-python3}
missing=0

need() {
    echo "collops: $1: install the Debian package $2" >&2
    missing=1
}

check_python() {
    if ! command -v "$python" >/dev/null 2>&1; then
        need "$python not found" "python3"
        return
    fi
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        echo "collops: $python is Python $found, 3.10 or newer is needed:" \
            "name another one, as in make PYTHON=python3.12" >&2
        missing=1
        return
    fi
    "$python" -c 'import venv, ensurepip' 2>/dev/null || need "$python has no venv" python3-venv
    "$python" -c '
import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
' || need "Python.h of $python not found" python3-dev
}

[ "$(uname -s 2>/dev/null || echo Linux)" = Linux ] || {
    echo "collops: the core runs on Linux only, this is $(uname -s)" >&2
    missing=1
}
check_python
set -- ${CXX:-g++}
command -v "$1" >/dev/null 2>&1 || need "C++ compiler $1 not found" g++
command -v make >/dev/null 2>&1 || need "make not found" make
exit $missing
