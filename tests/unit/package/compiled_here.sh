#!/bin/sh
# compiled_here.sh BUILD COMPILER ARGUMENTS...: stands before the compiler and takes the objects of
# another build of the same sources; what is not there, and the bindings' module, it compiles.
build=$1
shift
object=
previous=
for word; do
    [ "$previous" = -o ] && object=$word
    previous=$word
done
case $object in
*/module.cpp.o) ;;
*.o) [ -f "$build/$object" ] && exec cp "$build/$object" "$object" ;;
esac
exec "$@"
