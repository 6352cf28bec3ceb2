# threads-gpu.sh ZCC MODEL: trains an emulated GPU's programs on two ranks, with states on the device, the host and a disk, and compares.
set -eu
zcc=$1 model=$2
common="--target=cuda --emulate --ranks=2 --threads=1 --clip-grad-norm=1"
export ZCC_EMULATE_DELAY=300
mkdir -p swap
run() { # NAME FLAGS..
  name=$1
  shift
  # shellcheck disable=SC2086
  "$zcc" "$model/noopt.onnx" -o "$name" $common "$@"
  mpirun -n 2 "./$name" --data="$model/data.npz" --steps=3 --log="$name.jsonl" --nvme-path=swap --quiet
  sed 's/"time_s.*//' "$name.jsonl" > "$name.losses"
}
run kept --zero=1
run host --zero=3 --offload-optimizer=cpu --offload-param=cpu
run disk --zero=3 --offload-optimizer=nvme
cmp kept.losses host.losses
cmp kept.losses disk.losses
