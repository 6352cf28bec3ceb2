#!/usr/bin/env python3
"""split_samples.py FROM N TO [fill]: the first N samples of an archive; with `fill` one more, all of whose labels are ignored.
split_samples.py --rows N WIDTH TO: an array 'x' of N different rows.
split_samples.py --same X Y: array 'y' of Y is twice array 'x' of X."""
import sys, zipfile, io, struct


def read(path):
    """name -> (type, row's shape, rows as bytes)"""
    arrays = {}
    with zipfile.ZipFile(path) as z:
        for name in z.namelist():
            raw = z.read(name)
            n = struct.unpack("<H", raw[8:10])[0]
            head = eval(raw[10:10 + n].decode())
            shape, data = head["shape"], raw[10 + n:]
            size = len(data) // shape[0]
            arrays[name[:-4]] = (head["descr"], shape[1:], [data[i * size:(i + 1) * size] for i in range(shape[0])])
    return arrays


def write(path, arrays):
    with zipfile.ZipFile(path, "w") as z:
        for name, (descr, shape, rows) in arrays.items():
            head = repr({"descr": descr, "fortran_order": False, "shape": (len(rows),) + tuple(shape)})
            head += " " * (-(len(head) + 11) % 64) + "\n"
            z.writestr(name + ".npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + b"".join(rows))


def main(args):
    if args[0] == "--rows":
        n, width = int(args[1]), int(args[2])
        rows = [struct.pack(f"<{width}f", *(i * width + j for j in range(width))) for i in range(n)]
        return write(args[3], {"x": ("<f4", (width,), rows)})
    if args[0] == "--same":
        x, y = read(args[1])["x"][2], read(args[2])["y"][2]
        numbers = lambda rows: [v for r in rows for v in struct.unpack(f"<{len(r) // 4}f", r)]
        assert numbers(y) == [2 * v for v in numbers(x)], numbers(y)
        return
    arrays = {name: (d, s, rows[:int(args[1])]) for name, (d, s, rows) in read(args[0]).items()}
    for d, s, rows in arrays.values() if len(args) > 3 else []:
        ignored = struct.pack("<q", -100) * (len(rows[0]) // 8)
        rows.append(ignored if rows is arrays["labels"][2] else rows[0])
    write(args[2], arrays)


if __name__ == "__main__":
    main(sys.argv[1:])
