#!/bin/sh
# tiny_disk.sh FOLDER SIZE... -- COMMAND...: runs the command, which must fail, with TMPDIR on disks of these sizes, and says what
# it left there. In a mount namespace of its own.
set -eu
folder=$1 sizes=""
shift
while [ "$1" != -- ]; do
  sizes="$sizes $1"
  shift
done
shift
for size in $sizes; do
  mount -t tmpfs -o "size=$size" tmpfs "$folder"
  ! TMPDIR="$(pwd)/$folder" "$@" || { echo "it passes with $size"; exit 1; }
  ls "$folder"
  umount "$folder"
done
