#!/bin/sh
# [KINDS=...] [FLAGS=...] fixtures.sh ZCC TMP HERE MODEL VARIANT...: compiles and trains each variant with each optimizer, compares the
# losses.
set -eu
zcc=$1 tmp=$2 here=$3 model=$4
shift 4
models=$here/../models
mkdir -p "$tmp"
for variant in "$@"; do
  for kind in ${KINDS:-sgd adamw}; do
    case $kind in
    sgd) flags="--optimizer=sgd --lr=0.05 --momentum=0.9" ;;
    adamw) flags="--optimizer=adamw --lr=1e-3 --weight-decay=0.01" ;;
    adagrad) flags="--optimizer=adagrad --lr=0.02 --lr-decay=0.1 --initial-accumulator-value=0.01" ;;
    lamb) flags="--optimizer=lamb --lr=0.02 --weight-decay=0.01" ;;
    lion) flags="--optimizer=lion --lr=1e-3 --betas=0.9,0.99 --weight-decay=0.1" ;;
    esac
    # shellcheck disable=SC2086
    "$zcc" "$models/$model/$variant.onnx" $flags ${FLAGS:-} -o "$tmp/$model"
    "$tmp/$model" --data="$models/$model/data.npz" --steps=10 --log="$tmp/log.jsonl"
    python3 "$here/check_losses.py" "$tmp/log.jsonl" "$models/$model/ref.json" $kind
    echo "$model $variant $kind"
  done
done
