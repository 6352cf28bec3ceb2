# threads.sh ZCC MODEL: trains on two ranks of two threads at each stage, with overlap and prefetch, and compares.
set -eu
zcc=$1 model=$2
for zero in 0 1 2 3; do
  "$zcc" "$model/noopt.onnx" -o "p$zero" --ranks=2 --threads=2 --zero=$zero --overlap=on --prefetch=on --clip-grad-norm=1
  mpirun -n 2 "./p$zero" --data="$model/data.npz" --steps=4 --log="p$zero.jsonl" --quiet
  sed 's/"time_s.*//' "p$zero.jsonl" > "p$zero.losses"
  cmp p0.losses "p$zero.losses"
done
mpirun -n 2 ./p3 --data="$model/data.npz" --steps=4 --log=mpi.jsonl --quiet --comm=mpi
sed 's/"time_s.*//' mpi.jsonl | cmp p0.losses -
