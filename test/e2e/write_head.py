#!/usr/bin/env python3
"""write_head.py: x.npy and t.npy, the inputs of Inputs/head.zir."""
import struct


def write(path, descr, dims, raw):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {dims}, }}".ljust(117) + "\n"
    open(path, "wb").write(b"\x93NUMPY\1\0" + struct.pack("<H", 118) + head.encode() + raw)


if __name__ == "__main__":
    write("x.npy", "<f4", (4096, 16), struct.pack("<65536f", *(i % 7 / 7 for i in range(65536))))
    write("t.npy", "<i8", (4096,), struct.pack("<4096q", *(i * 16 for i in range(4096))))
