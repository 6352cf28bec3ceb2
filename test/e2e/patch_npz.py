"""patch_npz.py IN.npz ARRAY INDEX FORMAT VALUE OUT.npz: one number of a stored array is another, in struct's format."""
import struct, sys

source, array, index, kind, value, target = sys.argv[1:]
data = bytearray(open(source, "rb").read())
begin = data.index(b"\n", data.index(array.encode() + b".npy")) + 1
number = struct.pack("<" + kind, float(value) if kind in "fd" else int(value))
at = begin + int(index) * len(number)
data[at:at + len(number)] = number
open(target, "wb").write(data)
