#!/bin/sh
# Usage: two_jobs.sh FOLDER COMMAND...: runs the command twice at once, as a user's script may, with
# A and with B as its last word. What a job writes goes to FOLDER/A.out and so on. Prints one line
# per job: its letter, the process group its command was started in, and its exit status.
folder=$1
shift

group() { sed 's/.*) [A-Z] [0-9]* \([0-9]*\) .*/\1/' "/proc/$1/stat"; }

"$@" A >"$folder/A.out" 2>"$folder/A.err" &
a=$!
"$@" B >"$folder/B.out" 2>"$folder/B.err" &
b=$!
# Not yet waited for, so both still have an entry, even if one has ended.
group_a=$(group $a)
group_b=$(group $b)
wait $a
echo "A $group_a $?"
wait $b
echo "B $group_b $?"
