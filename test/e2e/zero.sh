# [THREADS=N] [PROGRAM_FLAGS=FLAGS] zero.sh ZCC MODEL RANKS NAME COMMON... -- FLAGS... -- FLAGS...: trains the model once for each
# set of flags of zcc and compares. The first as users do, the others in less time (--opt-level=0): the bits are the same.
set -eu
zcc=$1 model=$2 ranks=$3 name=$4
shift 4
common=""
while [ $# -gt 0 ] && [ "$1" != -- ]; do common="$common $1"; shift; done
i=0
while [ $# -gt 0 ]; do
  shift
  flags=""
  while [ $# -gt 0 ] && [ "$1" != -- ]; do flags="$flags $1"; shift; done
  # shellcheck disable=SC2086
  "$zcc" "$model/noopt.onnx" -o "$name.$i" --ranks="$ranks" --threads="${THREADS:-1}" \
    --opt-level=$((i ? 0 : 3)) $common $flags
  mpirun -n "$ranks" "./$name.$i" --data="$model/data.npz" --steps=6 --log="$name.$i.jsonl" \
    --export="$name.$i.safetensors" --quiet ${PROGRAM_FLAGS:-}
  sed 's/"time_s.*//' "$name.$i.jsonl" > "$name.$i.losses"
  cmp "$name.0.losses" "$name.$i.losses" || { echo "other losses with$flags"; exit 1; }
  cmp "$name.0.safetensors" "$name.$i.safetensors" || { echo "other weights with$flags"; exit 1; }
  i=$((i + 1))
done
[ "$i" -gt 1 ]
