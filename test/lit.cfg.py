# The lit suite: .zir files are tests of zcc-opt, .test files of whole commands.
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
from plain_paths import PlainPaths

config.name = "zcc"
config.test_format = paths = PlainPaths(os.path.dirname(os.path.dirname(__file__)), config.zcc_build)
config.suffixes = [".zir", ".test"]
config.excludes = ["models", "unit", "random", "Inputs"]
config.test_source_root = os.path.join(paths.source, "test")
config.test_exec_root = os.path.join(config.zcc_build, "test")
zcc_bin = os.path.join(paths.build, "bin")

# Tools by name, from this build and from LLVM.
config.environment["PATH"] = os.pathsep.join(
    [zcc_bin, config.llvm_tools, os.environ["PATH"]])
config.environment["MALLOC_PERTURB_"] = "165"  # overwrites freed memory, so that its use shows
# No profile of this machine but those that a test makes: predictions are the same everywhere.
config.environment["XDG_CACHE_HOME"] = os.path.join(config.test_exec_root, "no-cache")
config.environment["FILECHECK_OPTS"] = "--enable-var-scope --allow-unused-prefixes=false"
zcc = os.path.join(zcc_bin, "zcc")
config.substitutions.append((r"%zcc\b(?!-)", zcc))
config.substitutions.append((r"%python\b", config.python))
config.substitutions.append((r"%build\b", paths.build))
config.substitutions.append((r"%lower\b", "--expand-composites --sink-casts --lay-heads --globalize-constants --legalize-operands")) # as far as fuse
# Each pass's text parses back the same, and passes say truly whether they change anything.
config.substitutions.append((r"(?<![/\w])zcc-opt\b(?! --verify-roundtrip)", zcc + "-opt --verify-roundtrip"))

for name, value in os.environ.items():
    if name.startswith(("OMPI_", "CCACHE_", "ASAN_", "UBSAN_", "TSAN_", "OMP_")):
        config.environment[name] = value
if shutil.which("mpirun"):
    config.available_features.add("mpi")
    # Tests run more ranks than there are cores, in containers as root.
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                 "OMPI_MCA_rmaps_base_oversubscribe"):
        config.environment[name] = "1"
# Whether one may mount a file system that nobody else sees: some containers forbid it.
if shutil.which("unshare") and not subprocess.run(["unshare", "-rm", "sh", "-c", 'mount -t tmpfs tmpfs "$0"', config.zcc_build],
                                                  capture_output=True).returncode:
    config.available_features.add("mounts")
# Packages that some tests use where the tests' Python has them.
probe = "from importlib.util import find_spec as f; import sys; print(*[p for p in sys.argv[1:] if f(p)])"
packages = subprocess.run([config.python, "-c", probe, "safetensors", "numpy", "torch", "transformers", "onnxscript", "onnxruntime",
                           "onnx", "sklearn", "deepspeed"],
                          capture_output=True, text=True).stdout.split()
if {"safetensors", "numpy"} <= set(packages):
    config.available_features.add("safetensors")
    paths.reader = [config.python, os.path.join(config.test_source_root, "check_safetensors.py")]
if {"safetensors", "torch", "transformers", "onnxscript"} <= set(packages):
    config.available_features.add("transformers")
if {"deepspeed", "torch", "transformers", "onnxscript"} <= set(packages):
    config.available_features.add("deepspeed")
if {"onnxruntime", "numpy"} <= set(packages):
    config.available_features.add("onnxruntime")
if {"onnxruntime", "numpy", "torch", "onnx", "sklearn"} <= set(packages):
    config.available_features.add("scikit-learn")
# What shows pages; --no-sandbox is for containers.
chromium = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
if chromium and not subprocess.run([chromium, "--headless", "--no-sandbox", "--dump-dom", "about:blank"], capture_output=True).returncode:
    config.available_features.add("chromium")
    config.substitutions.append((r"%chromium\b", chromium))
if shutil.which("clang-tidy-19") and shutil.which("git"):
    config.available_features.add("clang-tidy")
if config.nvcc:
    config.available_features.add("nvcc") # zcc makes programs for GPUs
with open("/proc/cpuinfo") as f:
    if "avx512f" in f.read().split():
        config.available_features.add("avx512")
if config.sanitizers:
    config.available_features.add("sanitizers")
