#!/bin/sh
# within.sh ZCC NAME MODEL RANKS [FLAG...] -- [FLAG...]: compiles NAME with the first flags and runs it with the others: no process' resident peak is more
# than 5 % above what the plan and libraries take. Its log is NAME.jsonl.
set -e
zcc=$1 name=$2 model=$3 ranks=$4
shift 4
flags=
while [ "$1" != -- ]; do
  flags="$flags $1"
  shift
done
shift
# shellcheck disable=SC2086 # words
compile() { "$zcc" "$model" --threads=1 --optimizer=adamw --ranks="$ranks" $flags "$@"; }
compile --plan=json > "$name.json"
compile -o "$name"
launch=
[ "$ranks" = 1 ] || launch="mpirun -n $ranks --oversubscribe"
# shellcheck disable=SC2086
python3 "$(dirname "$0")/../codegen/check_memory.py" "$name.json" $launch "./$name" "$@" --quiet --log="$name.jsonl"
